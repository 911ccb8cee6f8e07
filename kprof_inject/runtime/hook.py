"""Waits for the program to import Triton, then puts the session's step into its compiler.

Imports the standard library alone until Triton is there.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from kprof_inject.runtime import endings
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.proton_scripts import PROTON_MODULES, withhold_sessions
from kprof_inject.runtime.session import Session

_INDUCTOR_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"

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
        endings.install()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        sys.stderr.write(f"kprof-inject: not active in this process: {error}\n")
        return
    wait = {"triton": lambda triton: _install_step(session, report, triton)}
    wait |= dict.fromkeys(PROTON_MODULES, lambda module: _withhold_sessions(report, module))
    wait[_INDUCTOR_AUTOTUNER] = lambda module: _tell_benchmarks(report, module)
    sys.meta_path.insert(0, _AfterImport(wait))


def _install_step(session: Session, report: ProcessReport, triton: ModuleType) -> None:
    with report.guard("joining Triton"):
        report.triton_version = str(triton.__version__)
        report.write()
        # Says what a Triton that we do not know lacks; the step would fail at the first such name.
        importlib.import_module("kprof_inject.runtime.versions").installed_version()
        importlib.import_module(_STEPS[session.step]).install(session, report)


def _tell_benchmarks(report: ProcessReport, module: ModuleType) -> None:
    with report.guard("joining Inductor"):
        importlib.import_module("kprof_inject.runtime.autotuning").install_for_inductor(module, report)


def _withhold_sessions(report: ProcessReport, module: ModuleType) -> None:
    with report.guard("standing in for Proton"):
        withhold_sessions(module)


class _AfterImport(MetaPathFinder):
    """Calls back once for each of some modules, after it was executed."""

    def __init__(self, callbacks: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = dict(callbacks)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._callbacks:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                # Who looks for a module may never import it: the callback stays until it was executed.
                spec.loader = _CallingLoader(spec.loader, self._executed)
                return spec
        return None

    def _executed(self, module: ModuleType) -> None:
        callback = self._callbacks.pop(module.__name__, None)
        if callback is not None:
            callback(module)


class _CallingLoader(Loader):
    """Another loader, and a call after it is done."""

    def __init__(self, loader: Loader, callback: Callable[[ModuleType], None]) -> None:
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
        self._callback(module)
