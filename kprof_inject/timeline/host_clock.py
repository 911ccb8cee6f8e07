"""Relation of a device's globaltimer to its host's clock.

Both are quartz clocks: over a program's time, one is nearly a linear function of the other. Each reading says that the
line passes through an interval. So the readings admit the set of all lines that pass through all intervals: a polygon
in the plane of offset and drift. Its corners bound the error everywhere, between the readings and beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.model import Launch
from kprof_inject.capture.schema import ClockRecord

# Two quartz clocks, each within 100 ppm.
_MAX_DRIFT = 2e-4
# A timer that moves in steps (32 ns on an H200) shows a time that is up to a step old.
_TIMER_STEP_NS = 32


class _Line(Struct, frozen=True):
    """Possible relation: host time less device time, less a common origin, is ``offset_ns + drift * x_ns``."""

    offset_ns: float
    drift: float

    def at(self, x_ns: float) -> float:
        return self.offset_ns + self.drift * x_ns


class _Interval(Struct, frozen=True):
    """Constraint by one reading, in a common origin: at ``x_ns``, the offset is ``offset_ns`` ± ``error_ns``."""

    x_ns: int
    offset_ns: int
    error_ns: int


class HostClock(Struct, frozen=True):
    """Relation of one device to its host.

    At device time ``device_ns``, ``offset_ns`` must be added to get host time; it grows by ``drift`` with each
    nanosecond, 0 unless the readings prove a drift.

    ``contradicted`` is true if no line passes through all readings. The intervals were then widened until one did, and
    the error spans each reading, as any may be the true one.
    """

    device_ns: int
    offset_ns: int
    drift: float
    contradicted: bool
    _corners: tuple[_Line, ...]
    _furthest_reading_ns: float

    def to_host_ns(self, device_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Convert device times to host times.

        All launches of a device use the same function, so that their order stays.
        """
        host_ns = device_ns + self.offset_ns
        if self.drift:
            host_ns += np.rint((device_ns - self.device_ns) * self.drift).astype(np.int64)
        return host_ns

    def error_ns(self, first_ns: int, last_ns: int) -> int:
        """Return the maximum error of ``to_host_ns``, at device times from ``first_ns`` to ``last_ns``."""
        # Two lines are furthest apart at one of the ends.
        ends = (first_ns - self.device_ns, last_ns - self.device_ns)
        furthest = max(abs(corner.at(x_ns) - self.drift * x_ns) for corner in self._corners for x_ns in ends)
        return math.ceil(furthest + self._furthest_reading_ns) + 1  # rounding to whole nanoseconds


def fit_host_clock(readings: Sequence[ClockRecord]) -> HostClock | None:
    """Fit the relation to readings of one device and one host clock; None if there are none."""
    if not readings:
        return None
    # Epoch nanoseconds do not fit a float: everything below is relative to the first reading.
    first = readings[0]
    common_ns = first.host_ns - first.device_ns
    intervals = [
        _Interval(r.device_ns - first.device_ns, r.host_ns - r.device_ns - common_ns, r.error_ns + _TIMER_STEP_NS)
        for r in readings
    ]
    widening = 1
    while not (corners := _lines_through(intervals, widening)):
        widening *= 2
    lowest = min(line.drift for line in corners)
    highest = max(line.drift for line in corners)
    drift = 0.0 if lowest <= 0 <= highest else (lowest + highest) / 2
    # The middle offset of the lines with this drift through all intervals.
    lowest_ns = max(_bounds(i, widening)[0] - drift * i.x_ns for i in intervals)
    highest_ns = min(_bounds(i, widening)[1] - drift * i.x_ns for i in intervals)
    offset_ns = round((lowest_ns + highest_ns) / 2)
    distances_ns = (abs(i.offset_ns - offset_ns - drift * i.x_ns) + i.error_ns for i in intervals)
    return HostClock(
        first.device_ns,
        common_ns + offset_ns,
        drift,
        widening > 1,
        tuple(_Line(line.offset_ns - offset_ns, line.drift) for line in corners),
        max(distances_ns) if widening > 1 else 0.0,
    )


def _lines_through(intervals: Sequence[_Interval], widening: int) -> list[_Line]:
    """Return the corners of the polygon of all lines through the widened intervals; empty if there is no such line."""
    first, *rest = intervals
    low, high = _bounds(first, widening)
    lines = [_Line(low, -_MAX_DRIFT), _Line(high, -_MAX_DRIFT), _Line(high, _MAX_DRIFT), _Line(low, _MAX_DRIFT)]
    for interval in rest:
        low, high = _bounds(interval, widening)
        lines = _cut(_cut(lines, interval.x_ns, high, 1), interval.x_ns, low, -1)
    return lines


def _bounds(interval: _Interval, widening: int) -> tuple[int, int]:
    return interval.offset_ns - widening * interval.error_ns, interval.offset_ns + widening * interval.error_ns


def _cut(lines: list[_Line], x_ns: int, bound_ns: int, side: int) -> list[_Line]:
    """Return the part of the polygon whose lines, at ``x_ns``, are not above (``side`` 1) or below (-1) the bound."""
    kept = []
    for line, following in pairwise([*lines, *lines[:1]]):
        over, next_over = (side * (each.at(x_ns) - bound_ns) for each in (line, following))
        if over <= 0:
            kept.append(line)
        if over * next_over < 0:
            part = over / (over - next_over)
            kept.append(
                _Line(
                    line.offset_ns + part * (following.offset_ns - line.offset_ns),
                    line.drift + part * (following.drift - line.drift),
                )
            )
    return kept


class HostCall(Struct, frozen=True):
    """Host's call that made a launch, by the device's globaltimer.

    It lasts from just before the call until it returned (None if that was not recorded). Its times may be off by
    ``error_ns`` against the device's.
    """

    start_ns: int
    end_ns: int | None
    error_ns: int


def host_call(launch: Launch, relation: HostClock) -> HostCall | None:
    """Return the call of a launch, given the ``relation`` of its device to its host.

    None for a launch in a CUDA graph: the call that was captured did not make the replay, which may be minutes later.
    """
    if launch.graph:
        return None
    start_ns = _to_device_ns(relation, launch.host_ns)
    end_ns = None if launch.host_end_ns is None else _to_device_ns(relation, launch.host_end_ns)
    last_ns = start_ns if end_ns is None else end_ns
    return HostCall(start_ns, end_ns, relation.error_ns(start_ns, last_ns))


def _to_device_ns(relation: HostClock, host_ns: int) -> int:
    """Convert a host time to a device time: the inverse of ``HostClock.to_host_ns``, to the nanosecond."""
    since_ns = host_ns - relation.offset_ns - relation.device_ns
    return relation.device_ns + since_ns - round(since_ns * (relation.drift / (1 + relation.drift)))
