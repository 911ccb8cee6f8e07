"""The step inside the program: dump each kernel when it is compiled, plan its records, and launch it with them.

``dump``, ``run`` and ``profile`` differ in where the plans come from: ``dump`` has none, ``run`` has those that
``insert`` wrote, and ``profile``, like our Python API, makes them when a kernel is compiled.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kprof_inject.insertion import Inserter
from kprof_inject.runtime.compiling.compiler import wrap_compiler
from kprof_inject.runtime.compiling.instrumented_kernel import remove_binaries
from kprof_inject.runtime.compiling.planned_kernel import Plans, Step
from kprof_inject.runtime.compiling.triton_caches import fresh_jit_caches, take_from
from kprof_inject.runtime.devices.device import Device, devices_of_process
from kprof_inject.runtime.hook import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.clean_times import CleanTimes
from kprof_inject.runtime.launch.graph_runs import watch_graphs_of
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.timing import watch_programs_events
from kprof_inject.runtime.plans import DumpsAlone, PlansMadeNow, WorkspacePlans
from kprof_inject.runtime.process_events import at_end
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import Session
from kprof_inject.runtime.torch_tracer import TorchTracer
from kprof_inject.workspace import Workspace


def install(session: Session, report: ProcessReport) -> None:
    """Install the session's step. Called once, right after the import of Triton."""
    times = None if session.step == "run" else CleanTimes(Path(session.workspace), report)
    if session.step == "dump":
        _watch(Step(session, report, DumpsAlone(session, report), times=times), session, report)
    else:
        _install_recording(session, report, times)
    if times is not None:
        at_end(times.finish)


def _install_recording(session: Session, report: ProcessReport, times: CleanTimes | None) -> None:
    device = devices_of_process()
    saver = LaunchSaver(session.saved, session.recording.launches, device, report)
    capture = LaunchCapture(session, report, device, saver)
    trace = TorchTracer(Path(session.reports), report) if session.recording.torch_trace else None
    if trace is not None:
        at_end(trace.finish)
    plans: Plans
    if session.runs_once:
        plans = PlansMadeNow(session, report, Inserter(session.selectors, session.style), trace)
    else:
        plans = WorkspacePlans(session, report, trace)
    _watch(Step(session, report, plans, device, capture, times), session, report)
    if session.saved.variants != ():
        after_import({"torch.cuda.graphs": watch_graphs_of})
    at_end(functools.partial(remove_binaries, Workspace(Path(session.workspace))))
    at_end(capture.finish, capture.resume)


def _watch(step: Step, session: Session, report: ProcessReport) -> None:
    """Call a step for every compilation, and watch what matters to all steps."""
    watch_programs_events()
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    triton_wrapping.report_choices(report)
    wrap_compiler(step.compile)
    if session.programs_cache:
        take_from(Path(session.programs_cache))
    at_end(report.note_end, report.note_resumed)
    at_end(functools.partial(_note_gpu, report, os.getpid()))


def _note_gpu(report: ProcessReport, pid: int) -> None:
    """Report whether the program could have used a GPU, if this is process ``pid`` and it has imported torch.

    Its forked children report nothing, as they would see the same.
    """
    torch = sys.modules.get("torch")
    if torch is not None and os.getpid() == pid:
        with report.guard("looking for a GPU"):
            report.gpu = bool(torch.cuda.is_available())
            report.write()


class LiveCapture:
    """Captures to the workspace, one after another: taking one begins the next."""

    def __init__(self, session: Session, report: ProcessReport, device: Device) -> None:
        """Begin the first capture."""
        self.enabled = True
        self._workspace = Workspace(Path(session.workspace))
        self._session = session
        self._report = report
        self._device = device
        self._saver = LaunchSaver(session.saved, session.recording.launches, device, report)
        self._folder, self._current = self._next()

    def current(self) -> LaunchCapture | None:
        """Return the capture that takes launches now, or None after the end of the recording."""
        return self._current.current() if self.enabled else None

    def take(self) -> Path:
        """End the present capture, begin the next, and return the ended capture's folder.

        The folder exists if anything was launched. This waits for the device.
        """
        folder = self._folder
        self._current.finish()
        self._workspace.forget_if_empty(folder)
        self._folder, self._current = self._next()
        return folder

    def close(self) -> None:
        """End the recording, and drop the present capture, which will not be taken."""
        self._workspace.forget_if_empty(self._folder)

    def _next(self) -> tuple[Path, LaunchCapture]:
        folder = self._workspace.new_capture_folder().resolve()
        self._saver.save_to(self._workspace.launches_folder(folder))
        session = replace(self._session, capture=str(folder))
        return folder, LaunchCapture(session, self._report, self._device, self._saver)


@contextmanager
def live(session: Session, report: ProcessReport, inserter: Inserter) -> Iterator[LiveCapture]:
    """Record the kernels that this process launches in this context, as ``session`` says."""
    device = devices_of_process()
    capture = LiveCapture(session, report, device)
    step = Step(session, report, PlansMadeNow(session, report, inserter), device, capture)
    _install_once()
    unwrap = wrap_compiler(step.compile)
    try:
        with fresh_jit_caches():
            yield capture
    finally:
        # The program may keep recorded kernels, whose further launches are not captured.
        capture.enabled = False
        capture.close()
        unwrap()
        remove_binaries(Workspace(Path(session.workspace)))


@functools.cache
def _install_once() -> None:
    triton_wrapping.wrap_loading()
    triton_wrapping.mark_benchmarks()
    after_import({INDUCTOR_AUTOTUNER: triton_wrapping.mark_inductors_benchmarks})
