"""Waits for the program to import Triton, then puts the session's step into its compiler.

Imports the standard library alone until Triton is there.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

from kprof_inject.runtime import endings
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.inductor import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.proton_scripts import PROTON_MODULES, withhold_sessions
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
        endings.install()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        sys.stderr.write(f"kprof-inject: not active in this process: {error}\n")
        return
    wait = {"triton": lambda triton: _install_step(session, report, triton)}
    wait |= dict.fromkeys(PROTON_MODULES, lambda module: _withhold_sessions(report, module))
    wait[INDUCTOR_AUTOTUNER] = lambda module: _tell_benchmarks(report, module)
    after_import(wait)


def _install_step(session: Session, report: ProcessReport, triton: ModuleType) -> None:
    with report.guard("joining Triton"):
        report.triton_version = str(triton.__version__)
        report.write()
        # Says what a Triton that we do not know lacks; the step would fail at the first such name.
        importlib.import_module("kprof_inject.runtime.versions").installed_version()
        importlib.import_module(_STEPS[session.step]).install(session, report)


def _tell_benchmarks(report: ProcessReport, module: ModuleType) -> None:
    with report.guard("joining Inductor"):
        autotuning = importlib.import_module("kprof_inject.runtime.launching.autotuning")
        autotuning.install_for_inductor(module)
        autotuning.report_inductors_choices(module, report)


def _withhold_sessions(report: ProcessReport, module: ModuleType) -> None:
    with report.guard("standing in for Proton"):
        withhold_sessions(module)
