"""Install the session's step in the program's compiler. The start-up hook calls this on the import of Triton."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kprof_inject.runtime import faults, process_events
from kprof_inject.runtime.faults import say
from kprof_inject.runtime.imports import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import SESSION_VARIABLE, Session

WITHHELD = {
    "triton.profiler.profile": ("start", "activate", "deactivate", "finalize"),
    "triton.profiler.data": ("get", "get_msgpack", "advance_phase", "is_phase_complete", "clear"),
}
"""Proton's functions that start a session or need one, by module. Triton up to 3.6 has no ``data``."""


def imported(module: ModuleType, stderr: Any) -> None:
    """Install what belongs to a module that the program has just imported. Never raises.

    ``stderr`` identifies the file that was the process's stderr at its start.
    """
    faults.STDERR = stderr
    if (joined := _join()) is not None:
        _ACTIONS[module.__name__](module, *joined)


@functools.cache
def _join() -> tuple[Session, ProcessReport] | None:
    """Join the session that the environment names, once; print a message and return None if it cannot be read."""
    path = os.environ.get(SESSION_VARIABLE)
    if not path:
        return None
    try:
        session = Session.read(Path(path))
        report = ProcessReport(session.reports)
        report.write()
        process_events.watch_for_the_end()
    except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
        say(f"not active in this process: {error}")
        return None
    return session, report


def _install_step(triton: ModuleType, session: Session, report: ProcessReport) -> None:
    with report.guard("joining Triton"):
        report.note_triton(str(triton.__version__))
        # Says that this Triton is too old, where importing the step would fail at some name.
        importlib.import_module("kprof_inject.runtime.versions").installed_version()
        importlib.import_module("kprof_inject.runtime.step").install(session, report)


def _mark_benchmarks(module: ModuleType, session: Session, report: ProcessReport) -> None:
    with report.guard("joining Inductor"):
        wrapping = importlib.import_module("kprof_inject.runtime.launch.triton_wrapping")
        wrapping.mark_inductors_benchmarks(module)
        wrapping.report_inductors_choices(module, report)


def _withhold_sessions(module: ModuleType, session: Session, report: ProcessReport) -> None:
    """Replace the functions that start a Proton session, or need one, with functions that do nothing and return None.

    There is one Proton in a process. Its own command line treats a script's ``proton.start`` in the same way. No
    other module has imported names from this one yet. Scopes and states are not replaced: without a session they do
    nothing.
    """
    with report.guard("standing in for Proton"):
        for name in WITHHELD[module.__name__]:
            if hasattr(module, name):
                setattr(module, name, _withheld(getattr(module, name)))


def _withheld(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def call(*_: Any, **__: Any) -> None:
        if original.__name__ == "start":
            _say_once(_DOES_NOTHING)

    return call


_say_once = functools.cache(say)
_DOES_NOTHING = (
    "the program's proton.start() does nothing under kprof-inject; run the program on its own for Proton's profile"
)


_ACTIONS = {
    "triton": _install_step,
    INDUCTOR_AUTOTUNER: _mark_benchmarks,
    **dict.fromkeys(WITHHELD, _withhold_sessions),
}
"""Actions after the import of a module; ``startup/sitecustomize.py`` waits for these modules."""
