"""Differences between the Triton versions that we support, one row for each kind."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import triton

from kprof_inject.capture.schema import LayoutName
from kprof_inject.errors import KprofError
from kprof_inject.ttgir.dialect import CALL

_ALWAYS_NEEDED = {
    "triton": "knobs.cache.dir knobs.cache.override_dir knobs.compilation.always_compile knobs.compilation.override "
    "knobs.compilation.store_binary_only",
    "triton.backends": "backends",
    "triton.backends.compiler": "GPUTarget",
    "triton.compiler.compiler": "CompiledKernel._init_handles IRSource compile make_backend",
    "triton.runtime._allocation": "_profile_allocator.set",
    "triton.runtime.cache": "get_override_manager triton_key",
    "triton.runtime.driver": "driver",
    "triton._C.libtriton": "ir.context ir.load_dialects ir.parse_mlir_module ir.pass_manager llvm.to_module "
    "passes.common.add_cse passes.convert.add_scf_to_cf passes.gluon.add_inliner "
    "proton.BUFFER_STRATEGY.CIRCULAR proton.BUFFER_TYPE.GLOBAL proton.BUFFER_TYPE.SHARED proton.GRANULARITY.WARP "
    "proton.METRIC_TYPE.CYCLE proton.SAMPLING_STRATEGY.NONE proton.SAMPLING_STRATEGY.SELECTIVE "
    "proton.add_allocate_proton_shared_memory proton.add_convert_proton_amd_gpu_to_llvm "
    "proton.add_convert_proton_nvidia_gpu_to_llvm proton.add_convert_proton_to_protongpu proton.add_sched_barriers "
    "proton.add_schedule_buffer_store proton.get_scope_id_names proton.load_dialects",
}
"""Names without a promise of stability that we use from every Triton, by module."""

PassAdder = Callable[[Any], None]
"""Function that adds passes to a Triton pass manager."""


@dataclass(frozen=True, slots=True)
class TritonVersion:
    """A kind of Triton, from version ``first`` up to the next row's."""

    first: tuple[int, int]
    attach: Callable[[str, PassAdder, PassAdder], AbstractContextManager[None]]
    """``attach(backend, to_llvmir, to_llvm)`` puts our passes into the compiler of a backend (``nvidia`` or ``amd``)
    for as long as the context lasts."""
    buffer_layout: LayoutName
    """Layout of the profile buffer."""
    global_buffer_on: tuple[str, ...]
    """Backends on which Proton can keep records in global memory; on others it keeps them in shared memory."""
    to_llvmir_passes: tuple[str, ...]
    """Proton's last passes in ``to_llvmir``."""
    to_llvm_passes: tuple[str, ...]
    """Proton's first passes in ``to_llvm``."""
    offset_bits: int | None
    """Bits in which the lowered code computes where a CTA's row of the buffer begins; None if all CTAs must record,
    because their rows have no times."""
    run_tag: tuple[str, ...]
    """Arguments of a pass manager's ``run`` after the module."""
    needs: tuple[str, ...]
    """Names that this kind needs in addition to ``_ALWAYS_NEEDED``, as ``module:name``."""


@contextmanager
def _attach_to_class(backend: str, to_llvmir: PassAdder, to_llvm: PassAdder) -> Iterator[None]:
    """Add the passes by the attribute ``instrumentation`` of the backend's compiler class, for Triton up to 3.8."""
    from triton._C.libtriton import proton
    from triton.backends import backends

    class Points:
        def load_dialects(self, context: Any) -> None:
            proton.load_dialects(context)

        def patch(self, point: str, pass_manager: Any, context: Any) -> None:
            self.load_dialects(context)
            passes: Mapping[str, PassAdder] = {"ttgpuir_to_llvmir": to_llvmir, "llvmir_to_llvm": to_llvm}
            if point in passes:
                passes[point](pass_manager)

    compiler = backends[backend].compiler
    before = compiler.instrumentation
    compiler.instrumentation = Points()
    try:
        yield
    finally:
        compiler.instrumentation = before


@contextmanager
def _attach_to_registry(backend: str, to_llvmir: PassAdder, to_llvm: PassAdder) -> Iterator[None]:
    """Add the passes by Triton 3.9's registry, which has one callback for each point and backend."""
    from triton import _instrumentation
    from triton._C.libtriton import proton

    callbacks: Mapping[str, Callable[..., None]] = {
        "load-dialects": proton.load_dialects,
        "ttgpuir-to-llvmir": to_llvmir,
        "llvmir-to-llvm": to_llvm,
    }
    # Other instrumentation (a sanitizer's, Proton's own) would clash with ours, so it is removed meanwhile.
    before = {
        point: _instrumentation._callbacks.pop((point, backend))
        for point in callbacks
        if (point, backend) in _instrumentation._callbacks
    }
    for point, callback in callbacks.items():
        _instrumentation.register_instrumentation(point=point, backend=backend, callback=callback)
    try:
        yield
    finally:
        for point in callbacks:
            _instrumentation.unregister_instrumentation(point=point, backend=backend)
        for point, callback in before.items():
            _instrumentation.register_instrumentation(point=point, backend=backend, callback=callback)


_OTHER_NAME = "kernel_under_another_name"


@contextmanager
def _attach_and_inline(backend: str, to_llvmir: PassAdder, to_llvm: PassAdder) -> Iterator[None]:
    """Add the passes for Triton 3.5, and inline helper functions before them.

    Proton lowers only modules of one function, and Triton 3.5, unlike later ones, has not inlined helpers by then. Its
    Proton also ignores functions with two underscores in their name, so such a kernel is renamed meanwhile.
    """
    from triton._C.libtriton import ir
    from triton.backends import backends

    compiler = backends[backend].compiler
    lower = vars(compiler)["make_llir"]

    def make_llir(self: Any, module: Any, *arguments: Any) -> Any:
        names: set[str] = set()
        module.walk(lambda operation: names.add(operation.get_name()))
        if CALL in names:
            inline_helpers(module)
        name = module.get_entry_func_name()
        if "__" not in name:
            return lower.__get__(self, compiler)(module, *arguments)
        module.get_function(name).set_attr("sym_name", ir.builder(module.context).get_string_attr(_OTHER_NAME))
        return lower.__get__(self, compiler)(module, *arguments).replace(_OTHER_NAME, name)

    compiler.make_llir = make_llir
    try:
        with _attach_to_class(backend, to_llvmir, to_llvm):
            yield
    finally:
        compiler.make_llir = lower


_IN_CLASS = (
    "triton.backends.nvidia.compiler:CUDABackend.instrumentation",
    "triton.backends.amd.compiler:HIPBackend.instrumentation",
)
_LOWERED_BY = (
    "triton.backends.nvidia.compiler:CUDABackend.make_llir",
    "triton.backends.amd.compiler:HIPBackend.make_llir",
)
_BY_PTX = ("triton.backends.nvidia.compiler:CUDABackend.make_ptx",)
_IN_REGISTRY = (
    "triton._instrumentation:register_instrumentation",
    "triton._instrumentation:unregister_instrumentation",
    "triton._instrumentation:_callbacks",
)
# Triton 3.8 made this pass part of the lowering before it. In 3.5, the pass accepts only a module of one function, and
# would count the functions that later passes declare for printing or AMD's mathematics, so it comes before those.
_SCRATCH_PASS = ("add_allocate_proton_global_scratch_buffer",)

_TAG = ("kprof_inject",)
_ALL = ("nvidia", "amd")

_VERSIONS = (
    TritonVersion((3, 5), _attach_and_inline, "untimed", (), _SCRATCH_PASS, (), None, (), (*_IN_CLASS, *_LOWERED_BY)),
    TritonVersion((3, 6), _attach_to_class, "timed", ("nvidia",), (), _SCRATCH_PASS, 32, _TAG, (*_IN_CLASS, *_BY_PTX)),
    TritonVersion((3, 7), _attach_to_class, "timed", _ALL, (), _SCRATCH_PASS, 32, _TAG, (*_IN_CLASS, *_BY_PTX)),
    TritonVersion((3, 8), _attach_to_class, "timed", _ALL, (), (), 64, _TAG, (*_IN_CLASS, *_BY_PTX)),
    TritonVersion((3, 9), _attach_to_registry, "timed", _ALL, (), (), 64, _TAG, (*_IN_REGISTRY, *_BY_PTX)),
)


def installed_version() -> TritonVersion:
    """Return the row of the imported Triton; the last row if it is newer than all.

    Raises ``KprofError`` if it is older than the first row, or lacks a name that we need.
    """
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    row = max((row for row in _VERSIONS if row.first <= version), key=lambda row: row.first, default=None)
    if row is None:
        raise KprofError(
            f"Triton {triton.__version__} is not supported",
            hint=f"install Triton {_dotted(_VERSIONS[0].first)} or later",
        )
    passes = [f"triton._C.libtriton:proton.{name}" for name in (*row.to_llvmir_passes, *row.to_llvm_passes)]
    always = [f"{module}:{name}" for module, names in _ALWAYS_NEEDED.items() for name in names.split()]
    missing = [name for name in (*always, *row.needs, *passes) if not _exists(name)]
    if missing:
        listed = ", ".join(missing).replace(":", ".")
        raise KprofError(
            f"Triton {triton.__version__} lacks what kprof-inject needs from it: {listed}",
            hint=f"versions {_dotted(_VERSIONS[0].first)} to {_dotted(_VERSIONS[-1].first)} are known to work; use one "
            "of them, or a newer kprof-inject",
        )
    return row


def inline_helpers(module: Any) -> None:
    """Lower a Triton module until its helper functions are inlined; Proton accepts only one function."""
    from triton._C.libtriton import ir, passes

    pass_manager = ir.pass_manager(module.context)
    passes.convert.add_scf_to_cf(pass_manager)
    passes.gluon.add_inliner(pass_manager)
    pass_manager.run(module, *installed_version().run_tag)


def _exists(name: str) -> bool:
    module, attributes = name.split(":")
    try:
        functools.reduce(getattr, attributes.split("."), importlib.import_module(module))
    except (ImportError, AttributeError):
        return False
    return True


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
