"""Times single launches by events, with records and without: the same method in ``dump`` and in ``run``.

The stream is held until the host has queued both events and the launch between them. Without that, what is timed of a
short kernel is the host, which works longer where we capture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.launching.autotuning import is_benchmarking

# The first launches load code and fill caches.
_WARM_UP = 3
_SAMPLES = 50


class LaunchTimer:
    """Times some launches of one kernel: not the first ones, and none in a graph or in an autotuner's benchmark.
    If the device fails at it, no more are timed."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._seen = 0
        self._events: list[tuple[Event, Event]] = []

    @property
    def is_done(self) -> bool:
        """True once there are samples enough: what is launched then need not go through here."""
        return self._seen >= _WARM_UP + _SAMPLES

    def launch(self, stream: int, launch: Callable[[], Any]) -> Any:
        """Make a launch, and time it if it is one to be timed."""
        start = None if self._seen < _WARM_UP or self.is_done else self._begin(stream)
        self._seen += 1
        result = launch()
        if start is not None:
            self._end(start, stream)
        return result

    def _begin(self, stream: int) -> Event | None:
        try:
            if self._device.is_capturing():
                return None
            self._device.hold(stream)
            return self._device.timing_mark(stream)
        except Exception:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop()
            return None

    def _end(self, start: Event, stream: int) -> None:
        try:
            self._events.append((start, self._device.timing_mark(stream)))
        except Exception:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop()

    def _stop(self) -> None:
        self._seen = _WARM_UP + _SAMPLES

    def times_ns(self) -> list[float]:
        """The times of the launches that have ended."""
        return [1e6 * start.elapsed_time(end) for start, end in self._events if end.query()]


class TimingLauncher:
    """Stands where Triton keeps a kernel's launcher, and times some of the launches that it passes on."""

    def __init__(self, launch: Callable[..., Any], timer: LaunchTimer) -> None:
        self._launch = launch
        self._timer = timer

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: int, *args: Any) -> Any:
        if self._timer.is_done or is_benchmarking():
            return self._launch(grid_x, grid_y, grid_z, stream, *args)
        return self._timer.launch(stream, lambda: self._launch(grid_x, grid_y, grid_z, stream, *args))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)
