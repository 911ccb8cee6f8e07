"""Puts the session's step into the program's compiler. The start-up hook calls it when the program imports Triton."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from kprof_inject.runtime import faults, process_events
from kprof_inject.runtime.faults import say
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session

ENVIRONMENT = {
    # A kernel that a worker process compiled arrives as a pickle: records would come without a launcher for them.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # Launches by a path that knows neither Triton's launcher nor its profile buffer.
    "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0",
}
"""For the program: Inductor, torch's compiler, compiles in its own process, and launches through Triton."""

INDUCTOR_AUTOTUNER = "torch._inductor.runtime.triton_heuristics"
"""The module of Inductor's own autotuner."""

_WORKER = "torch._inductor.compile_worker"


def packages_binaries() -> bool:
    """True if Inductor hands binaries to C++ code, which launches them by itself."""
    config = sys.modules.get("torch._inductor.config")
    return bool(getattr(config, "cpp_wrapper", False))


def is_compile_worker() -> bool:
    """True in a process that compiles kernels for another one (the program set its own number of them)."""
    words = " ".join(sys.orig_argv).replace("/", ".")
    utilities = sys.modules.get(f"{_WORKER}.utils")
    return _WORKER in words or (utilities is not None and not utilities.in_toplevel_process())


# By module: what begins a session, and what works on one. Triton up to 3.6 has no ``data``.
_STARTS = {"triton.profiler.profile": ("start",)}
_ON_SESSIONS = {
    "triton.profiler.profile": ("activate", "deactivate", "finalize"),
    "triton.profiler.data": ("get", "get_msgpack", "advance_phase", "is_phase_complete", "clear"),
}

PROTON_MODULES = tuple(_ON_SESSIONS)
"""The modules for ``withhold_sessions``."""


def withhold_sessions(module: ModuleType) -> None:
    """Turn the calls that begin a session of Proton's, or work on one, into calls that do nothing and return None.

    There is one Proton in a process. Its own command line treats a script's ``proton.start`` in the same way.

    Call it right after the module was executed, before anyone copies a name out of it. Scopes and states need
    nothing: without a session they do nothing by themselves.
    """
    for names, stand_in in ((_STARTS, _warning), (_ON_SESSIONS, _silent)):
        for name in names.get(module.__name__, ()):
            if hasattr(module, name):
                setattr(module, name, stand_in(getattr(module, name)))


def _silent(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def nothing(*args: Any, **kwargs: Any) -> None:
        return None

    return nothing


def _warning(original: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def warn(*args: Any, **kwargs: Any) -> None:
        _warn_once()

    return warn


@functools.cache
def _warn_once() -> None:
    say("the program's proton.start() does nothing here; run the program on its own for Proton's profile")


_STEPS = {
    "dump": "kprof_inject.runtime.dump_step",
    "run": "kprof_inject.runtime.run_step",
    "causal": "kprof_inject.runtime.causal_step",
}
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
        process_events.watch_for_the_end()
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
        autotuning = importlib.import_module("kprof_inject.runtime.launch.autotuning")
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
