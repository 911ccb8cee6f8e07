"""The step of a program that is watched: one launch of each kernel is recorded every so often, within a budget.

Everything but the recorded launches themselves happens in a thread of ours: planning, compiling and writing.
"""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from kprof_inject.capture.record_costs import TRUSTED_PERCENT
from kprof_inject.capture.schema import Grid
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.compiler import Compile
from kprof_inject.runtime.compiling.instrumented_kernel import remove_binaries
from kprof_inject.runtime.compiling.planned_kernel import PlannedKernel, RunStep, why_not_recorded
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.devices.process_device import devices_of_process
from kprof_inject.runtime.dump_step import install_step
from kprof_inject.runtime.hook import INDUCTOR_AUTOTUNER
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launch.launch_capture import LaunchCapture, NoReplays
from kprof_inject.runtime.launch.launch_choice import WatchChoice
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.recorded_launch import RecordingBuild
from kprof_inject.runtime.launch.triton_wrapping import InductorLaunchers, Load, around_load
from kprof_inject.runtime.launch.watched_launcher import WatchedLauncher
from kprof_inject.runtime.process_events import MAX_SECONDS_AT_END, at_end, in_forked_child
from kprof_inject.runtime.process_report import ProcessReport, WatchNote
from kprof_inject.runtime.run_step import PlansMadeNow, inserter_of
from kprof_inject.runtime.session import Session
from kprof_inject.workspace import DumpedKernel, Workspace

_WAKE_S = 0.25
# A kernel that is not launched within this time is not in the capture.
_PATIENCE_S = 2.0
# Kernels that a program launches first are often those of its start.
_FIRST_S = 1.0


def install(session: Session, report: ProcessReport) -> None:
    """Install the step. Called once, right after the import of Triton."""
    device = devices_of_process()
    saver = LaunchSaver(session.saved, session.launches, device, report)
    capture = LaunchCapture(session, report, device, NoReplays(), saver)
    watcher = _Watcher(Workspace(Path(session.workspace)), session.watch, capture, report)
    step = _WatchStep(session, report, device, capture, PlansMadeNow(session, report, inserter_of(session)), watcher)
    install_step(step.compile, session, report)
    after_import({INDUCTOR_AUTOTUNER: functools.partial(_note_inductor, step, report)})
    at_end(functools.partial(remove_binaries, Workspace(Path(session.workspace))))
    at_end(watcher.finish)


def _note_inductor(step: _WatchStep, report: ProcessReport, module: Any) -> None:
    with report.guard("joining Inductor"):
        step.inductor.note(module)


class _WatchStep(RunStep):
    """Run step whose kernels have records only now and then; they are planned when a launch is wanted first."""

    def __init__(
        self,
        session: Session,
        report: ProcessReport,
        device: Device,
        capture: LaunchCapture,
        plans: PlansMadeNow,
        watcher: _Watcher,
    ) -> None:
        super().__init__(session, report, device, capture, plans)
        self._watcher = watcher
        self.inductor = InductorLaunchers()

    def prepare(self, variant: DumpedKernel, kernel: Any, plain: Compile) -> None:
        if not fnmatchcase(variant.name, self.session.kernel):
            self.report.add_kernel(variant.variant, variant.name, "passed over")
        elif reason := why_not_recorded(variant):
            self.report.add_kernel(variant.variant, variant.name, "left alone", reason)
        else:
            around_load(kernel, functools.partial(self._load, variant, plain))

    def _load(self, variant: DumpedKernel, plain: Compile, kernel: Any, load: Load) -> None:
        load()
        with self.report.guard("preparing to watch a kernel"):
            self.device.prepare()
            # It is one already if an exception ended an earlier attempt.
            if not isinstance(kernel._run, WatchedLauncher):
                self._watcher.add(_WatchedKernel(self, variant, plain, kernel).launcher)


class _WatchedKernel:
    """Kernel of this process that is planned when a build of it is wanted first."""

    def __init__(self, step: _WatchStep, variant: DumpedKernel, plain: Compile, kernel: Any) -> None:
        """Prepare to watch a loaded kernel."""
        self._step = step
        self._variant = variant
        self._plain = plain
        self._kernel = weakref.ref(kernel)
        self._planned: PlannedKernel | None = None
        self._is_left_alone = False
        self.launcher = WatchedLauncher(
            kernel, variant.variant, self, step.captures, step.max_launch_bytes, step.device, step.inductor
        )

    def build_for(self, grid: Grid, max_bytes: int) -> RecordingBuild:
        """Return a build. See ``Builds``."""
        with self._step.lock:
            planned = self._planned = self._planned or self._plan()
        return planned.build_for(grid, max_bytes)

    def record_less(self, excess: float, grid: Grid) -> bool:
        """Return False: the budget limits what records cost."""
        return False

    def give_up(self, kernel: Any, reason: str) -> None:
        """Report that this kernel is not watched any more."""
        if not self._is_left_alone:  # else the report has a better reason
            self._step.report.add_kernel(self._variant.variant, self._variant.name, "left alone", reason)

    def _plan(self) -> PlannedKernel:
        kernel = self._kernel()
        if kernel is None:
            raise KprofError("the program has dropped it")
        plan = self._step.plans.plan_of(self._variant, kernel)
        if plan is None:
            self._is_left_alone = True
            raise KprofError("it has no plan")
        planned = PlannedKernel(self._step, self._variant, *plan, self._plain)
        planned.leave_out_iterations()
        planned.prepare(kernel)
        return planned


class _Watcher:
    """Thread that requests a launch of each kernel for a capture, as often as the budget allows."""

    def __init__(
        self, workspace: Workspace, choice: WatchChoice, capture: LaunchCapture, report: ProcessReport
    ) -> None:
        self._workspace = workspace
        self._choice = choice
        self._capture = capture
        self._report = report
        in_forked_child(self._begin_in_child)
        self._reset()

    def _begin_in_child(self) -> None:
        """Forget the parent's kernels: a forked child has no thread yet."""
        for launcher in self._launchers:
            launcher.withdraw()
        self._reset()

    def _reset(self) -> None:
        """Return to the state before the first kernel."""
        self._launchers: list[WatchedLauncher] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._folder: Path | None = None
        self._opened_s: float | None = None
        self._request_ns = self._requested_at_ns()
        self._captures = 0
        self._spent_s = self._prepared_s = 0.0

    def add(self, launcher: WatchedLauncher) -> None:
        """Watch a kernel from now on."""
        self._launchers.append(launcher)
        if self._thread is None:
            self._begun_s = time.monotonic()
            self._next_s = self._begun_s + _FIRST_S
            self._thread = threading.Thread(target=self._work, name="kprof-inject-watcher", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """End the thread, and save what it has recorded. Never raises."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stop.set()
        thread.join(MAX_SECONDS_AT_END)
        if not thread.is_alive():
            with self._report.guard("ending the watch"):
                self._close()

    def _work(self) -> None:
        with self._report.guard("watching"):
            while not self._stop.wait(_WAKE_S):
                self._look()
            return
        for launcher in self._launchers:
            launcher.withdraw()

    def _look(self) -> None:
        now_s = time.monotonic()
        self._prepare()
        if self._opened_s is None:
            if now_s >= self._next_s or self._is_capture_requested():
                self._open(now_s)
        elif now_s - self._opened_s >= _PATIENCE_S or not any(self._waiting()):
            self._close()

    def _waiting(self) -> Iterator[bool]:
        return (launcher.is_requested or launcher.missing is not None for launcher in self._launchers)

    def _prepare(self) -> None:
        """Compile the builds that launches lacked, and request these launches again."""
        for launcher in self._launchers.copy():
            if launcher.is_gone:
                self._launchers.remove(launcher)
            elif launcher.missing is not None:
                begun_s = time.monotonic()
                if launcher.prepare() and self._opened_s is not None:
                    self._opened_s = time.monotonic()
                    launcher.request()
                self._prepared_s += time.monotonic() - begun_s

    def _is_capture_requested(self) -> bool:
        request_ns = self._requested_at_ns()
        is_new, self._request_ns = request_ns != self._request_ns, request_ns
        return is_new

    def _requested_at_ns(self) -> int:
        try:
            return os.stat(self._choice.request_file).st_mtime_ns
        except OSError:
            return 0

    def _open(self, now_s: float) -> None:
        self._folder = self._workspace.new_capture_folder().resolve()
        self._capture.go_on_in(self._folder)
        self._opened_s = now_s
        for launcher in self._launchers:
            launcher.request()

    def _close(self) -> None:
        """End the capture, and set the time of the next one, which the budget allows."""
        opened_s, self._opened_s = self._opened_s, None
        for launcher in self._launchers:
            launcher.withdraw()
        if opened_s is None or self._folder is None:
            return
        begun_s = time.thread_time()
        self._capture.finish()
        self._workspace.forget_if_empty(self._folder)
        self._captures += any(launcher.recorded for launcher in self._launchers)
        self._spent_s += self._capture.writing_s + time.thread_time() - begun_s
        for launcher in self._launchers:
            self._spent_s += launcher.host_s + TRUSTED_PERCENT / 100 * launcher.device_s()
            launcher.host_s, launcher.recorded = 0.0, 0
        self._next_s = max(opened_s + self._choice.every_s, self._begun_s + self._spent_s / self._choice.budget)
        seconds = time.monotonic() - self._begun_s
        self._report.note_watched(WatchNote(self._captures, seconds, self._spent_s, self._prepared_s))
