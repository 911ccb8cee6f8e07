"""What the timer readings of each SM leave of a straight line, as a curve through them.

The rate of a clock wanders, so what is left of a line is a random walk; a reading shows it with an error. The likeliest
walk is straight between two readings, and at the readings it is a penalised least squares fit: near one another they
are averaged, far apart they stand for themselves. Nothing can overshoot between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.readings import Readings, trust

# How far the walk goes: as much as a rate that is 3 % off for 4 µs, and with the square root of the time.
_WALK_NS2_PER_NS = (0.03 * 4000.0) ** 2 / 4000.0
_LEAST_STEP_NS2 = 1.0
# No clock turns this share of its rate around between two readings, however much they contradict each other.
_STEEPEST = 0.5
# By how much the readings' errors are taken too large, round by round: at first the walk goes smoothly past a reading
# that is off, which then shows as such; a walk that went through it at once would never find out.
_CAUTION = (10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 1.0)
# Room for the cycles of the longest launch that the counter can time, beside the number of the SM.
_ROW_SHIFT = 44


@dataclass(frozen=True, slots=True)
class Curves:
    """One curve for each SM, through knots in the order of time. ``keys`` are the number of the SM's row and the knot's
    cycles in one number, ``heights_ns`` the heights there, ``first`` where each row's knots begin (and one more)."""

    keys: NDArray[np.int64]
    heights_ns: NDArray[np.float64]
    first: NDArray[np.int64]

    def at(self, row: NDArray[np.int64], cycles: NDArray[np.int64]) -> NDArray[np.float64]:
        """The heights at the given cycles since the row's base; before and after its knots, that of the nearest."""
        begin, end = self.first[row], self.first[row + 1] - 1
        key = np.clip((row << _ROW_SHIFT) + cycles, self.keys[begin], self.keys[end])
        after = np.clip(np.searchsorted(self.keys, key), begin, end)
        before = np.maximum(after - 1, begin)
        width = self.keys[after] - self.keys[before]
        part = (key - self.keys[before]) / np.where(width == 0, 1, width)
        rise = self.heights_ns[after] - self.heights_ns[before]
        heights: NDArray[np.float64] = self.heights_ns[before] + rise * np.where(width == 0, 1.0, part)
        return heights


def flat_curves(rows: int) -> Curves:
    """No curve at all, for so many SMs."""
    every = np.arange(rows + 1)
    return Curves(every[:-1] << _ROW_SHIFT, np.zeros(rows), every)


def fit_curves(
    readings: Readings,
    cycles: NDArray[np.int64],
    left_ns: NDArray[np.float64],
    weight: NDArray[np.float64],
    rate_ns: float,
) -> tuple[Curves, NDArray[np.float64], NDArray[np.float64]]:
    """The curves, what they leave of ``left_ns``, and the final weights.

    ``readings.sm`` numbers the SMs from 0 without gaps, ``cycles`` are since each SM's base, ``weight`` is how much
    each reading counts to begin with; reweighting in rounds finds those that contradict their neighbours.
    """
    order = np.lexsort((cycles, readings.sm))
    sm, at, left = readings.sm[order], cycles[order], left_ns[order]
    side, error_ns = readings.side[order], readings.error_ns[order]
    first = np.searchsorted(sm, np.arange(int(sm[-1]) + 2))
    # One row for each SM, its readings to the left; what is behind them has no weight and hangs on to the last.
    shape = (len(first) - 1, int(np.diff(first).max()))
    place = (sm, np.arange(len(sm)) - first[sm])

    step_ns2 = np.full(shape, _LEAST_STEP_NS2)
    gaps_ns = np.diff(at, prepend=0) * rate_ns
    gaps_ns[first[:-1]] = 0  # before the first of an SM there is none
    step_ns2[place] = np.maximum(gaps_ns * _WALK_NS2_PER_NS, _LEAST_STEP_NS2)
    target = np.zeros(shape)
    target[place] = left
    weights = np.zeros(shape)
    trusted = weight[order] * error_ns**2
    for caution in _CAUTION:
        weights[place] = trusted / (caution * error_ns) ** 2
        heights = _likeliest_walk(weights, target, 1 / step_ns2)[place]
        rest = left - heights
        trusted = trust(rest / (caution * error_ns), side)

    heights = _without_turns(heights, gaps_ns, first[sm])
    as_given = np.argsort(order)
    return (
        Curves((sm << _ROW_SHIFT) + at, heights, first),
        (left - heights)[as_given],
        (trusted / error_ns**2)[as_given],
    )


def _likeliest_walk(
    weight: NDArray[np.float64], target: NDArray[np.float64], stiffness: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve each row's tridiagonal system, all rows at once: ``weight`` pulls to ``target``, ``stiffness`` (between a
    column and the one before it) to the neighbours."""
    count = weight.shape[1]
    diagonal = weight + stiffness
    diagonal[:, 0] -= stiffness[:, 0]
    diagonal[:, :-1] += stiffness[:, 1:]
    value = weight * target
    for column in range(1, count):
        factor = stiffness[:, column] / diagonal[:, column - 1]
        diagonal[:, column] -= factor * stiffness[:, column]
        value[:, column] += factor * value[:, column - 1]
    value[:, -1] /= diagonal[:, -1]
    for column in range(count - 2, -1, -1):
        value[:, column] += stiffness[:, column + 1] * value[:, column + 1]
        value[:, column] /= diagonal[:, column]
    return value


def _without_turns(
    heights: NDArray[np.float64], gaps_ns: NDArray[np.float64], start: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The heights, with no step steeper than a clock can be: time must not run backwards.

    ``gaps_ns`` is the time since the height before, 0 for the first of an SM; ``start`` is where that first stands."""
    most = _STEEPEST * gaps_ns
    climbs = np.cumsum(np.clip(np.diff(heights, prepend=0), -most, most))
    turned: NDArray[np.float64] = heights[start] + climbs - climbs[start]
    return turned
