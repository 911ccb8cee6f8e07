"""Straight lines through timer readings, one for each counter of a launch, and the readings' distances from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.rate import ClockRate, parts, reading_errors
from kprof_inject.timeline.readings import Readings


@dataclass(frozen=True, slots=True)
class Residuals:
    """Distances of some readings from their counters' lines, in order of ``counter`` and time."""

    counter: NDArray[np.int32]
    cycles: NDArray[np.int64]
    """Cycles since the counter's base."""
    line_ns: NDArray[np.float64]
    """Time of the line at these cycles, since the first base of all counters."""
    height_ns: NDArray[np.float64]
    """Distance of the reading above the line."""
    error_ns: NDArray[np.float64]
    """Standard error of the reading."""
    side: NDArray[np.int8]
    """Side of the reading, as in ``Readings``."""
    plausible: NDArray[np.bool_]
    """Plausibility of the reading, as ``agreement`` returns it."""

    def at(self, rows: NDArray[np.int64]) -> Residuals:
        """Return these readings, or some of them, in the order of ``rows``."""
        return Residuals(*(getattr(self, field.name)[rows] for field in fields(self)))

    def lowered_by(self, ns: NDArray[np.float64]) -> Residuals:
        """Return the readings, each lowered by its part of ``ns``."""
        return replace(self, height_ns=self.height_ns - ns)


def stacked(launches: Sequence[Residuals]) -> Residuals:
    """Stack the residuals of launches that have equally many readings: each column has the shape (launch, reading)."""
    return Residuals(
        *(np.stack([getattr(residuals, field.name) for residuals in launches]) for field in fields(Residuals))
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """Straight line for each counter of a launch, all of the same rate, through its readings."""

    readings: Readings
    counter: NDArray[np.int32]
    """Counter of each reading, as ``agreement`` numbers them."""
    plausible: NDArray[np.bool_]
    """Plausibility of each reading, as ``agreement`` returns it."""
    rate: ClockRate
    base_cycles: NDArray[np.int64]
    """Smallest value of each counter."""
    base_ns: NDArray[np.int64]
    """Time of each counter's line at ``base_cycles``."""

    def residuals(self, rows: slice | NDArray[np.int64]) -> Residuals:
        """Return the distances of some readings from their lines."""
        readings, counter = self.readings.at(rows), self.counter[rows]
        cycles = readings.cycles - self.base_cycles[counter]
        since_base_ns = cycles * self.rate.ns
        return Residuals(
            counter,
            cycles,
            (self.base_ns[counter] - int(self.base_ns.min())) + since_base_ns,
            # Differences of integers first: globaltimer values do not fit into a double.
            (readings.ns - self.base_ns[counter])
            + (readings.shift_ns + readings.side * self.rate.more_shift_ns)
            - since_base_ns,
            reading_errors(readings, self.rate.ns),
            readings.side,
            self.plausible[rows],
        )


def straight_lines(
    readings: Readings, counter: NDArray[np.int32], plausible: NDArray[np.bool_], rate: ClockRate
) -> Lines:
    """Fit the lines to the plausible readings.

    A counter without plausible readings is placed by the median of those that it has, within the time of the others.
    """
    begins = np.flatnonzero(np.append(True, np.diff(counter) != 0))
    base_cycles = readings.cycles[begins]
    lines = Lines(readings, counter, plausible, rate, base_cycles, readings.ns[begins])
    # The first reading of a counter may be any, and is only a reference close enough for a double.
    total, moment = np.zeros((2, len(begins)))
    for part in parts(len(counter)):
        residuals = lines.residuals(part)
        weight = residuals.plausible / residuals.error_ns**2
        total += np.bincount(residuals.counter, weight, len(begins))
        moment += np.bincount(residuals.counter, weight * residuals.height_ns, len(begins))
    base_ns = lines.base_ns + np.rint(moment / np.where(total == 0, 1, total)).astype(np.int64)
    lost = np.flatnonzero(total == 0)
    if lost.size:
        base_ns[lost] = _guessed(replace(lines, base_ns=base_ns), lost)
    return replace(lines, base_ns=base_ns)


def _guessed(lines: Lines, counters: NDArray[np.int64]) -> NDArray[np.int64]:
    """Estimate the lines of ``counters`` at their bases, if none of their readings is plausible.

    Each is placed by the median of its readings within the launch, or of all if none is within it, and then limited to
    the launch.
    """
    readings = lines.readings
    rows = np.flatnonzero(np.isin(lines.counter, counters))
    sound_ns = readings.ns[lines.plausible] if lines.plausible.any() else readings.ns
    first_ns, last_ns = int(sound_ns.min()), int(sound_ns.max())
    is_within = (readings.ns[rows] >= first_ns) & (readings.ns[rows] <= last_ns)
    has_one = np.isin(lines.counter[rows], lines.counter[rows[is_within]])
    residuals = lines.residuals(rows[is_within | ~has_one])
    base_ns = lines.base_ns[counters] + np.rint(_medians(residuals)).astype(np.int64)
    ends = np.searchsorted(lines.counter, counters, side="right") - 1
    half_ns = np.rint((readings.cycles[ends] - lines.base_cycles[counters]) * (lines.rate.ns / 2)).astype(np.int64)
    return np.asarray(np.clip(base_ns + half_ns, first_ns, last_ns) - half_ns)


def _medians(residuals: Residuals) -> NDArray[np.float64]:
    """Return the median height of each counter."""
    heights_ns = residuals.height_ns[np.lexsort((residuals.height_ns, residuals.counter))]
    begins = np.flatnonzero(np.append(True, np.diff(residuals.counter) != 0))
    ends = np.append(begins[1:], len(heights_ns))
    middle_ns: NDArray[np.float64] = (heights_ns[(begins + ends - 1) // 2] + heights_ns[(begins + ends) // 2]) / 2
    return middle_ns
