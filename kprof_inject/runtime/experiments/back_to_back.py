"""Time launches on a stream, one at a time or some back to back, with device events."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from kprof_inject.runtime.devices.device import Device, Event
from kprof_inject.runtime.experiments.relaunch import LaunchMemory
from kprof_inject.runtime.launch.timing import SAMPLES, EmptyKernel

# The time of a single launch includes some microseconds of work that the device does between two events. Launches timed
# together share this overhead.
_MIN_BATCH_NS = 200_000
_MAX_IN_BATCH = 20

# The host may take this much longer to queue the same number of launches than it took before.
_HOST_MARGIN = 2.0
MIN_HOLD_NS = 50_000
_MAX_HOLD_NS = 20_000_000
_TRIES = 4

# Maximum ratio of two times for the same work: a launch that finds its work done takes less time than one that does it.
_SAME_WORK = 1.5

Marks = tuple[Event, Event]
"""Events before and after the timed launches."""


@dataclass(slots=True)
class BackToBack:
    """Timer of launches on a stream, in which ``launches`` of each kind follow each other without a pause.

    With ``restores``, the kernel's memory is restored before each kind. ``before`` is called after that; what it queues
    is not timed.
    """

    device: Device
    stream: int
    memory: LaunchMemory
    launches: int = 1
    restores: bool = True
    before: Callable[[], None] = lambda: None
    was_held: bool = True
    """False if the device began with the last batch before all of it was queued: its times may then be the host's."""
    _queue_ns: int = 0

    def marked(self, launch: Callable[[], None]) -> Marks:
        """Queue launches of one kind between two events."""
        if self.restores:
            self.memory.refresh(self.stream)
        self.before()
        start = self.device.timing_mark(self.stream)
        for _ in range(self.launches):
            launch()
        return start, self.device.timing_mark(self.stream)

    def queued(self, launches: Sequence[Callable[[], None]]) -> list[Marks]:
        """Queue launches of each kind, one kind after another.

        The stream is held until the host has queued them all. If that takes too long, they are queued again, at most
        ``_TRIES`` times in total.
        """
        for _ in range(_TRIES):
            begun_ns = time.monotonic_ns()
            hold_ns = min(max(int(_HOST_MARGIN * self._queue_ns), MIN_HOLD_NS), _MAX_HOLD_NS)
            self.device.hold(self.stream, hold_ns)
            marks = [self.marked(launch) for launch in launches]
            self.was_held = not marks[0][0].query()
            self._queue_ns = time.monotonic_ns() - begun_ns
            if self.was_held:
                break
        return marks

    def times_ns(self, marks: Sequence[Marks]) -> list[float]:
        """Wait for the launches to end, and return the time of one launch of each kind."""
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
    """Return the time of an empty kernel's launch, timed as other launches are, after waiting for it.

    Returns None if the host was too slow to measure it.
    """
    launches: Sequence[Callable[[], None]] = [lambda: kernel.launch(timed.device, timed.stream)] * SAMPLES
    alike = replace(timed, restores=False)
    times_ns = alike.times_ns(alike.queued(launches))
    return median(times_ns) if alike.was_held else None
