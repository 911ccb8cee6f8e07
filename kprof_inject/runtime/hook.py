"""Puts the session's step into the program's compiler. The start-up hook calls it when the program imports Triton."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

from kprof_inject.runtime import endings, faults
from kprof_inject.runtime.inductor import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.proton_scripts import PROTON_MODULES, withhold_sessions
from kprof_inject.runtime.session import Session

_STEPS = {"dump": "kprof_inject.runtime.dump", "run": "kprof_inject.runtime.override"}
"""The module of each step; its ``install(session, report)`` is called once Triton is imported."""


def imported(module: ModuleType, stderr: Any) -> None:
    """Do what has to be done now that the program has imported this module. Never raises. ``stderr`` is which file the
    process began with as its stderr."""
    faults.STDERR = stderr
    joined = _join()
    if joined is not None:
        session, report = joined
        _DOING[module.__name__](module, session, report)


@functools.cache
def _join() -> tuple[Session, ProcessReport] | None:
    """Join the session that the environment named, once; None if it cannot be read, which is said."""
    try:
        session = Session.from_environment()
        if session is None:
            return None
        report = ProcessReport(session.reports)
        report.write()
        endings.install()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        faults.say(f"not active in this process: {error}")
        return None
    return session, report


def _install_step(triton: ModuleType, session: Session, report: ProcessReport) -> None:
    with report.guard("joining Triton"):
        report.triton_version = str(triton.__version__)
        report.write()
        # Says what a Triton that we do not know lacks; the step would fail at the first such name.
        importlib.import_module("kprof_inject.runtime.versions").installed_version()
        importlib.import_module(_STEPS[session.step]).install(session, report)


def _tell_benchmarks(module: ModuleType, session: Session, report: ProcessReport) -> None:
    with report.guard("joining Inductor"):
        autotuning = importlib.import_module("kprof_inject.runtime.launching.autotuning")
        autotuning.install_for_inductor(module)
        autotuning.report_inductors_choices(module, report)


def _withhold_sessions(module: ModuleType, session: Session, report: ProcessReport) -> None:
    with report.guard("standing in for Proton"):
        withhold_sessions(module)


_DOING = {
    "triton": _install_step,
    INDUCTOR_AUTOTUNER: _tell_benchmarks,
    **dict.fromkeys(PROTON_MODULES, _withhold_sessions),
}
"""What is done once a module was imported: ``startup/sitecustomize.py`` waits for these."""
