"""Capture a saved launch with records, as the run step captures a program's launches."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from triton.compiler.compiler import CompiledKernel

from kprof_inject.capture.measurements import L2Contents
from kprof_inject.capture.resources import KernelResources
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.builds import BuildSource
from kprof_inject.runtime.compiling.delayed_builds import compile_text
from kprof_inject.runtime.compiling.planned_kernel import Plan, PlannedKernel, RunStep
from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.experiments.l2_contents import ReadingDevice, contents_as_in_program, l2_fills
from kprof_inject.runtime.experiments.loaded_launch import LoadedLaunch
from kprof_inject.runtime.launch import triton_wrapping
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launch_saver import LaunchSaver
from kprof_inject.runtime.launch.launcher import own_scratch
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.runtime.session import NO_SAVED_LAUNCHES, Session
from kprof_inject.workspace import DumpedKernel, Workspace

_CLEAN_LAUNCHES = 30


class _NoPlans:
    """Plans of the kernels that this process compiles from source: there are none."""

    def plan_of(self, variant: DumpedKernel, kernel: Any) -> Plan | None:
        """Return None."""
        return None

    def fewer(self, dumped: DumpedKernel, plan: str) -> None:
        """Return None."""
        return None


class _SavedKernel(PlannedKernel):
    """Planned kernel that is compiled from the text of its instrumented TTGIR, because its source is not here."""

    def _compile_planned(self, effects: ExitStack) -> Any:
        workspace, kernel = self._step.workspace, self._dumped
        folder = workspace.recorded_builds_folder / f"{kernel.variant}.compiled"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        compile_text(workspace.override_path(kernel).read_text(), kernel.info, folder)
        group = {made.name: str(made) for made in sorted(folder.iterdir())}
        return CompiledKernel(BuildSource.of(kernel.info), group, "")


def capture_launch(
    launch: LoadedLaunch, clean: Any, device: ReadingDevice, session_path: Path, times: int
) -> L2Contents:
    """Launch a saved launch with the records that are planned in the session's workspace, and save their buffers.

    ``clean`` is the kernel without records, which is timed before. Returns what the L2 held when each launch began.
    Raises ``KprofError`` if the kernel cannot be recorded.
    """
    session = Session.read(session_path)
    workspace, report = Workspace(Path(session.workspace)), ProcessReport(session.reports)
    dumped = workspace.kernel(launch.saved.record.variant)
    scope_table = workspace.scope_table(dumped.variant)
    if scope_table is None:
        raise KprofError(f"{dumped.name} has no planned records", hint="insert some")
    sys.argv = [str(launch.saved.folder)]  # the capture says what was run
    with own_scratch(device), l2_fills(device, launch) as fills:
        l2 = contents_as_in_program(launch, clean, device, fills, _CLEAN_LAUNCHES)
        clean_run = _clean_run(launch, clean, device, fills[l2])
        workspace.write_clean_run(dumped.variant, str(os.getpid()), clean_run)
        saver = LaunchSaver(NO_SAVED_LAUNCHES, session.recording.launches, device, report)
        capture = LaunchCapture(session, report, device, saver)
        step = RunStep(session, report, device, capture, _NoPlans())
        triton_wrapping.wrap_loading()
        _SavedKernel(step, dumped, dumped, scope_table, lambda _: clean).attach(clean)
        for _ in range(times):
            launch.memory.refresh(launch.relaunch.stream)
            fills[l2]()
            launch.relaunch.launch(clean)
        capture.finish()
        report.note_end()
    return l2


def _clean_run(launch: LoadedLaunch, clean: Any, device: Device, fill: Callable[[], None]) -> KernelResources:
    """Time the kernel without records, by the method of the dump step."""
    stream = launch.relaunch.stream
    timer = LaunchTimer(device, EmptyKernel.like(clean.metadata))
    for _ in range(_CLEAN_LAUNCHES):
        launch.memory.refresh(stream)
        fill()
        start = timer.begin(stream)
        launch.relaunch.launch(clean)
        if start is not None:
            timer.end(start, stream)
    device.synchronise(device.current())
    return KernelResources(
        **resources_of(clean),
        times_ns=tuple(timer.times_ns()),
        not_timed=timer.not_timed or None,
        empty_launch_ns=timer.empty_ns(),
    )
