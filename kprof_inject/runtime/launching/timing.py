"""Times single launches by events, with records and without: the same method in ``dump`` and in ``run``.

The stream is held until the host has queued both events and the launch between them. Without that, what is timed of a
short kernel is the host, which works longer where we capture.

A program that times itself by events would read the hold, and our events, in its own figures. From the first time
that it records one, nothing of the kind is put around its launches any more.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from statistics import median
from types import ModuleType
from typing import Any

from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launching.autotuning import is_benchmarking
from kprof_inject.runtime.launching.empty_launches import SAMPLES, EmptyKernel
from kprof_inject.runtime.process_events import is_of_signal_handler

# The first launches load code and fill caches.
_WARM_UP = 3
_SAMPLES = 50
# Long enough for the host to have queued a launch and the event behind it.
_HOLD_NS = 100_000

TIMES_ITSELF = "the program times its launches with its own CUDA events, which ours would disturb"
"""In words that follow *for*."""


class _ProgramsEvents:
    """Whether the program has recorded an event that a time can be read from. An autotuner's do not count: the launches
    that it compares are not timed here."""

    were_recorded = False


programs_events = _ProgramsEvents()


def watch_programs_events() -> None:
    """Notice when the program times itself. Called once, right after Triton was imported."""
    after_import({"torch.cuda.streams": watch_events_of})


def watch_events_of(module: ModuleType) -> None:
    """Of torch's module of events. What is recorded by other means than torch's is not noticed."""
    event: Any = module.Event
    make, record = event.__new__, event.record
    with_time: weakref.WeakSet[Any] = weakref.WeakSet()  # an event does not tell

    @functools.wraps(make)
    def make_and_note(cls: Any, enable_timing: bool = False, *args: Any, **kwargs: Any) -> Any:
        made = make(cls, enable_timing, *args, **kwargs)
        if enable_timing:
            with_time.add(made)
        return made

    @functools.wraps(record)
    def record_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not programs_events.were_recorded and self in with_time and not is_benchmarking():
            programs_events.were_recorded = True
        return record(self, *args, **kwargs)

    event.__new__ = staticmethod(make_and_note)
    event.record = record_and_note


class LaunchTimer:
    """Times some launches of one kernel: not the first ones, and none in a graph or in an autotuner's benchmark.
    If the device fails at it, or the program times itself, no more are timed. Behind the first of them an ``empty``
    kernel is timed in the same way."""

    def __init__(self, device: Device, empty: EmptyKernel) -> None:
        self._device = device
        self._empty = empty
        self._empty_events: list[tuple[Event, Event]] = []
        self._seen = 0
        self._events: list[tuple[Event, Event]] = []
        self.not_timed = ""
        """Why launches were not timed that would have been."""

    @property
    def is_done(self) -> bool:
        """True once there are samples enough: what is launched then need not go through here."""
        return self._seen >= _WARM_UP + _SAMPLES

    def launch(self, stream: int, launch: Callable[[], Any]) -> Any:
        """Make a launch, and time it if it is one to be timed."""
        if programs_events.were_recorded:
            self.not_timed = TIMES_ITSELF
            self._stop()
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
            self._device.hold(stream, _HOLD_NS)
            return self._device.timing_mark(stream)
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)
            return None

    def _end(self, start: Event, stream: int) -> None:
        try:
            self._events.append((start, self._device.timing_mark(stream)))
            if len(self._empty_events) < SAMPLES and (begin := self._begin(stream)) is not None:
                self._empty.launch(self._device, stream)
                self._empty_events.append((begin, self._device.timing_mark(stream)))
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)

    def _stop_for(self, error: Exception) -> None:
        if is_of_signal_handler(error):
            raise error
        self._stop()

    def _stop(self) -> None:
        self._seen = _WARM_UP + _SAMPLES

    def times_ns(self) -> list[float]:
        """The times of the launches that have ended."""
        return _times_ns(self._events)

    def empty_ns(self) -> float | None:
        """What the empty kernel took; None if it was not timed."""
        times_ns = _times_ns(self._empty_events)
        return median(times_ns) if times_ns else None


def _times_ns(events: Sequence[tuple[Event, Event]]) -> list[float]:
    return [1e6 * start.elapsed_time(end) for start, end in events if end.query()]


class StandInLauncher:
    """Stands where Triton keeps a kernel's launcher, until it steps aside. All else that is asked of it, the launcher
    answers."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = weakref.ref(kernel)
        self._launch = kernel._run

    def _step_aside(self) -> None:
        kernel = self._kernel()
        if kernel is not None and kernel._run is self:
            kernel._run = self._launch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launch, name)


class TimingLauncher(StandInLauncher):
    """Times some of the launches that it passes on, and steps aside."""

    def __init__(self, kernel: Any, timer: LaunchTimer) -> None:
        super().__init__(kernel)
        self._timer = timer

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: int, *args: Any) -> Any:
        if self._timer.is_done:
            self._step_aside()
        elif not is_benchmarking():
            return self._timer.launch(stream, lambda: self._launch(grid_x, grid_y, grid_z, stream, *args))
        return self._launch(grid_x, grid_y, grid_z, stream, *args)
