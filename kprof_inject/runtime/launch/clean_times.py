"""Times of kernels without records, saved into the workspace at the end of the process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from kprof_inject.runtime.devices.cuda_driver import resources_of
from kprof_inject.runtime.devices.device import devices_of_process
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer
from kprof_inject.runtime.launch.triton_wrapping import Load, StandInLauncher, is_benchmarking
from kprof_inject.runtime.process_report import ProcessReport
from kprof_inject.workspace import Workspace


class CleanTimes:
    """Kernels of this process whose launches without records are timed."""

    def __init__(self, workspace: Path, report: ProcessReport) -> None:
        """Save to a workspace."""
        self._workspace = Workspace(workspace)
        self._report = report
        self._timed: list[_TimedKernel] = []

    def load(self, variant: str, kernel: Any, load: Load) -> None:
        """Load a kernel, and time its launches."""
        load()
        with self._report.guard("timing a kernel"):
            device = devices_of_process()
            device.prepare()
            timer = LaunchTimer(device, EmptyKernel.like(kernel.metadata))
            timed = _TimedKernel(variant, resources_of(kernel), timer, os.getpid())
            if not isinstance(kernel._run, TimingLauncher):  # set already if an exception ended an earlier attempt
                kernel._run = TimingLauncher(kernel, timed.timer)
            self._timed.append(timed)
            self._save(timed)

    def finish(self) -> None:
        """Save the times. Never raises."""
        # A forked child cannot query its parent's devices.
        for kernel in [kernel for kernel in self._timed if kernel.pid == os.getpid()]:
            with self._report.guard("timing a kernel"):
                self._save(kernel)
        self._timed.clear()  # frees their events while the driver still exists

    def _save(self, kernel: _TimedKernel) -> None:
        run = kernel.timer.resources(**kernel.resources, launches=kernel.timer.launches)
        self._workspace.write_clean_run(kernel.variant, run)


class _TimedKernel(Struct, frozen=True):
    variant: str
    resources: dict[str, Any]
    timer: LaunchTimer
    pid: int


class TimingLauncher(StandInLauncher):
    """Launcher that times some launches, then steps aside."""

    def __init__(self, kernel: Any, timer: LaunchTimer) -> None:
        """Stand in for the launcher of a loaded ``kernel``."""
        super().__init__(kernel)
        self._timer = timer

    def __call__(
        self, grid_x: int, grid_y: int, grid_z: int, stream: int, function: Any, metadata: Any, *args: Any
    ) -> Any:
        """Launch as Triton's launcher does, and time the launch if samples are missing."""
        start = None
        if self._timer.is_done:
            if self._timer.count():
                self._step_aside()
        elif not is_benchmarking():
            start = self._timer.begin(stream)
        result = self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        if start is not None:
            self._timer.end(start, stream)
        return result
