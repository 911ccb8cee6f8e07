"""Waits for the program to import Triton, then puts the session's step into its compiler.

Imports the standard library alone until Triton is there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session

_STEPS = {"dump": "kprof_inject.runtime.dump", "run": "kprof_inject.runtime.override"}
"""The module of each step; its ``install(session, report)`` is called once Triton is imported."""


def install() -> None:
    """Join the session that the environment names, if there is one. Never raises."""
    try:
        session = Session.from_environment()
        if session is None:
            return
        report = ProcessReport(session.reports)
        report.write()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        sys.stderr.write(f"kprof-inject: not active in this process: {error}\n")
        return
    sys.meta_path.insert(0, _AfterImport("triton", lambda: _install_step(session, report)))


def _install_step(session: Session, report: ProcessReport) -> None:
    with report.guard("joining Triton"):
        report.triton_version = str(sys.modules["triton"].__version__)
        report.write()
        importlib.import_module(_STEPS[session.step]).install(session, report)


class _AfterImport(MetaPathFinder):
    """Calls back once, after a module was executed."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = _CallingLoader(spec.loader, self._callback)
                return spec
        return None


class _CallingLoader(Loader):
    """Another loader, and a call after it is done."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # Put back what the module would see without us (resources, ``inspect``).
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback()
