"""Time single launches with events, by the same method without records (``dump``) and with them (``run``).

The stream is held until the host has queued both events and the launch between them. Otherwise a short kernel's time
would be the host's, which is longer while we capture.

A program that times itself with events would see the hold and our events in its own figures. So its launches are no
longer timed after it has recorded an event.

Between two events the device also reads the launch from its queue, sets up its SMs, and waits for all CTAs to end: 2 to
4 µs, depending on the kernel's threads and shared memory. An empty kernel with as many of both measures this overhead.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from types import ModuleType
from typing import Any

from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.imports import after_import
from kprof_inject.runtime.launch.triton_wrapping import StandInLauncher, has_exit_hook, is_benchmarking
from kprof_inject.runtime.process_events import is_of_signal_handler
from kprof_inject.runtime.stack_room import FRAMES_OF_LAUNCHER, ONE_FRAME

_WARP_SIZE = 32
SAMPLES = 10
"""Empty launches timed; their median ignores the first one, which loads the kernel."""


@dataclass(frozen=True, slots=True)
class EmptyKernel:
    """An empty kernel of one CTA, with the threads and shared memory of another kernel's CTAs."""

    threads: int
    shared_bytes: int

    @classmethod
    def like(cls, metadata: Any) -> EmptyKernel:
        """Return the empty kernel for a compiled kernel's metadata, Triton's own or a capture's copy."""
        warp_size = metadata.target.warp_size if metadata.target else _WARP_SIZE
        return cls((metadata.num_warps or 1) * warp_size, metadata.shared or 0)

    def launch(self, device: Device, stream: int) -> None:
        """Launch the empty kernel on ``stream``."""
        device.launch_empty(stream, self.threads, self.shared_bytes)


MAX_COUNTED = 10_000
"""Launches of a kernel are counted up to this number: counting takes part of a microsecond of the host's time."""

# Launches not timed, because they load code and fill caches.
_WARM_UP = 3
_SAMPLES = 50
# Usually enough time for the host to queue a launch and the event after it.
_HOLD_NS = 100_000
_MAX_HOLD_NS = 800_000

TIMES_ITSELF = "the program times its launches with its own CUDA events, which ours would disturb"
"""Reason for having no times, in words that follow *for*, as is ``_HOST_IS_SLOW``."""

_HOST_IS_SLOW = "the device began each launch before the host had queued the event after it"


class _ProgramsEvents:
    """State of the program's own timing: ``were_recorded`` is true once it has recorded an event with a time.

    An autotuner's events do not count, because the launches that it compares are not timed here.
    """

    were_recorded = False


programs_events = _ProgramsEvents()


def watch_programs_events() -> None:
    """Detect that the program times itself. Called once, right after the import of Triton."""
    after_import({"torch.cuda.streams": watch_events_of})


def watch_events_of(module: ModuleType) -> None:
    """Wrap the class of events in torch's module. Events that other libraries record are not detected."""
    event: Any = module.Event
    make, record = event.__new__, event.record
    # An event does not show whether it has a time, so the addresses of those that do are kept. They are not weak
    # references: torch does not clear those to its events, and Python then crashes at its end (seen with torch 2.11).
    with_time: set[int] = set()

    @functools.wraps(make)
    def make_and_note(cls: Any, enable_timing: bool = False, *args: Any, **kwargs: Any) -> Any:
        with ONE_FRAME:
            made = make(cls, enable_timing, *args, **kwargs)
        (with_time.add if enable_timing else with_time.discard)(id(made))
        return made

    @functools.wraps(record)
    def record_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not programs_events.were_recorded and id(self) in with_time and not is_benchmarking():
            programs_events.were_recorded = True
        with ONE_FRAME:
            return record(self, *args, **kwargs)

    event.__new__ = staticmethod(make_and_note)
    event.record = record_and_note


class LaunchTimer:
    """Timer of some launches of one kernel: not the first ones, and none in a graph or an autotuner's benchmark.

    It stops if the device fails or the program times itself. After each of the first timed launches, it times the
    ``empty`` kernel in the same way.
    """

    def __init__(self, device: Device, empty: EmptyKernel) -> None:
        """Begin without any times."""
        self._device = device
        self._empty = empty
        self._empty_events: list[tuple[Event, Event]] = []
        self._seen = 0
        self._hold_ns = _HOLD_NS
        self._events: list[tuple[Event, Event]] = []
        self._times_itself = False
        self._is_stopped = False
        self._max_clusters = 0

    @property
    def not_timed(self) -> str:
        """Reason why launches were not timed that should have been; empty if there is none."""
        if self._times_itself:
            return TIMES_ITSELF
        return _HOST_IS_SLOW if self._hold_ns > _HOLD_NS and not self._events else ""

    @property
    def is_done(self) -> bool:
        """True once there are enough samples; later launches need no timer."""
        return self._is_stopped or self._seen >= _WARM_UP + _SAMPLES

    @property
    def max_clusters(self) -> int | None:
        """Size of the largest grid of all launches; None if not all were counted."""
        return self._max_clusters if self._seen < MAX_COUNTED else None

    def note_grid(self, clusters: int) -> None:
        """Note the size of a launch's grid."""
        if clusters > self._max_clusters:
            self._max_clusters = clusters

    def count(self) -> bool:
        """Count a launch that needs no timer; return whether enough launches were counted."""
        self._seen += 1
        return self._seen >= MAX_COUNTED

    @property
    def launches(self) -> int:
        """Number of launches counted, at most ``MAX_COUNTED``."""
        return self._seen

    def begin(self, stream: int) -> Event | None:
        """Begin to time a launch that is about to be made; return the event for ``end``, or None not to time it."""
        if programs_events.were_recorded:
            self._times_itself = True
            self._stop()
        is_timed = not self.is_done and self._seen >= _WARM_UP
        self._seen += 1
        return self._hold_and_mark(stream) if is_timed else None

    def _hold_and_mark(self, stream: int) -> Event | None:
        try:
            if self._device.is_capturing():
                return None
            self._device.hold(stream, self._hold_ns)
            return self._device.timing_mark(stream)
        except RecursionError:
            raise  # the program's stack is near its limit
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)
            return None

    def end(self, start: Event, stream: int) -> None:
        """End the timing of a launch that is queued; ``start`` is the event that ``begin`` returned."""
        try:
            self._add(self._events, start, stream)
            if len(self._empty_events) >= SAMPLES:
                return
            begin = self._hold_and_mark(stream)
            if begin is not None:
                self._empty.launch(self._device, stream)
                self._add(self._empty_events, begin, stream)
        except RecursionError:
            pass  # the program's stack is near its limit
        except Exception as error:  # noqa: BLE001 (whatever it is, the program must go on)
            self._stop_for(error)

    def _add(self, events: list[tuple[Event, Event]], start: Event, stream: int) -> None:
        """Keep the two events unless the device has passed ``start`` already: it may have waited for the host."""
        end = self._device.timing_mark(stream)
        if start.query():
            self._hold_ns = min(2 * self._hold_ns, _MAX_HOLD_NS)
        else:
            events.append((start, end))

    def _stop_for(self, error: Exception) -> None:
        if is_of_signal_handler(error):
            raise error
        self._stop()

    def _stop(self) -> None:
        self._is_stopped = True

    def times_ns(self) -> list[float]:
        """Return the times of the timed launches that have ended."""
        return _times_ns(self._events)

    def empty_ns(self) -> float | None:
        """Return the median time of the empty kernel; None if it was not timed."""
        times_ns = _times_ns(self._empty_events)
        return median(times_ns) if times_ns else None


def _times_ns(events: Sequence[tuple[Event, Event]]) -> list[float]:
    return [1e6 * start.elapsed_time(end) for start, end in events if end.query()]


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
        try:
            self._timer.note_grid(grid_x * grid_y * grid_z)
            if self._timer.is_done:
                if self._timer.count():
                    self._step_aside()
            elif not is_benchmarking():
                start = self._timer.begin(stream)
            result = self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        except RecursionError:
            # Without a hook after it, the error means that the launch was not made.
            if has_exit_hook(*args):
                raise
        else:
            if start is not None:
                self._timer.end(start, stream)
            return result
        # In this frame, because a deeper one could not restore the limit.
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(limit + FRAMES_OF_LAUNCHER)
            return self._launch(grid_x, grid_y, grid_z, stream, function, metadata, *args)
        finally:
            sys.setrecursionlimit(limit)
