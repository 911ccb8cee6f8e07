"""Launch a kernel as Triton does, and with records only when a thread of ours asks for a launch."""

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
    """Launcher that records the next launch when it is asked to; until then, the kernel has Triton's own launcher.

    Compiling would hold the program up. So a launch with a grid that has no build yet is made without records, and the
    thread that asks prepares a build for the next one.
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
        """Stand in for the launcher of a loaded ``kernel`` when a launch is wanted. See ``CapturingLauncher``."""
        super().__init__(kernel, variant, builds, captures, max_bytes)
        self._inductor = inductor
        self._device = device
        self._is_due = False
        self.missing: tuple[Grid, int] | None = None
        """Grid of a launch that had no build, and its device."""
        self.recorded = 0
        """Number of launches with records."""
        self.host_s = 0.0
        """Time that the program has waited for us in its launches."""
        self._events: list[tuple[Event, Event]] = []

    @property
    def is_gone(self) -> bool:
        """True if the program has dropped the kernel."""
        return self._kernel() is None

    @property
    def is_due(self) -> bool:
        """True if a launch is wanted and was not made yet."""
        return self._is_due

    def ask(self) -> None:
        """Record the next launch."""
        kernel = self._kernel()
        if kernel is None or self._given_up:
            return
        self._is_due = True
        if kernel._run is self._launch:
            kernel._run = self
        self._inductor.replace(kernel, self._launch, self)

    def withdraw(self) -> None:
        """Record no launch until the next ``ask``."""
        self._is_due = False
        self._step_aside()

    def _step_aside(self) -> None:
        super()._step_aside()
        kernel = self._kernel()
        if kernel is not None:
            self._inductor.replace(kernel, self, self._launch)

    def prepare(self) -> bool:
        """Make the build for the launch that had none; return whether there is one now. Not for a program's thread.

        Raises nothing of the build's: a kernel that cannot take records is given up.
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
        """Return the time of the device, between two events, of the recorded launches since the last call."""
        events, self._events = self._events, []
        return sum(begin.elapsed_time(end) for begin, end in events if end.query()) / 1e3

    def _launch_somehow(self, grid: Grid, stream: int, function: Any, metadata: Any, *args: Any) -> Any:
        if not self._is_due:
            self._step_aside()  # whoever keeps a reference to this launcher may call it although it stepped aside
        elif grid[0] * grid[1] * grid[2] and not is_benchmarking() and not self._device.is_capturing():
            self.withdraw()
            if grid in self._of_grid:
                return self._launch_timed(grid, stream, function, metadata, *args)
            self.missing = grid, self._device.current()
        return self._launch(*grid, stream, function, metadata, *args)

    def _launch_timed(self, grid: Grid, stream: int, *others: Any) -> Any:
        begin = self._mark(stream)
        result = super()._launch_somehow(grid, stream, *others)
        end = self._mark(stream)
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
