"""What differs between the Triton versions that we support: one row for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import triton

from kprof_inject.errors import KprofError

PassAdder = Callable[[Any], None]
"""Adds passes to a pass manager of Triton's."""


@dataclass(frozen=True, slots=True)
class TritonVersion:
    """One kind of Triton. ``attach(backend, to_llvmir, to_llvm)`` puts our passes into the compiler of a backend
    (``nvidia`` or ``amd``) for as long as the context lasts. ``buffer_layout`` is the name of the layout of the
    profile buffer in ``capture.layouts``."""

    first: tuple[int, int]
    attach: Callable[[str, PassAdder, PassAdder], AbstractContextManager[None]]
    buffer_layout: str


@contextmanager
def _attach_to_class(backend: str, to_llvmir: PassAdder, to_llvm: PassAdder) -> Iterator[None]:
    """Triton up to 3.8 asks the attribute ``instrumentation`` of the backend's compiler class."""
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
    """Triton 3.9 keeps one callback for each point and backend."""
    from triton import _instrumentation
    from triton._C.libtriton import proton

    callbacks: Mapping[str, Callable[..., None]] = {
        "load-dialects": proton.load_dialects,
        "ttgpuir-to-llvmir": to_llvmir,
        "llvmir-to-llvm": to_llvm,
    }
    # Someone else's instrumentation (a sanitizer's, Proton's own) would clash with ours: set it aside.
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


_VERSIONS = (
    TritonVersion((3, 6), _attach_to_class, "timed"),
    TritonVersion((3, 9), _attach_to_registry, "timed"),
)


def installed_version() -> TritonVersion:
    """The row for the Triton that is imported. Raises ``KprofError`` for one older than the oldest row."""
    major, minor = (int(part) for part in triton.__version__.split(".")[:2])
    known = [version for version in _VERSIONS if version.first <= (major, minor)]
    if not known:
        oldest = ".".join(map(str, _VERSIONS[0].first))
        raise KprofError(
            f"Triton {triton.__version__} is not supported",
            hint=f"install Triton {oldest} or later",
        )
    return known[-1]
