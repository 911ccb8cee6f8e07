"""Find out when a kernel became slower than its own past.

A launch counts as slower only if it takes longer both in nanoseconds and in cycles of the SMs' clock: a lower clock
alone lengthens the times of one kernel and not the cycles, and a higher one the cycles of another and not its times.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from enum import Enum
from statistics import median

from msgspec import Struct

MIN_PAST = 10
"""Launches that a kernel's past needs before anything is said."""
RECENT = 5
"""Number of successive launches that must be slower. By chance, all are above the 95th percentile once in 3 million."""
MAX_PAST = 2000
"""Launches that count as the past, the latest ones."""

_HIGH_QUANTILE = 0.95


class Sample(Struct, frozen=True):
    """A recorded launch of a capture; ``cycles`` is None if the clock's rate was not measured."""

    time_ns: int
    duration_ns: float
    cycles: float | None
    capture: str = ""


class Event(Enum):
    """Change that the last launch has brought."""

    SLOWER = "slower"
    USUAL_AGAIN = "usual again"


class Slowdown(Struct, frozen=True):
    """Slowdown of a kernel since ``since_ns``, as medians of its past and of its last launches."""

    usual_ns: float
    recent_ns: float
    since_ns: int

    @property
    def percent(self) -> float:
        """Relative slowdown in per cent."""
        return 100 * (self.recent_ns / self.usual_ns - 1)


class _Values:
    """Numbers in ascending order, for their quantiles."""

    def __init__(self) -> None:
        self._ascending: list[float] = []

    def __len__(self) -> int:
        return len(self._ascending)

    def add(self, value: float) -> None:
        insort(self._ascending, value)

    def remove(self, value: float) -> None:
        """Remove a value that was added."""
        del self._ascending[bisect_left(self._ascending, value)]

    def quantile(self, part: float) -> float:
        """Return a quantile, interpolated between two values."""
        place = part * (len(self._ascending) - 1)
        low, high = self._ascending[math.floor(place)], self._ascending[math.ceil(place)]
        return low + (high - low) * (place - math.floor(place))

    def are_below(self, recent: Sequence[float], limit: float) -> bool:
        """Return whether nearly all are below all recent values, and typically by more than the limit."""
        return min(recent) > self.quantile(_HIGH_QUANTILE) and median(recent) > (1 + limit) * self.quantile(0.5)


class KernelPast:
    """The past of one kernel, to which launches are added.

    While it is slower, its launches do not count as its past.
    """

    def __init__(self, limit: float) -> None:
        """Begin without any past; a kernel is slower if it takes longer by more than ``limit``, a part of its time."""
        self._limit = limit
        self._past: deque[Sample] = deque()
        self._past_ns, self._past_cycles = _Values(), _Values()
        self._recent: deque[Sample] = deque(maxlen=RECENT)
        self.slowdown: Slowdown | None = None
        """Present slowdown; None if there is none."""

    @property
    def usual_ns(self) -> float | None:
        """Median duration of its past; None if it has none yet."""
        return self._past_ns.quantile(0.5) if self._past else None

    @property
    def past(self) -> Sequence[Sample]:
        """Launches that the last ones are compared with, the oldest first."""
        return tuple(self._past)

    @property
    def recent(self) -> Sequence[Sample]:
        """The last launches, at most ``RECENT``."""
        return tuple(self._recent)

    def add(self, sample: Sample) -> Event | None:
        """Add a launch, and return what changed."""
        if len(self._recent) == RECENT and self.slowdown is None:
            self._add_to_past(self._recent[0])
        self._recent.append(sample)
        if len(self._recent) < RECENT or len(self._past) < MIN_PAST:
            return None
        before, self.slowdown = self.slowdown, self._compared()
        if (self.slowdown is None) == (before is None):
            return None
        return Event.USUAL_AGAIN if self.slowdown is None else Event.SLOWER

    def _add_to_past(self, sample: Sample) -> None:
        self._past.append(sample)
        self._past_ns.add(sample.duration_ns)
        if sample.cycles is not None:
            self._past_cycles.add(sample.cycles)
        if len(self._past) > MAX_PAST:
            oldest = self._past.popleft()
            self._past_ns.remove(oldest.duration_ns)
            if oldest.cycles is not None:
                self._past_cycles.remove(oldest.cycles)

    def _compared(self) -> Slowdown | None:
        recent_ns = [sample.duration_ns for sample in self._recent]
        recent_cycles = [sample.cycles for sample in self._recent if sample.cycles is not None]
        if not self._past_ns.are_below(recent_ns, self._limit):
            return None
        has_cycles = len(self._past_cycles) >= MIN_PAST and len(recent_cycles) == RECENT
        if has_cycles and not self._past_cycles.are_below(recent_cycles, self._limit):
            return None
        since_ns = self.slowdown.since_ns if self.slowdown is not None else self._recent[0].time_ns
        return Slowdown(self._past_ns.quantile(0.5), median(recent_ns), since_ns)
