"""Compiles a planned kernel with its records, through Triton's own override of TTGIR."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import triton.compiler.compiler
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.schema import KernelRecord, ModeRecord, ScopeTableRecord, plausible_sm_clock_hz
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiler_process import errors_in, without_false_alarms
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.instrumentation import instrumented, scope_names, shared_bytes_of
from kprof_inject.runtime.interruptions import in_forked_child
from kprof_inject.runtime.launching.launch_buffers import CapturedKernel
from kprof_inject.runtime.versions import installed_version
from kprof_inject.workspace import DumpedKernel, Workspace


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """A dumped kernel that has a plan: its scope table, and the target that it is compiled for."""

    workspace: Workspace
    kernel: DumpedKernel
    scope_table: ScopeTableRecord
    target: GPUTarget


def compile_with_records(compile_plain: Callable[[], Any], planned: PlannedKernel, mode: Mode) -> Any:
    """What Triton compiles when ``compile_plain`` finds the kernel's TTGIR replaced by the one with records.

    Raises ``KprofError`` if the compiler refuses, with its reason, and if there are no records in the result."""
    shared_bytes = _device_properties(planned.target).get("max_shared_mem") or shared_bytes_of(planned.target)
    with _Effects() as effects, without_false_alarms() as messages:
        effects.enter_context(_overriding(planned))
        effects.enter_context(instrumented(planned.target, mode, shared_bytes))
        try:
            kernel = compile_plain()
        except Exception as error:  # the compiler's errors have no common base
            said = errors_in(messages.take())
            reason = said[0].text if said else f"{type(error).__name__}: {error}"
            raise KprofError(f"Triton does not compile it with records: {reason}") from error
    if not kernel.metadata.profile_scratch_size:
        raise KprofError("Triton did not use the override: its records are not in the binary")
    return kernel


def scope_ids_of(planned: PlannedKernel) -> dict[int, str]:
    """The record name of each scope id. It costs a parse of the module, too much for the launch path."""
    return scope_names(str(planned.workspace.override_path(planned.kernel)), planned.target)


def describe(
    planned: PlannedKernel, variant: str, kernel: Any, mode: Mode, scope_ids: dict[int, str]
) -> CapturedKernel:
    """What a capture says of a kernel with records. It is to be asked when the kernel is loaded."""
    workspace, dumped = planned.workspace, planned.kernel
    metadata = {name: getattr(kernel.metadata, name) for name in _CHANGED_BY_RECORDS}
    device = _device_properties(planned.target)
    description = KernelRecord(
        name=dumped.name,
        scope_table=planned.scope_table,
        scope_ids=scope_ids,
        layout=installed_version().buffer_layout,
        mode=ModeRecord(*astuple(mode)),
        sm_clock_hz=plausible_sm_clock_hz(1000 * device.get("sm_clock_rate", 0)),
        sm_count=device.get("multiprocessor_count", 0),
        metadata={**dumped.info.metadata, **metadata},
        clean_metadata=dumped.info.metadata,
        clean=workspace.clean_run(dumped.variant),
        **resources_of(kernel),
    )
    return CapturedKernel(
        variant,
        dumped.variant,
        kernel.metadata.profile_scratch_size * kernel.metadata.num_ctas,
        bool(getattr(kernel.metadata, "launch_pdl", False)),
        dumped.ttgir(),
        workspace.kernel_sources(dumped.variant),
        description,
    )


_CHANGED_BY_RECORDS = ("num_warps", "shared", "profile_scratch_size", "profile_scratch_align")


class _Effects(ExitStack):
    """What a compilation changes in the process. It is undone at the end; in a child that another thread forks
    meanwhile, where nothing comes to that end, it is undone at once."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()
        in_forked_child(self._undo_in_child)

    def _undo_in_child(self) -> None:
        if threading.get_ident() != self._thread:
            self.close()


def _binaries_folder(workspace: Workspace) -> Path:
    """Where this process keeps its binaries with records."""
    return workspace.cache_folder("instrumented")


def remove_binaries(workspace: Workspace) -> None:
    """Remove what this process compiled with records. What a killed one left, the next run removes."""
    shutil.rmtree(_binaries_folder(workspace), ignore_errors=True)


@contextmanager
def _overriding(planned: PlannedKernel) -> Iterator[None]:
    """Have Triton replace the TTGIR of the next compilation by the kernel's own, and keep the binary apart.

    The cache's key does not know the override, so an instrumented binary must not lie where another
    compilation would look.
    """
    compiler: Any = triton.compiler.compiler
    with _knobs_of_this_process(), knobs.compilation.scope(), knobs.cache.scope():
        knobs.compilation.override = True
        knobs.compilation.always_compile = True
        knobs.compilation.store_binary_only = False
        knobs.cache.override_dir = str(planned.workspace.override_folder / planned.kernel.variant)
        knobs.cache.dir = str(_binaries_folder(planned.workspace))
        # Triton says on stdout that it overrides; the program's output is not ours to add to, and our report has it.
        compiler.print = _say_nothing
        try:
            yield
        finally:
            del compiler.print


@contextmanager
def _knobs_of_this_process() -> Iterator[None]:
    """Keep what is set of Triton's knobs out of the environment, which children of other threads inherit."""
    propagates, knobs.propagate_env = knobs.propagate_env, False
    try:
        yield
    finally:
        knobs.propagate_env = propagates


def _say_nothing(*_: object, **__: object) -> None:
    pass


def _device_properties(target: GPUTarget) -> dict[str, Any]:
    """What the driver tells of the current device; nothing if the program compiles for another target."""
    try:
        if driver.active.get_current_target() != target:
            return {}
        device = driver.active.get_current_device()
        return dict(driver.active.utils.get_device_properties(device))
    except RuntimeError:  # no active driver: a machine without a GPU
        return {}
