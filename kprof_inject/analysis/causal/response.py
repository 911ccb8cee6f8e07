"""How a kernel answers to a delay: by a line, or by one that bends where the delay stops being hidden.

What is fitted is the time that the kernel takes longer over the cycles that were added, by weighted least squares. The
bend is where the weighted squares are least, and its interval holds all bends that are not much worse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

QUANTILE = 1.96
"""Of the normal distribution, for 95 %."""

_NEAR = QUANTILE**2
# How much better a bend must be than none: it has two unknowns more, of which chance makes 9.2 in one case of a
# hundred, and any number of places to stand.
_CLEARLY = 12.0
# A kernel that takes twice as long is another kernel: what long delays show is no better known than to this part of it.
_NOT_LINEAR = 0.03
_BENDS = 50
_LEAST_SHOWN = 0.05

Column = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Interval:
    """A value, and between which it lies with 95 % confidence."""

    value: float
    low: float
    high: float

    @classmethod
    def about(cls, value: float, standard_error: float) -> Interval:
        return cls(value, value - QUANTILE * standard_error, value + QUANTILE * standard_error)

    @property
    def error(self) -> float:
        """The larger of its halves."""
        return max(self.high - self.value, self.value - self.low)


@dataclass(frozen=True, slots=True)
class Response:
    """``slope`` is that of the line from no delay on, ``slack`` the delay at which it bends upwards, and ``beyond`` the
    slope from there on; both are None where a line says it all."""

    slope: Interval
    slack: Interval | None = None
    beyond: float | None = None


def response(delays: Column, longer: Column, errors: Column, offset_error: float) -> Response | None:
    """Of delays, ascending, the first of which is 0: how much longer the kernel takes at each, in the same unit, with
    the standard error of that. ``offset_error`` is the standard error of what all delays but the first take more than
    they are said to. None for a single one."""
    if len(delays) < 2:
        return None
    points = _Points(delays, longer, np.hypot(errors, _NOT_LINEAR * (longer - longer[0])), offset_error)
    line = points.fitted(_NO_BEND)
    bent = [one for place in points.bends() if (one := points.fitted(place)).bend > 0]
    if bent:
        bent += [one for place in points.bends_near(bent) if (one := points.fitted(place)).bend > 0]
    least = min((one.squares for one in bent), default=line.squares)
    scale = points.scatter(min(least, line.squares))
    if line.squares - least < _CLEARLY * scale:
        return Response(Interval.about(line.slope, line.slope_error * scale**0.5))
    near = [one for one in bent if one.squares - least <= _NEAR * scale]
    # One delay behind the bend leaves open where it is. What is not hidden takes the kernel as long as itself.
    likely = min(near, key=lambda one: (abs(one.beyond - 1), one.squares))
    places = [one.slack for one in near]
    slack = Interval(likely.slack, max(min(places) - offset_error, 0.0), max(places) + offset_error)
    return Response(points.slope_before(likely, near, scale), slack, likely.beyond)


@dataclass(frozen=True, slots=True)
class _Fit:
    squares: float
    slope: float
    slope_error: float
    bend: float
    slack: float

    @property
    def beyond(self) -> float:
        return self.slope + self.bend


_NO_BEND = float("inf")


@dataclass(frozen=True, slots=True)
class _Points:
    delays: Column
    longer: Column
    errors: Column
    offset_error: float

    def bends(self) -> Iterator[float]:
        """Where the line may bend: before the last delay, with one at least on either side."""
        shortest, longest = self.delays[1], self.delays[-1]
        if len(self.delays) > 2:
            yield from np.linspace(0, shortest, _BENDS // 5, endpoint=False)[1:]
            yield from np.linspace(shortest, longest, _BENDS, endpoint=False)

    def bends_near(self, tried: Sequence[_Fit]) -> Iterator[float]:
        """More of them between those beside the best."""
        by_place = sorted(tried, key=lambda one: one.slack)
        best = min(range(len(by_place)), key=lambda index: by_place[index].squares)
        low, high = by_place[max(best - 1, 0)].slack, by_place[min(best + 1, len(by_place) - 1)].slack
        yield from np.linspace(low, high, _BENDS)[1:-1]

    def fitted(self, slack: float) -> _Fit:
        """What delays take more than they are said to shows as far as they show at all."""
        first = self._fitted(slack, self.offset_error)
        shown = min(abs(first.slope) + 2 * first.slope_error, 1.0)
        return self._fitted(slack, max(shown, _LEAST_SHOWN) * self.offset_error)

    def _fitted(self, slack: float, offset_error: float) -> _Fit:
        """The unknowns: what the kernel takes longer with a delay of no cycles, and with all others, the slope, and by
        how much it changes at the bend. Before the shortest delay, nothing tells the slope: it is taken for 0."""
        added = self.delays
        is_told = slack >= added[1]
        columns = [np.ones_like(added), (added > 0).astype(float)]
        columns += [added] if is_told else []
        columns += [np.maximum(added - slack, 0)] if slack != _NO_BEND else []
        weights = 1 / self.errors
        # That the offset is about 0 is one more observation.
        about_zero = np.zeros(len(columns))
        about_zero[1] = 1 / offset_error
        matrix = np.vstack([np.column_stack(columns) * weights[:, None], about_zero])
        observed = np.append(self.longer * weights, 0.0)
        found, *_ = np.linalg.lstsq(matrix, observed, rcond=None)
        squares = float(np.sum((matrix @ found - observed) ** 2))
        covariance = np.linalg.pinv(matrix.T @ matrix)
        slope, slope_error = (float(found[2]), float(covariance[2, 2] ** 0.5)) if is_told else (0.0, 0.0)
        return _Fit(squares, slope, slope_error, float(found[-1]) if slack != _NO_BEND else 0.0, slack)

    def slope_before(self, likely: _Fit, near: Sequence[_Fit], scale: float) -> Interval:
        """Of all bends that are nearly as good."""
        told = [Interval.about(one.slope, one.slope_error * scale**0.5) for one in near if one.slope_error]
        if likely.slope_error:
            return Interval(likely.slope, min(one.low for one in told), max(one.high for one in told))
        # It rises to the shortest delay no faster than behind that.
        longer = float(self.longer[1] - self.longer[0] + QUANTILE * np.hypot(self.errors[0], self.errors[1]))
        return Interval(0.0, 0.0, max(longer / float(self.delays[1]), 0.0))

    def scatter(self, squares: float) -> float:
        """By how much the points scatter more than their errors say; never less than 1."""
        degrees = len(self.delays) - 3
        return max(squares / degrees, 1.0) if degrees > 0 else 1.0
