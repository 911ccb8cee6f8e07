"""How a kernel answers to delays: how steeply at first, and where that changes.

The slope is the mean over the first cycles: over the shortest delay that tells it well. What is fitted to all delays is
a line that may bend, where a delay stops being hidden: the bend is where the weighted squares are least, and its
interval holds all bends that are not much worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
# A longer delay is asked where half of the interval is more than this, without what processes differ by.
_PRECISE = 0.08
# By so much the slopes of one kernel scatter from process to process (standard deviation, matmul on an H200): the same
# builds, elsewhere in memory, at another temperature.
_PROCESS_ERROR = 0.03
# A delay of less is more chance than delay.
_LEAST_OFFSETS = 8
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
    """``slope`` is the mean of that up to a delay of ``up_to``, ``slack`` the delay at which more begins to show, and
    ``beyond`` the slope from there on; both are None where long delays show no more than short ones."""

    slope: Interval
    up_to: float
    slack: Interval | None = None
    beyond: float | None = None

    def with_slack_of(self, cycles: float) -> Response:
        """Counted from a kernel without any delay: the first one, of no cycles, used up ``cycles`` of the slack."""
        if self.slack is None:
            return self
        slack = self.slack
        return replace(self, slack=Interval(slack.value + cycles, slack.low + cycles, slack.high + cycles))


@dataclass(frozen=True, slots=True)
class DelayErrors:
    """Standard errors of what delays really take, in their unit: ``offset`` of what all but the first take more than
    they are said to, ``own`` of what each of these does beside that."""

    offset: float
    own: float


def response(delays: Column, longer: Column, errors: Column, delay_errors: DelayErrors) -> Response | None:
    """Of delays, ascending, the first of which is 0: how much longer the kernel takes at each, in the same unit, with
    the standard error of that. None for a single one."""
    if len(delays) < 2:
        return None
    slope, up_to = _slope(delays, longer, errors, delay_errors)
    offset_error = delay_errors.offset
    own = delay_errors.own * _steepness(delays, longer)
    errors = np.sqrt(errors**2 + own**2 + (_NOT_LINEAR * (longer - longer[0])) ** 2)
    points = _Points(delays, longer, errors, offset_error)
    line = points.fitted(_NO_BEND)
    bent = points.bent_at(points.bends())
    if bent:
        bent += points.bent_at(_between_neighbours(min(bent, key=lambda one: one.squares), bent))
    least = min((one.squares for one in bent), default=line.squares)
    scale = points.scatter(min(least, line.squares))
    if line.squares - least < _CLEARLY * scale:
        return Response(slope, up_to)
    near = [one for one in bent if one.squares - least <= _NEAR * scale]
    # A single delay beyond the bend leaves open where the bend is. A cycle that is not hidden costs the kernel a cycle.
    finer = points.bent_at(_between_neighbours(min(near, key=_likelihood), bent))
    near += [one for one in finer if one.squares - least <= _NEAR * scale]
    likely = min(near, key=_likelihood)
    if slope.high >= likely.beyond:
        return Response(slope, up_to)
    places = [one.slack for one in near]
    slack = Interval(likely.slack, max(min(places) - offset_error, 0.0), max(places) + offset_error)
    return Response(slope, up_to, slack, likely.beyond)


def _slope(delays: Column, longer: Column, errors: Column, delay_errors: DelayErrors) -> tuple[Interval, float]:
    """With the delay that tells it: the shortest that tells it well, or else the one that tells it best."""
    told = []
    # What a delay takes more than it is said to shows as steeply as more does there: behind a bend, not as on average.
    steepness = np.abs(np.diff(longer) / np.diff(delays))
    whole = np.hypot(errors[1:], errors[0])
    for delay, more, error, steep in zip(delays[1:], longer[1:] - longer[0], whole, steepness, strict=True):
        slope = more / delay
        shown = min(max(abs(slope), steep, _LEAST_SHOWN), 1.0)
        standard_error = np.hypot(error, shown * np.hypot(delay_errors.offset, delay_errors.own)) / delay
        whole_error = float(np.hypot(standard_error, _PROCESS_ERROR))
        told.append((Interval.about(float(slope), whole_error), float(delay)))
        if delay >= _LEAST_OFFSETS * delay_errors.offset and QUANTILE * standard_error <= _PRECISE:
            return told[-1]
    return min(told, key=lambda one: one[0].error)


def _steepness(delays: Column, longer: Column) -> Column:
    """How much of a cycle more shows at each delay, of 0 to 1: on the flatter side, for a bend is seldom at a delay.
    The first delay is none, and nothing is wrong with it."""
    sides = np.clip(np.abs(np.diff(longer) / np.diff(delays)), 0, 1)
    return np.concatenate([[0.0], np.minimum(sides, np.append(sides[1:], sides[-1]))])


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


def _likelihood(fit: _Fit) -> tuple[float, float]:
    """The less, the likelier."""
    return abs(fit.beyond - 1), fit.squares


def _between_neighbours(best: _Fit, tried: Sequence[_Fit]) -> Iterator[float]:
    """More bends, from the one tried before the best to the one tried after it."""
    places = sorted(one.slack for one in tried)
    index = places.index(best.slack)
    yield from np.linspace(places[max(index - 1, 0)], places[min(index + 1, len(places) - 1)], _BENDS)[1:-1]


@dataclass(frozen=True, slots=True)
class _Points:
    delays: Column
    longer: Column
    errors: Column
    offset_error: float

    def bends(self) -> Iterator[float]:
        """Where the line may bend: between the first delay and the last."""
        if len(self.delays) > 2:
            yield from np.linspace(self.delays[1], self.delays[-1], _BENDS, endpoint=False)

    def bent_at(self, places: Iterable[float]) -> list[_Fit]:
        """The lines that become steeper there."""
        return [one for place in places if (one := self.fitted(place)).bend > 0]

    def fitted(self, slack: float) -> _Fit:
        """What delays take more than they are said to shows as far as they show at all."""
        first = self._fitted(slack, self.offset_error)
        shown = min(abs(first.slope) + 2 * first.slope_error, 1.0)
        return self._fitted(slack, max(shown, _LEAST_SHOWN) * self.offset_error)

    def _fitted(self, slack: float, offset_error: float) -> _Fit:
        """The unknowns: what the kernel takes longer with a delay of no cycles, and with all others, the slope, and by
        how much it changes at the bend."""
        added = self.delays
        columns = [np.ones_like(added), (added > 0).astype(float), added]
        columns += [np.maximum(added - slack, 0)] if slack != _NO_BEND else []
        weights = 1 / self.errors
        # That the offset is about 0 is one more observation.
        about_zero = np.zeros(len(columns))
        about_zero[1] = 1 / offset_error
        matrix = np.vstack([np.column_stack(columns) * weights[:, None], about_zero])
        observed = np.append(self.longer * weights, 0.0)
        found, *_ = np.linalg.lstsq(matrix, observed, rcond=None)
        squares = float(np.sum((matrix @ found - observed) ** 2))
        # Of the matrix itself: in its square, weights that differ much leave errors whose squares are negative.
        slope_error = float(np.linalg.norm(np.linalg.pinv(matrix)[2]))
        bend = float(found[-1]) if slack != _NO_BEND else 0.0
        return _Fit(squares, float(found[2]), slope_error, bend, slack)

    def scatter(self, squares: float) -> float:
        """By how much the points scatter more than their errors say; never less than 1."""
        degrees = len(self.delays) - 3
        return max(squares / degrees, 1.0) if degrees > 0 else 1.0
