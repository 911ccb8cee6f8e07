"""Launch a kernel as Triton does, and with records only on request of a thread of ours."""

from __future__ import annotations

import time
from typing import Any

from kprof_inject.capture.schema import Grid
from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.launcher import Builds, Captures, CapturingLauncher
from kprof_inject.runtime.launch.recorded_launch import RecordedLaunch
from kprof_inject.runtime.launch.timing import Turn
from kprof_inject.runtime.launch.triton_wrapping import InductorLaunchers, is_benchmarking
from kprof_inject.runtime.process_events import is_of_signal_handler


class WatchedLauncher(CapturingLauncher):
    """Launcher that records one launch on request; otherwise the kernel has Triton's own launcher.

    Compiling in a launch would stall the program. So a launch whose grid has no build yet is made without records, and
    the requesting thread compiles a build for the next one.
    """

    def __init__(
        self,
        kernel: Any,
        variant: str,
        builds: Builds,
        captures: Captures,
        max_bytes: int,
        device: Device,
        inductor: InductorLaunchers,
    ) -> None:
        """Prepare to replace the launcher of a loaded ``kernel`` on request. See ``CapturingLauncher``."""
        super().__init__(kernel, variant, builds, captures, max_bytes)
        self._inductor = inductor
        self._device = device
        self.is_requested = False
        """True if a launch is requested and not made yet."""
        self.missing: tuple[Grid, int] | None = None
        """Grid and device of a launch that had no build; None if there is none."""
        self.recorded = 0
        """Number of launches with records."""
        self.host_s = 0.0
        """Time that recording has added to the program's launches on the host."""
        self._events: list[tuple[Event, Event]] = []

    @property
    def is_gone(self) -> bool:
        """True if the program has dropped the kernel."""
        return self._kernel() is None

    def request(self) -> None:
        """Record the next launch."""
        kernel = self._kernel()
        if kernel is None or self._given_up:
            return
        self.is_requested = True
        if kernel._run is self._launch:
            kernel._run = self
        self._inductor.replace(kernel, self._launch, self)

    def withdraw(self) -> None:
        """Withdraw the request."""
        self.is_requested = False
        self._step_aside()

    def _step_aside(self) -> None:
        super()._step_aside()
        kernel = self._kernel()
        if kernel is not None:
            self._inductor.replace(kernel, self, self._launch)

    def prepare(self) -> bool:
        """Compile the build that a launch lacked; return whether it exists now. Called by the requesting thread.

        A kernel that cannot take records is given up, and nothing is raised.
        """
        missing, self.missing = self.missing, None
        if missing is None or self._given_up:
            return False
        grid, device = missing
        try:
            with self._device.selected(device):
                self._of_grid[grid] = self._builds.build_for(grid, self._max_bytes)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program goes on without records)
            self._give_up_for(error)
            return False
        return True

    def device_s(self) -> float:
        """Return the device time of the launches recorded since the last call, between two events each."""
        events, self._events = self._events, []
        return sum(begin.elapsed_time(end) for begin, end in events if end.query()) / 1e3

    def _launch_somehow(self, grid: Grid, stream: int, function: Any, metadata: Any, *args: Any) -> Any:
        if not self.is_requested:
            self._step_aside()  # a reference to this launcher may outlive the request
        elif grid[0] * grid[1] * grid[2] and not is_benchmarking() and not self._device.is_capturing():
            self.withdraw()
            if grid in self._of_grid:
                return self._launch_timed(grid, stream, function, metadata, *args)
            self.missing = grid, self._device.current()
        return self._launch(*grid, stream, function, metadata, *args)

    def _launch_timed(self, grid: Grid, stream: int, *others: Any) -> Any:
        begin = self._mark(stream)
        result = super()._launch_somehow(grid, stream, *others)
        try:
            end = self._mark(stream)
        except RecursionError:
            return result  # the launch was made, so it must not be made again
        if begin is not None and end is not None:
            self._events.append((begin, end))
        return result

    def _mark(self, stream: int) -> Event | None:
        try:
            return self._device.timing_mark(stream)
        except Exception as error:
            if is_of_signal_handler(error):
                raise
            return None

    def _begin(
        self, grid: Grid, stream: int, args: Any
    ) -> tuple[LaunchCapture, RecordedLaunch | None, Turn | None] | None:
        begun_s = time.perf_counter()
        begun = super()._begin(grid, stream, args)
        self.host_s += time.perf_counter() - begun_s
        self.recorded += begun is not None
        return begun
