"""A straight line for each counter of a launch, all of the same rate, and what the timer readings leave of it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.clocks.parts import parts
from kprof_inject.timeline.clocks.rate import Rate, reading_errors
from kprof_inject.timeline.clocks.readings import Readings


@dataclass(frozen=True, slots=True)
class Left:
    """Some readings, in order of ``counter`` and time, by what they leave of their counters' lines: ``height_ns`` at
    ``cycles`` since the counter's base, where the line is at ``line_ns`` since the first base of all."""

    counter: NDArray[np.int32]
    cycles: NDArray[np.int64]
    line_ns: NDArray[np.float64]
    height_ns: NDArray[np.float64]
    error_ns: NDArray[np.float64]
    side: NDArray[np.int8]
    believed: NDArray[np.bool_]

    def at(self, rows: NDArray[np.int64]) -> Left:
        """The same readings, or some of them, in another order."""
        return Left(*(getattr(self, field.name)[rows] for field in fields(self)))

    def less(self, ns: NDArray[np.float64]) -> Left:
        """The same, with so much of each height taken off."""
        return replace(self, height_ns=self.height_ns - ns)


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of a launch's readings; ``counter`` and ``believed`` are as ``agreement`` gives them. At
    ``base_cycles`` (counter), its least value, a counter's line is at ``base_ns`` (counter)."""

    readings: Readings
    counter: NDArray[np.int32]
    believed: NDArray[np.bool_]
    rate: Rate
    base_cycles: NDArray[np.int64]
    base_ns: NDArray[np.int64]

    def left(self, rows: slice | NDArray[np.int64]) -> Left:
        """What some of the readings leave."""
        readings, counter = self.readings.at(rows), self.counter[rows]
        cycles = readings.cycles - self.base_cycles[counter]
        since_base_ns = cycles * self.rate.ns
        return Left(
            counter,
            cycles,
            (self.base_ns[counter] - int(self.base_ns.min())) + since_base_ns,
            # Differences of integers first: globaltimer values do not fit into a double.
            (readings.ns - self.base_ns[counter])
            + (readings.shift_ns + readings.side * self.rate.more_shift_ns)
            - since_base_ns,
            reading_errors(readings, self.rate.ns),
            readings.side,
            self.believed[rows],
        )


def straight_lines(readings: Readings, counter: NDArray[np.int32], believed: NDArray[np.bool_], rate: Rate) -> Lines:
    """The lines through the readings that are believed. A counter without any is placed by the middle one of those that
    it has, and within the time of the others."""
    begins = np.flatnonzero(np.append(True, np.diff(counter) != 0))
    base_cycles = readings.cycles[begins]
    lines = Lines(readings, counter, believed, rate, base_cycles, readings.ns[begins])
    # The first reading of a counter may be any, and is only near enough for a double.
    total, moment = np.zeros((2, len(begins)))
    for part in parts(len(counter)):
        left = lines.left(part)
        weight = left.believed / left.error_ns**2
        total += np.bincount(left.counter, weight, len(begins))
        moment += np.bincount(left.counter, weight * left.height_ns, len(begins))
    base_ns = lines.base_ns + np.rint(moment / np.where(total == 0, 1, total)).astype(np.int64)
    lost = np.flatnonzero(total == 0)
    if lost.size:
        base_ns[lost] = _guessed(replace(lines, base_ns=base_ns), lost)
    return replace(lines, base_ns=base_ns)


def _guessed(lines: Lines, counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where the lines of ``counters`` are at their bases, none of whose readings is believed: by the middle one of
    those that are within the launch, else of all, and then within the launch."""
    readings = lines.readings
    rows = np.flatnonzero(np.isin(lines.counter, counters))
    sound_ns = readings.ns[lines.believed] if lines.believed.any() else readings.ns
    first_ns, last_ns = int(sound_ns.min()), int(sound_ns.max())
    is_within = (readings.ns[rows] >= first_ns) & (readings.ns[rows] <= last_ns)
    has_one = np.isin(lines.counter[rows], lines.counter[rows[is_within]])
    left = lines.left(rows[is_within | ~has_one])
    base_ns = lines.base_ns[counters] + np.rint(_medians(left)).astype(np.int64)
    ends = np.searchsorted(lines.counter, counters, side="right") - 1
    half_ns = np.rint((readings.cycles[ends] - lines.base_cycles[counters]) * (lines.rate.ns / 2)).astype(np.int64)
    return np.asarray(np.clip(base_ns + half_ns, first_ns, last_ns) - half_ns)


def _medians(left: Left) -> NDArray[np.float64]:
    """The median height of each counter."""
    heights_ns = left.height_ns[np.lexsort((left.height_ns, left.counter))]
    begins = np.flatnonzero(np.append(True, np.diff(left.counter) != 0))
    ends = np.append(begins[1:], len(heights_ns))
    middle_ns: NDArray[np.float64] = (heights_ns[(begins + ends - 1) // 2] + heights_ns[(begins + ends) // 2]) / 2
    return middle_ns
