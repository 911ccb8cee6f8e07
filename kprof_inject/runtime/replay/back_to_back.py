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

# A time of single launches has what the device does between two events in it, some microseconds: of launches back to
# back, each has its share alone.
_LEAST_BATCH_NS = 200_000
_MOST_IN_BATCH = 20

# How much longer than it took before the host may take to queue as many.
_HOST_MARGIN = 2.0
LEAST_HOLD_NS = 50_000
_MOST_HOLD_NS = 20_000_000
_TRIES = 4

# A launch that finds its work done is no measure of one that does it.
_SAME_WORK = 1.5

Marks = tuple[Event, Event]
"""Before and behind what is timed."""


@dataclass(slots=True)
class BackToBack:
    """``launches`` of each kind follow each other without a pause; with ``restores`` the copies of the
    kernel's memory are made anew before."""

    device: Device
    stream: int
    memory: MemoryCopies
    launches: int = 1
    restores: bool = True
    was_held: bool = True
    """False if the device began with what was queued last before all of it was queued: its times may be the host's."""
    _queue_ns: int = 0

    def marked(self, launch: Callable[[], None]) -> Marks:
        if self.restores:
            self.memory.refresh(self.stream)
        start = self.device.timing_mark(self.stream)
        for _ in range(self.launches):
            launch()
        return start, self.device.timing_mark(self.stream)

    def queued(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        """One after the other. The stream is held until the host has queued them: if that took too long, it does so
        again, some times."""
        for _ in range(_TRIES):
            marks = self._queued_once(launches)
            if self.was_held:
                break
        return marks

    def _queued_once(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        begun_ns = time.monotonic_ns()
        hold_ns = min(max(int(_HOST_MARGIN * self._queue_ns), LEAST_HOLD_NS), _MOST_HOLD_NS)
        self.device.hold(self.stream, hold_ns)
        marks = [self.marked(launch) for launch in launches]
        self.was_held = not marks[0][0].query()
        self._queue_ns = time.monotonic_ns() - begun_ns
        return marks

    def times_ns(self, marks: Sequence[Marks]) -> list[float]:
        """How long a launch of each took. It waits for them."""
        for _, end in marks:
            end.synchronize()
        return [1e6 * start.elapsed_time(end) / self.launches for start, end in marks]

    def follow_each_other(self, launch_ns: float) -> None:
        """From now on, launches of so long follow each other without copies made anew."""
        self.restores = False
        self.launches = min(max(math.ceil(_LEAST_BATCH_NS / max(launch_ns, 1.0)), 1), _MOST_IN_BATCH)


def is_same_work(a_ns: float, b_ns: float) -> bool:
    """Whether two launches that take so long may have done the same."""
    return a_ns < _SAME_WORK * b_ns and b_ns < _SAME_WORK * a_ns


def empty_ns(timed: BackToBack, kernel: EmptyKernel) -> float | None:
    """Return the time of an empty kernel's launch, timed as other launches are. Waits for it.

    None: the host was too slow to measure it.
    """
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return median(times_ns) if alike.was_held else None
