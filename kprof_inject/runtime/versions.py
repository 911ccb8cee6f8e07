"""Differences between the Triton versions that we support, one row for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import triton

from kprof_inject.capture.schema import LayoutName
from kprof_inject.errors import KprofError
from kprof_inject.ttgir.dialect import CALL

PassAdder = Callable[[Any], None]  # function that adds passes to a Triton pass manager


@dataclass(frozen=True, slots=True)
class TritonVersion:
    """A kind of Triton, from version ``first`` up to the next row's."""

    first: tuple[int, int]
    attach: Callable[[str, PassAdder, PassAdder], AbstractContextManager[None]]
    """``attach(backend, to_llvmir, to_llvm)`` puts our passes into the compiler of a backend (``nvidia`` or ``amd``)
    for as long as the context lasts."""
    buffer_layout: LayoutName  # layout of the profile buffer
    global_buffer_on: tuple[str, ...]
    """Backends on which Proton can keep records in global memory; on others it keeps them in shared memory."""
    to_llvmir_passes: tuple[str, ...]  # Proton's last passes in ``to_llvmir``
    to_llvm_passes: tuple[str, ...]  # Proton's first passes in ``to_llvm``
    offset_bits: int | None
    """Bits in which the lowered code computes where a CTA's row of the buffer begins; None if all CTAs must record,
    because their rows have no times."""
    run_tag: tuple[str, ...]  # arguments of a pass manager's ``run`` after the module


@contextmanager
def _attach_to_class(backend: str, to_llvmir: PassAdder, to_llvm: PassAdder) -> Iterator[None]:
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


# Triton 3.8 made this pass part of the lowering before it. In 3.5, the pass accepts only a module of one function, and
# would count the functions that later passes declare for printing or AMD's mathematics, so it comes before those.
_SCRATCH_PASS = ("add_allocate_proton_global_scratch_buffer",)

_TAG = ("kprof_inject",)
_ALL = ("nvidia", "amd")

_VERSIONS = (
    TritonVersion((3, 5), _attach_and_inline, "untimed", (), _SCRATCH_PASS, (), None, ()),
    TritonVersion((3, 6), _attach_to_class, "timed", ("nvidia",), (), _SCRATCH_PASS, 32, _TAG),
    TritonVersion((3, 7), _attach_to_class, "timed", _ALL, (), _SCRATCH_PASS, 32, _TAG),
    TritonVersion((3, 8), _attach_to_class, "timed", _ALL, (), (), 64, _TAG),
    TritonVersion((3, 9), _attach_to_registry, "timed", _ALL, (), (), 64, _TAG),
)


def installed_version() -> TritonVersion:
    """Return the row of the imported Triton; the last row if it is newer than all.

    Raises ``KprofError`` if it is older than the first row.
    """
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    row = max((row for row in _VERSIONS if row.first <= version), key=lambda row: row.first, default=None)
    if row is None:
        raise KprofError(
            f"Triton {triton.__version__} is not supported",
            hint=f"install Triton {'.'.join(map(str, _VERSIONS[0].first))} or later",
        )
    return row


def inline_helpers(module: Any) -> None:
    """Lower a Triton module until its helper functions are inlined; Proton accepts only one function."""
    from triton._C.libtriton import ir, passes

    pass_manager = ir.pass_manager(module.context)
    passes.convert.add_scf_to_cf(pass_manager)
    passes.gluon.add_inliner(pass_manager)
    pass_manager.run(module, *installed_version().run_tag)
