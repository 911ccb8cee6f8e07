"""Proton's lowering of records, switched on around one compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import triton
from triton._C import libtriton
from triton._C.libtriton import ir, passes
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.occupancy import limits_of
from kprof_inject.errors import KprofError
from kprof_inject.runtime.diagnostics import without_false_alarms
from kprof_inject.runtime.versions import inline_helpers, installed_version

_BACKENDS = {"cuda": "nvidia", "hip": "amd"}
_BUFFERS = {"shared": "SHARED", "global": "GLOBAL"}

# Proton clips a size to what it would choose itself from this many bytes: none is clipped.
_ANY_SHARED_BYTES = 1 << 30


def shared_bytes_of(target: GPUTarget) -> int:
    """The shared memory that one CTA may use on this target, from tables; no device is asked."""
    return limits_of(f"{target.backend}:{target.arch}").cta_shared_bytes


@contextmanager
def instrumented(target: GPUTarget, mode: Mode, shared_bytes: int) -> Iterator[None]:
    """Lower ``proton.record`` in every compilation of this context; each has to be of a module with records.

    ``mode`` is the kernel's own (see ``mode_of_kernel``). If it leaves the size to Proton, that takes a share of what
    the kernel leaves of ``shared_bytes``, the most that a CTA may use. What the compiler writes to stderr may hold
    false alarms: see ``diagnostics``. Raises ``KprofError`` for a mode that Proton cannot lower for the target.
    """
    backend = _BACKENDS[target.backend]
    version = installed_version()  # of a Triton that was built without Proton, this says so
    if mode.buffer == "global" and backend not in version.global_buffer_on:
        raise KprofError(
            f"Triton {triton.__version__} cannot keep records in global memory on {backend.upper()}",
            hint="choose --buffer shared, or use Triton 3.7 or later",
        )
    proton = libtriton.proton

    def to_llvmir(pass_manager: Any) -> None:
        proton.add_convert_proton_to_protongpu(
            pass_manager,
            proton.METRIC_TYPE.CYCLE,
            proton.SAMPLING_STRATEGY.SELECTIVE if mode.warps else proton.SAMPLING_STRATEGY.NONE,
            ",".join(map(str, mode.warps)),  # sampling options
            proton.GRANULARITY.WARP,
            proton.BUFFER_STRATEGY.CIRCULAR,
            getattr(proton.BUFFER_TYPE, _BUFFERS[mode.buffer]),
            mode.buffer_bytes,
            _ANY_SHARED_BYTES if mode.buffer_bytes else shared_bytes,
            1,  # scratch bytes: at least one, the pass computes the rest
            128,  # scratch alignment, as Proton's own hook sets it
            mode.clock_bits == 64,  # clock extension: 43 bits of %clock64
        )
        passes.common.add_cse(pass_manager)
        if mode.sched_stores:
            proton.add_schedule_buffer_store(pass_manager)
        proton.add_allocate_proton_shared_memory(pass_manager)

    def to_llvm(pass_manager: Any) -> None:
        for name in version.scratch_passes:
            getattr(proton, name)(pass_manager)
        if backend == "nvidia":
            proton.add_convert_proton_nvidia_gpu_to_llvm(pass_manager)
        else:
            proton.add_convert_proton_amd_gpu_to_llvm(pass_manager, str(target.arch))

    with version.attach(backend, to_llvmir, to_llvm):
        yield


def scope_names(ttgir_path: str, target: GPUTarget) -> dict[int, str]:
    """Proton's table of scope ids: the record name of each id. Two ids may bear one name.

    The ids are given to the module as Triton's lowering has it by then: without ``scf``, and with helpers inlined."""
    module = read_module(ttgir_path, target)
    with without_false_alarms():
        inline_helpers(module)
        return {int(scope_id): str(name) for scope_id, name in libtriton.proton.get_scope_id_names(module)}


def read_module(ttgir_path: str, target: GPUTarget) -> Any:
    """What Triton's own parser makes of a file, verified. Raises ``RuntimeError``, and the reason goes to stderr."""
    context = ir.context()
    ir.load_dialects(context)
    backends[_BACKENDS[target.backend]].compiler(target).load_dialects(context)
    libtriton.proton.load_dialects(context)
    module = ir.parse_mlir_module(ttgir_path, context)
    module.context = context  # the module must not outlive it
    return module
