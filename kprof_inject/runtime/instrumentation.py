"""Proton's lowering of records, switched on around one compilation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from triton._C.libtriton import ir, passes, proton
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.runtime.diagnostics import without_false_alarms
from kprof_inject.runtime.versions import installed_version

_BACKENDS = {"cuda": "nvidia", "hip": "amd"}
_BUFFERS = {"shared": proton.BUFFER_TYPE.SHARED, "global": proton.BUFFER_TYPE.GLOBAL}

# What one CTA may use, by compute capability or architecture: CUDA C++ Programming Guide, table "Technical
# Specifications per Compute Capability"; AMD Instinct ISA guides (LDS per workgroup).
_SHARED_BYTES = {
    "cuda:80": 166912,
    "cuda:86": 101376,
    "cuda:89": 101376,
    "cuda:90": 232448,
    "cuda:100": 232448,
    "cuda:103": 232448,
    "cuda:120": 101376,
    "hip:gfx942": 65536,
    "hip:gfx950": 163840,
}
_SMALLEST_SHARED_BYTES = 49152


def shared_bytes_of(target: GPUTarget) -> int:
    """The shared memory that one CTA may use on this target, from tables; no device is asked."""
    return _SHARED_BYTES.get(f"{target.backend}:{target.arch}", _SMALLEST_SHARED_BYTES)


@contextmanager
def instrumented(target: GPUTarget, mode: Mode, shared_bytes: int) -> Iterator[None]:
    """Lower ``proton.record`` in every compilation of this context; each has to be of a module with records.

    ``shared_bytes`` is what a CTA may use in all: Proton takes its buffer from what the kernel leaves. What the
    compiler writes to stderr may hold false alarms: see ``diagnostics``.
    """
    backend = _BACKENDS[target.backend]

    def to_llvmir(pass_manager: Any) -> None:
        proton.add_convert_proton_to_protongpu(
            pass_manager,
            proton.METRIC_TYPE.CYCLE,
            proton.SAMPLING_STRATEGY.NONE,
            "",  # sampling options: no warps left out
            proton.GRANULARITY.WARP,
            proton.BUFFER_STRATEGY.CIRCULAR,
            _BUFFERS[mode.buffer],
            mode.buffer_bytes,
            shared_bytes,
            1,  # scratch bytes: at least one, the pass computes the rest
            128,  # scratch alignment, as Proton's own hook sets it
            True,  # clock extension: 43 bits of %clock64
        )
        passes.common.add_cse(pass_manager)
        proton.add_allocate_proton_shared_memory(pass_manager)

    def to_llvm(pass_manager: Any) -> None:
        # Triton 3.8 moved this pass into the lowering that precedes it.
        if hasattr(proton, "add_allocate_proton_global_scratch_buffer"):
            proton.add_allocate_proton_global_scratch_buffer(pass_manager)
        if backend == "nvidia":
            proton.add_convert_proton_nvidia_gpu_to_llvm(pass_manager)
        else:
            proton.add_convert_proton_amd_gpu_to_llvm(pass_manager, str(target.arch))

    with installed_version().attach(backend, to_llvmir, to_llvm):
        yield


def scope_names(ttgir_path: str, target: GPUTarget) -> dict[int, str]:
    """Proton's table of scope ids: the record name of each id. Two ids may bear one name.

    The ids are given to the module as Triton's lowering has it by then: without ``scf``, and with helpers inlined."""
    module = read_module(ttgir_path, target)
    with without_false_alarms():
        lowering = ir.pass_manager(module.context)
        passes.convert.add_scf_to_cf(lowering)
        passes.gluon.add_inliner(lowering)
        lowering.run(module, "inline_helpers")
        return {int(scope_id): str(name) for scope_id, name in proton.get_scope_id_names(module)}


def read_module(ttgir_path: str, target: GPUTarget) -> Any:
    """What Triton's own parser makes of a file, verified. Raises ``RuntimeError``, and the reason goes to stderr."""
    context = ir.context()
    ir.load_dialects(context)
    backends[_BACKENDS[target.backend]].compiler(target).load_dialects(context)
    proton.load_dialects(context)
    module = ir.parse_mlir_module(ttgir_path, context)
    module.context = context  # the module must not outlive it
    return module
