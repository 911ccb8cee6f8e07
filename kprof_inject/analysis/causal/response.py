"""Fit a kernel's time against added delay: the initial slope, and the delay at which it changes.

The slope is the mean over the shortest delay that determines it precisely. A line that may bend is fitted to all
delays; it bends where a delay stops being hidden. The bend minimises the weighted squares, and its interval has all
bends that are not much worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

QUANTILE = 1.96
"""The quantile of the normal distribution for 95 % confidence."""

_NEAR = QUANTILE**2
# How much a bend must improve the fit. It has two more unknowns, which improve the squares by 9.2 by chance in one case
# of a hundred, and its position is free.
_CLEARLY = 12.0
_NOT_LINEAR = 0.03  # relative error of long delays: a kernel that takes twice as long behaves differently
# Half-width of an interval that is precise enough, without the differences between processes; otherwise a longer delay
# is used.
_PRECISE = 0.08
# Standard deviation of one kernel's slopes between processes (matmul on an H200): the same builds at other addresses,
# and at another temperature.
_PROCESS_ERROR = 0.03
_MIN_OFFSETS = 8  # a shorter delay, in units of the offset's error, is dominated by noise
_BENDS = 50
_MIN_SHOWN = 0.05

Column = NDArray[np.float64]


class Interval(Struct, frozen=True):
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def about(cls, value: float, standard_error: float) -> Interval:
        """Return the symmetric interval around a value with this standard error."""
        return cls(value, value - QUANTILE * standard_error, value + QUANTILE * standard_error)

    @property
    def error(self) -> float:
        """The larger of the interval's halves."""
        return max(self.high - self.value, self.value - self.low)


class Response(Struct, frozen=True):
    """A kernel's response to delays at one place.

    ``slope`` is the mean up to a delay of ``up_to``. ``slack`` is the delay at which the slope increases, and
    ``beyond`` the slope after it; both are None if long delays show no more than short ones.
    """

    slope: Interval
    up_to: float
    slack: Interval | None = None
    beyond: float | None = None

    def with_slack_of(self, cycles: float) -> Response:
        """Return the response relative to the kernel without any delay.

        A delay of no cycles uses up ``cycles`` of the slack.
        """
        if self.slack is None:
            return self
        slack = self.slack
        return replace(self, slack=Interval(slack.value + cycles, slack.low + cycles, slack.high + cycles))


class DelayErrors(Struct, frozen=True):
    """Standard errors of the delays' true lengths, in their unit.

    ``offset`` is the error that all but the first share, ``own`` the additional one of each.
    """

    offset: float
    own: float


def response(delays: Column, longer: Column, errors: Column, delay_errors: DelayErrors) -> Response | None:
    """Return the response to ascending delays, the first of which is 0; None for a single one.

    ``longer`` is how much longer the kernel takes with each delay, in the same unit, ``errors`` its standard error.
    """
    if len(delays) < 2:
        return None
    slope, up_to = _slope(delays, longer, errors, delay_errors)
    offset_error = delay_errors.offset
    # The local slope at each delay is that of the flatter side, as a bend is rarely at a delay; the first one is exact.
    sides = np.clip(np.abs(np.diff(longer) / np.diff(delays)), 0, 1)
    own = delay_errors.own * np.concatenate([[0.0], np.minimum(sides, np.append(sides[1:], sides[-1]))])
    errors = np.sqrt(errors**2 + own**2 + (_NOT_LINEAR * (longer - longer[0])) ** 2)
    points = _Points(delays, longer, errors, offset_error)
    line = points.fitted(_NO_BEND)
    # The delays at which the line may bend.
    bent = points.bent_at(np.linspace(delays[1], delays[-1], _BENDS, endpoint=False) if len(delays) > 2 else ())
    if bent:
        bent += points.bent_at(_between_neighbours(min(bent, key=lambda one: one.squares), bent))
    least = min((one.squares for one in bent), default=line.squares)
    # By how much the points scatter more than their errors.
    degrees = len(delays) - 3
    scale = max(min(least, line.squares) / degrees, 1.0) if degrees > 0 else 1.0
    if line.squares - least < _CLEARLY * scale:
        return Response(slope, up_to)
    near = [one for one in bent if one.squares - least <= _NEAR * scale]
    # A single delay after the bend does not determine the bend. A cycle that is not hidden costs the kernel a cycle.
    finer = points.bent_at(_between_neighbours(min(near, key=_likelihood), bent))
    near += [one for one in finer if one.squares - least <= _NEAR * scale]
    likely = min(near, key=_likelihood)
    if slope.high >= likely.beyond:
        return Response(slope, up_to)
    places = [one.slack for one in near]
    slack = Interval(likely.slack, max(min(places) - offset_error, 0.0), max(places) + offset_error)
    return Response(slope, up_to, slack, likely.beyond)


def _slope(delays: Column, longer: Column, errors: Column, delay_errors: DelayErrors) -> tuple[Interval, float]:
    """Return the slope and the delay that determines it: the shortest precise one, or else the most precise one."""
    slopes = []
    # An error of a delay's length shows with the local slope: after a bend, not with the mean one.
    steepness = np.abs(np.diff(longer) / np.diff(delays))
    whole = np.hypot(errors[1:], errors[0])
    for delay, more, error, steep in zip(delays[1:], longer[1:] - longer[0], whole, steepness, strict=True):
        slope = more / delay
        shown = min(max(abs(slope), steep, _MIN_SHOWN), 1.0)
        standard_error = np.hypot(error, shown * np.hypot(delay_errors.offset, delay_errors.own)) / delay
        whole_error = float(np.hypot(standard_error, _PROCESS_ERROR))
        slopes.append((Interval.about(float(slope), whole_error), float(delay)))
        if delay >= _MIN_OFFSETS * delay_errors.offset and QUANTILE * standard_error <= _PRECISE:
            return slopes[-1]
    return min(slopes, key=lambda one: one[0].error)


class _Fit(Struct, frozen=True):
    squares: float
    slope: float
    slope_error: float
    bend: float
    slack: float

    @property
    def beyond(self) -> float:
        return self.slope + self.bend


_NO_BEND = float("inf")


def _likelihood(fit: _Fit) -> tuple[float, float]:
    return abs(fit.beyond - 1), fit.squares


def _between_neighbours(best: _Fit, tried: Sequence[_Fit]) -> Iterator[float]:
    places = sorted(one.slack for one in tried)
    index = places.index(best.slack)
    yield from np.linspace(places[max(index - 1, 0)], places[min(index + 1, len(places) - 1)], _BENDS)[1:-1]


class _Points(Struct, frozen=True):
    delays: Column
    longer: Column
    errors: Column
    offset_error: float

    def bent_at(self, places: Iterable[float]) -> list[_Fit]:
        """Return the fits with a bend at these delays that become steeper there."""
        return [one for place in places if (one := self.fitted(place)).bend > 0]

    def fitted(self, slack: float) -> _Fit:
        """Fit the line. Errors of the delays' lengths show only as far as delays show at all."""
        first = self._fitted(slack, self.offset_error)
        shown = min(abs(first.slope) + 2 * first.slope_error, 1.0)
        return self._fitted(slack, max(shown, _MIN_SHOWN) * self.offset_error)

    def _fitted(self, slack: float, offset_error: float) -> _Fit:
        """Solve for the offset of all points, that of all but the first, the slope, and its change at the bend."""
        added = self.delays
        columns = [np.ones_like(added), (added > 0).astype(float), added]
        columns += [np.maximum(added - slack, 0)] if slack != _NO_BEND else []
        weights = 1 / self.errors
        # The prior that the offset is about 0 is one more observation.
        about_zero = np.zeros(len(columns))
        about_zero[1] = 1 / offset_error
        matrix = np.vstack([np.column_stack(columns) * weights[:, None], about_zero])
        observed = np.append(self.longer * weights, 0.0)
        found, *_ = np.linalg.lstsq(matrix, observed, rcond=None)
        squares = float(np.sum((matrix @ found - observed) ** 2))
        # From the matrix itself: the normal equations may give negative variances if the weights differ much.
        slope_error = float(np.linalg.norm(np.linalg.pinv(matrix)[2]))
        bend = float(found[-1]) if slack != _NO_BEND else 0.0
        return _Fit(squares, float(found[2]), slope_error, bend, slack)
