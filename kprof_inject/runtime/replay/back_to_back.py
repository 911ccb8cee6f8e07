"""Times launches that follow each other on a stream: each by itself, or some of them back to back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.launch.empty_launches import SAMPLES, EmptyKernel
from kprof_inject.runtime.replay.memory_copies import MemoryCopies

# What the device does between two events takes some microseconds, and is in the time of a single launch. Launches that
# are timed together share it.
_MIN_BATCH_NS = 200_000
_MAX_IN_BATCH = 20

# How much longer than it took before the host may take to queue as many.
_HOST_MARGIN = 2.0
MIN_HOLD_NS = 50_000
_MAX_HOLD_NS = 20_000_000
_TRIES = 4

# A launch that finds its work done takes less time than one that does it.
_SAME_WORK = 1.5

Marks = tuple[Event, Event]
"""Events before and after what is timed."""


@dataclass(slots=True)
class BackToBack:
    """Times launches on a stream: ``launches`` of each kind follow each other without a pause.

    With ``restores``, the copies of the kernel's memory are refreshed before.
    """

    device: Device
    stream: int
    memory: MemoryCopies
    launches: int = 1
    restores: bool = True
    was_held: bool = True
    """False if the device began with what was queued last before all of it was queued: its times may be the host's."""
    _queue_ns: int = 0

    def marked(self, launch: Callable[[], None]) -> Marks:
        """Queue launches of one kind between two events."""
        if self.restores:
            self.memory.refresh(self.stream)
        start = self.device.timing_mark(self.stream)
        for _ in range(self.launches):
            launch()
        return start, self.device.timing_mark(self.stream)

    def queued(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        """Queue launches of each kind, one after the other.

        The stream is held until the host has queued them all. If that takes too long, they are queued again, up to
        ``_TRIES`` times.
        """
        for _ in range(_TRIES):
            marks = self._queued_once(launches)
            if self.was_held:
                break
        return marks

    def _queued_once(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        begun_ns = time.monotonic_ns()
        hold_ns = min(max(int(_HOST_MARGIN * self._queue_ns), MIN_HOLD_NS), _MAX_HOLD_NS)
        self.device.hold(self.stream, hold_ns)
        marks = [self.marked(launch) for launch in launches]
        self.was_held = not marks[0][0].query()
        self._queue_ns = time.monotonic_ns() - begun_ns
        return marks

    def times_ns(self, marks: Sequence[Marks]) -> list[float]:
        """Return the time of a launch of each kind, once they have ended."""
        for _, end in marks:
            end.synchronize()
        return [1e6 * start.elapsed_time(end) / self.launches for start, end in marks]

    def follow_each_other(self, launch_ns: float) -> None:
        """Time launches of this duration in batches from now on, without refreshed copies."""
        self.restores = False
        self.launches = min(max(math.ceil(_MIN_BATCH_NS / max(launch_ns, 1.0)), 1), _MAX_IN_BATCH)


def is_same_work(a_ns: float, b_ns: float) -> bool:
    """Return whether two launches with these times may have done the same work."""
    return a_ns < _SAME_WORK * b_ns and b_ns < _SAME_WORK * a_ns


def empty_ns(timed: BackToBack, kernel: EmptyKernel) -> float | None:
    """Return the time of an empty kernel's launch, timed as other launches are. Waits for it.

    None: the host was too slow to measure it.
    """
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return median(times_ns) if alike.was_held else None
