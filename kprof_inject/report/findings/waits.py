"""Which scopes are waits, in which a warp does nothing else, and which of these are lost time."""

from __future__ import annotations

import re

from kprof_inject.capture.reader import Kernel
from kprof_inject.capture.scopes import ScopeInfo, ScopeTable
from kprof_inject.report.kernel_files import ttgir_of
from kprof_inject.timeline.statistics.phases import outermost

# What waits of Triton's operations, in all versions from 3.5 to 3.9.
_WAITS = frozenset(
    {
        "amdg.async_tdm_wait",
        "amdg.async_wait",
        "amdg.memory_counter_wait",
        "amdg.wait_barrier",
        "amdgpu.async_wait",
        "gpu.barrier",
        "rocdl.s.barrier",
        "rocdl.s.waitcnt",
        "ttg.async_wait",
        "ttg.barrier",
        "ttg.local_barrier",
        "ttng.async_tma_store_token_wait",
        "ttng.async_tma_store_wait",
        "ttng.cluster_wait",
        "ttng.wait_barrier",
        "ttng.warp_group_dot_wait",
    }
)
_DOT_WAIT = "ttng.warp_group_dot_wait"
_BARRIER_WAIT = "ttng.wait_barrier"
# From here on the tensor cores tell by a barrier that they are done, as loads do.
_BARRIERS_OF_DOTS = 100
# Scopes around some operations or lines, which the user may have named.
_NAMED_KINDS = ("op", "marker", "line")
_NAMES_OF_WAITS = frozenset({"wait", "waits", "waiting", "barrier", "barriers"})
_WORD = re.compile(r"[a-z]+")
_DOT = re.compile(r"dot|mma")
_OPERATION_NAME = re.compile(r"[a-z]+\.[a-z]")


def is_wait(scope: ScopeInfo) -> bool:
    """Whether it is one: by its operation, or because the user calls it so."""
    if scope.kind not in _NAMED_KINDS:
        return False
    return _operation(scope) in _WAITS or (
        not _OPERATION_NAME.match(scope.name) and not _NAMES_OF_WAITS.isdisjoint(_WORD.findall(scope.name.lower()))
    )


def may_lose_time(kernel: Kernel) -> bool:
    """Whether it may wait, recorded or not: by its text, and always if that is unknown."""
    text = ttgir_of(kernel)
    return not text or any(operation in text for operation in _WAITS - _no_loss(kernel))


def lost_waits(table: ScopeTable, kernel: Kernel) -> tuple[int, ...]:
    """The outermost waits of the ``kernel``'s scope table that are lost time, by index: not those during which the
    tensor cores work, or may work, by what they are or by what stands in them."""
    no_loss = _no_loss(kernel)
    waits = outermost(table, is_wait).tolist()
    lost = {wait for wait in waits if wait >= 0}
    lost -= {wait for wait, scope in zip(waits, table.scopes, strict=True) if _operation(scope) in no_loss}
    return tuple(sorted(lost))


def _no_loss(kernel: Kernel) -> frozenset[str]:
    """The waits during which the tensor cores work, or may work."""
    target = kernel.metadata.get("target")
    arch = target.get("arch") if isinstance(target, dict) else None
    has_barriers_of_dots = isinstance(arch, int) and arch >= _BARRIERS_OF_DOTS
    return frozenset((_DOT_WAIT, _BARRIER_WAIT) if has_barriers_of_dots else (_DOT_WAIT,))


def is_of_dot(scope: ScopeInfo) -> bool:
    """Whether it is a dot or a wait for one: the warps that run it do the kernel's work."""
    return _DOT.search(_operation(scope)) is not None


def _operation(scope: ScopeInfo) -> str:
    return (scope.label or scope.name) if scope.kind == "op" else ""
