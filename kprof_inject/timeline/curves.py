"""What the timer readings of each counter leave of a straight line, as a curve through them.

Mostly, the clocks of all SMs wander together: that is found first, as one walk through the readings of all. What this
leaves on each SM is a walk of its own. None goes further than the launch's readings say that it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.rate import PART, means, of_one_length, parts
from kprof_inject.timeline.readings import reading_weights
from kprof_inject.timeline.timer_lines import Lines, Residuals, stacked

_MIN_STEP_NS2 = 1e-3
# By how much the readings' errors are taken too large, round by round: at first the walk goes smoothly past a reading
# that is off, which then shows as such; a walk that went through it at once would never find out.
_CAUTION = (30.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 1.0)


def likeliest_walks(
    residuals: Residuals, linked: NDArray[np.bool_], walk_ns2_per_ns: float | NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The likeliest walks through readings that have an error: their heights at the readings, and how much each reading
    counted in the end, 0 to 1.

    The rate of a clock wanders, so what is left of a straight line is a random walk. The likeliest one is straight
    between two readings, and at the readings it is a penalised least squares fit: near one another they are averaged,
    far apart they stand for themselves. Nothing can overshoot between them.

    ``left`` has one walk after the other, each in the order of time; ``linked`` says which readings are of the same
    walk as the one before. The variance of what a walk climbs grows by ``walk_ns2_per_ns`` with the time. Columns may
    have rows, one for each of several launches, of which ``walk_ns2_per_ns`` then has a column."""
    gap_ns = np.diff(residuals.line_ns, prepend=0)
    stiffness = np.where(linked, 1 / np.maximum(gap_ns * walk_ns2_per_ns, _MIN_STEP_NS2), 0.0)
    weights = residuals.plausible.astype(np.float64)
    for caution in _CAUTION:
        error_ns = caution * residuals.error_ns
        heights_ns = _balance(weights / error_ns**2, residuals.height_ns, stiffness)
        weights = residuals.plausible * reading_weights((residuals.height_ns - heights_ns) / error_ns, residuals.side)
    return heights_ns, weights


def _balance(
    weight: NDArray[np.float64], target: NDArray[np.float64], stiffness: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Where chains of springs come to rest: each node hangs by ``weight`` on its ``target`` and by ``stiffness`` on the
    node before it, along the last axis. A chain without any weight rests at 0.

    Every second node is replaced by springs between its neighbours and their targets, until one node is left: as many
    steps as the number of nodes has binary digits. All terms are positive, so nothing cancels out."""
    launches, count = weight.shape[:-1], weight.shape[-1]
    size = 1 << max(count - 1, 0).bit_length()
    # Each node's weight, and what it is pulled by; nodes that hang on nothing make every step an even one.
    nodes = np.zeros((2, *launches, size))
    nodes[0, ..., :count] = weight
    np.multiply(weight, target, out=nodes[1, ..., :count])
    # The spring before each node, and one behind the last.
    springs = np.zeros((*launches, size + 1))
    springs[..., 1:count] = stiffness[..., 1:]
    levels = []
    while size > 1:
        gone = nodes[..., 1::2]
        before, after = springs[..., 1::2], springs[..., 2::2]
        total = gone[0] + before + after
        total += total == 0
        to_before, to_after = before / total, after / total
        levels.append((to_before, to_after, gone[1] / total))
        nodes = nodes[..., ::2] + to_before * gone
        size //= 2
        nodes[..., 1:] += (to_after * gone)[..., :-1]
        springs = np.zeros((*launches, size + 1))
        np.multiply(to_before, after, out=springs[..., 1:])
    rest: NDArray[np.float64] = nodes[1] / np.where(nodes[0] == 0, 1, nodes[0])
    for to_before, to_after, pulled in reversed(levels):
        both = np.empty((*launches, 2 * rest.shape[-1]))
        both[..., ::2] = rest
        moved = pulled + to_before * rest
        moved[..., :-1] += to_after[..., :-1] * rest[..., 1:]
        both[..., 1::2] = moved
        rest = both
    return rest[..., :count]


# How far walks go if readings do not tell: as much as a rate that is 3 % off for 4 µs, and with the square root of the
# time. How far at most: a rate that is 25 % off. And at least: a launch never tells enough to rule out that its clocks
# wander.
USUAL_WALK_NS2_PER_NS = (0.03 * 4000.0) ** 2 / 4000.0
_MAX_WALK_NS2_PER_NS = (0.25 * 4000.0) ** 2 / 4000.0
_MIN_WALK_NS2_PER_NS = USUAL_WALK_NS2_PER_NS / 64
_HELD_UP_NS = 100.0
# A constant clock and the timer count the same crystal.
_CONSTANT_WALK_NS2_PER_NS = 1e-6
# No clock turns this share of its rate around between two readings, however much they contradict each other.
_MAX_SLOPE_CHANGE = 0.5
_FELT = 1 << 12
# Room for the cycles of the longest launch that a counter can time, beside its number.
COUNTER_SHIFT = 44
# The share of the pairs of readings that are no further apart than the walk and the noise take them, and how many
# standard deviations of noise alone that is: 1.90 of a triangular distribution, 1.96 of a normal one.
_USUAL_SHARE = 0.95
_USUAL_DEVIATIONS = 1.93
# The variance of so many pairs is known to about this, over the square root of their number.
_VARIANCE_ERROR = 2.0
_ENOUGH_PAIRS = 32
_TURNS = 4
_ENOUGH_COUNTERS = 8
# Of a normal distribution, so much is within one standard deviation.
_ONE_DEVIATION = 0.68


@dataclass(frozen=True, slots=True)
class Curves:
    """One curve for each counter, through knots in the order of time. ``keys`` are the number of the counter and the
    knot's cycles in one number, ``heights_ns`` the heights there, ``first`` where each one's knots begin (and one
    more)."""

    keys: NDArray[np.int64]
    heights_ns: NDArray[np.float64]
    first: NDArray[np.int64]

    def length_cycles(self, counter: NDArray[np.int64]) -> NDArray[np.int64]:
        """From the base of each of these counters to its last knot."""
        return self.keys[self.first[counter + 1] - 1] - (counter << COUNTER_SHIFT)

    def at(self, counter: NDArray[np.int64], cycles: NDArray[np.int64]) -> NDArray[np.float64]:
        """The heights at the given cycles since the counter's base; before and after its knots, that of the nearest."""
        begin, end = self.first[counter], self.first[counter + 1] - 1
        key = np.clip((counter << COUNTER_SHIFT) + cycles, self.keys[begin], self.keys[end])
        after = np.clip(np.searchsorted(self.keys, key), begin, end)
        before = np.maximum(after - 1, begin)
        width = self.keys[after] - self.keys[before]
        part = (key - self.keys[before]) / np.where(width == 0, 1, width)
        rise = self.heights_ns[after] - self.heights_ns[before]
        heights: NDArray[np.float64] = self.heights_ns[before] + rise * np.where(width == 0, 1.0, part)
        return heights


@dataclass(frozen=True, slots=True)
class CurveFit:
    """``curves``, the root mean square of the readings' distances from them, each as far as it counted, and the
    largest."""

    curves: Curves
    residual_ns: float
    worst_ns: float


def flat_curves(counters: int) -> Curves:
    """No curve at all, for so many counters."""
    every = np.arange(counters + 1)
    return Curves(every[:-1] << COUNTER_SHIFT, np.zeros(counters), every)


def fit_curves(launches: Sequence[Lines]) -> list[CurveFit]:
    """Fit curves through all readings of each launch's lines."""
    fittings = _with_common_curves(launches)
    pieces = [(fitting, part) for fitting in fittings for part in parts(len(fitting.keys))]
    for numbers in of_one_length([part.stop - part.start for _, part in pieces]):
        _fit_own_walks([pieces[number] for number in numbers])
    return [fitting.fit() for fitting in fittings]


def _spaced(count: int) -> NDArray[np.int64]:
    """Rows of a launch's readings: all, or evenly spaced ones of more than ``PART``."""
    return np.arange(0, count, 1 + count // PART)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A launch whose curves are being fitted: for each reading the knot's key and height, and how much it counted."""

    lines: Lines
    common: _CommonCurve
    own_walk: float
    keys: NDArray[np.int64]
    heights_ns: NDArray[np.float64]
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, lines: Lines, some: Residuals, common: _CommonCurve | None) -> _Fitting:
        """``common`` is None of a constant clock, which does not wander."""
        own_walk = _CONSTANT_WALK_NS2_PER_NS
        if common is not None:
            own = _wandering(some.lowered_by(common.at(some)))
            own_walk = float(np.clip(own, _MIN_WALK_NS2_PER_NS, _most_walk(some)))
        count = len(lines.counter)
        keys, heights_ns = np.empty(count, dtype=np.int64), np.empty(count)
        return cls(lines, common or _NOTHING_IN_COMMON, own_walk, keys, heights_ns, np.empty(count, dtype=np.float32))

    def fit(self) -> CurveFit:
        lines = self.lines
        heights_ns = _without_turns(self.keys, self.heights_ns, lines.rate.ns)
        first = np.searchsorted(lines.counter, np.arange(len(lines.base_ns) + 1))
        return CurveFit(Curves(self.keys, heights_ns, first), *_distances(lines, heights_ns, self.weights))


def _with_common_curves(launches: Sequence[Lines]) -> list[_Fitting]:
    some = [lines.residuals(_spaced(len(lines.counter))) for lines in launches]
    wandering = [number for number, lines in enumerate(launches) if not lines.rate.constant]
    curves = dict(zip(wandering, _common_curves([some[number] for number in wandering]), strict=True))
    return [
        _Fitting.of(lines, residuals, curves.get(number))
        for number, (lines, residuals) in enumerate(zip(launches, some, strict=True))
    ]


def _fit_own_walks(pieces: Sequence[tuple[_Fitting, slice]]) -> None:
    """Of readings of launches, fill in what is left of the common curve, which each counter has of its own."""
    residuals = [fitting.lines.residuals(part) for fitting, part in pieces]
    common_ns = [fitting.common.at(one) for (fitting, _), one in zip(pieces, residuals, strict=True)]
    left = stacked([one.lowered_by(ns) for one, ns in zip(residuals, common_ns, strict=True)])
    linked = np.diff(left.counter, prepend=-1) == 0
    walks = np.array([fitting.own_walk for fitting, _ in pieces])[:, None]
    for (fitting, part), one, ns, own_ns, weights in zip(
        pieces, residuals, common_ns, *likeliest_walks(left, linked, walks), strict=True
    ):
        fitting.keys[part] = (one.counter.astype(np.int64) << COUNTER_SHIFT) + one.cycles
        fitting.heights_ns[part] = ns + own_ns
        fitting.weights[part] = weights


@dataclass(frozen=True, slots=True)
class _CommonCurve:
    """What all counters have in common: heights at times, which ascend."""

    times_ns: NDArray[np.float64]
    heights_ns: NDArray[np.float64]

    def at(self, residuals: Residuals) -> NDArray[np.float64]:
        return np.interp(residuals.line_ns, self.times_ns, self.heights_ns)


_NOTHING_IN_COMMON = _CommonCurve(np.zeros(1), np.zeros(1))


def _common_curves(launches: Sequence[Residuals]) -> list[_CommonCurve]:
    """Find one walk through the readings of all counters of each launch; none if these have little in common. Where
    counters have readings at different times, their lines do not yet agree with the walk, and both are found in
    turns."""
    curves = [_NOTHING_IN_COMMON] * len(launches)
    asked = [
        number
        for number, residuals in enumerate(launches)
        if residuals.counter[-1] - residuals.counter[0] >= _ENOUGH_COUNTERS - 1
    ]
    before = {number: _wandering(launches[number]) for number in asked}
    for places in of_one_length([len(launches[number].counter) for number in asked]):
        numbers = [asked[place] for place in places]
        some = [launches[number] for number in numbers]
        most = [_most_walk(residuals) for residuals in some]
        walks = [
            float(np.clip(before[number], USUAL_WALK_NS2_PER_NS, one))
            for number, one in zip(numbers, most, strict=True)
        ]
        found = _walks_in_common(stacked([one.at(np.argsort(one.line_ns)) for one in some]), np.array(walks)[:, None])
        for number, residuals, times_ns, heights_ns in zip(numbers, some, *found, strict=True):
            curve = _CommonCurve(times_ns, heights_ns)
            if _wandering(residuals.lowered_by(curve.at(residuals))) <= max(before[number], 0.0):
                curves[number] = curve
    return curves


def _walks_in_common(
    in_time: Residuals, walk_ns2_per_ns: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the times and the heights of the walks; each has the shape (launch, reading)."""
    linked = np.arange(in_time.counter.shape[-1]) > 0
    row = np.arange(len(in_time.counter))[:, None]
    counter = row * (int(in_time.counter.max()) + 1) + in_time.counter
    offset_ns = np.zeros(in_time.height_ns.shape)
    for _ in range(_TURNS):
        standing = in_time.lowered_by(offset_ns)
        apart_ns = np.abs(np.diff(standing.height_ns))
        scatter_ns = np.quantile(apart_ns, _ONE_DEVIATION, axis=-1, keepdims=True) / np.sqrt(2)
        standing = replace(standing, error_ns=np.maximum(standing.error_ns, scatter_ns))
        heights_ns, weights = likeliest_walks(standing, linked, walk_ns2_per_ns)
        offset_ns = means(counter.ravel(), (in_time.height_ns - heights_ns).ravel(), weights.ravel())[counter]
    return in_time.line_ns, heights_ns


def _most_walk(residuals: Residuals) -> float:
    """Where the timer is finer than what a busy memory holds its readings up by, that looks like wandering too."""
    is_fine = residuals.error_ns.min() < _HELD_UP_NS
    return USUAL_WALK_NS2_PER_NS if is_fine else _MAX_WALK_NS2_PER_NS


def _wandering(residuals: Residuals) -> float:
    """How far walks go by what the readings show, in square nanoseconds per nanosecond; the usual if they do not tell.

    The distance of two readings of a counter is noise and what the walk went in between. It tells something of the walk
    where that could be the larger part."""
    found = []
    lag = 1
    while len(residuals.counter) - lag >= _ENOUGH_PAIRS:
        both = residuals.counter[lag:] == residuals.counter[:-lag]
        both &= residuals.plausible[lag:] & residuals.plausible[:-lag]
        time_ns = (residuals.line_ns[lag:] - residuals.line_ns[:-lag])[both]
        noise_ns2 = (residuals.error_ns[lag:] ** 2 + residuals.error_ns[:-lag] ** 2)[both]
        tells = time_ns * _MAX_WALK_NS2_PER_NS >= noise_ns2
        pairs = np.count_nonzero(tells)
        if pairs >= _ENOUGH_PAIRS:
            apart_ns = (residuals.height_ns[lag:] - residuals.height_ns[:-lag])[both][tells]
            at_least_ns2 = (apart_ns / _USUAL_DEVIATIONS) ** 2 * (1 - _VARIANCE_ERROR / np.sqrt(pairs))
            found.append(float(np.quantile((at_least_ns2 - noise_ns2[tells]) / time_ns[tells], _USUAL_SHARE)))
        lag *= 2
    return max(found, default=USUAL_WALK_NS2_PER_NS)


def _without_turns(keys: NDArray[np.int64], heights_ns: NDArray[np.float64], rate_ns: float) -> NDArray[np.float64]:
    """The heights, with no step steeper than a clock can be: time must not run backwards."""
    turned = heights_ns.copy()
    for part in parts(len(keys)):
        # As far as a turn can be felt.
        around = slice(max(part.start - _FELT, 0), part.stop + _FELT)
        heights = heights_ns[around]
        most_ns = _MAX_SLOPE_CHANGE * rate_ns * np.diff(keys[around])
        if (np.abs(np.diff(heights)) <= most_ns).all():
            continue
        # Of different counters any two heights are possible.
        most_ns[np.diff(keys[around] >> COUNTER_SHIFT) != 0] = np.ptp(heights) + 1
        along = np.append(0, np.cumsum(most_ns))
        middle = (_lowest_reached(heights, along) - _lowest_reached(-heights, along)) / 2
        turned[part] = middle[part.start - around.start :][: part.stop - part.start]
    return turned


def _lowest_reached(heights: NDArray[np.float64], along: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lowest that one can be at each place, coming from any of ``heights`` and climbing as much as one goes
    ``along``."""
    forward = np.minimum.accumulate(heights - along) + along
    backward = np.minimum.accumulate((heights + along)[::-1])[::-1] - along
    return np.minimum(forward, backward)


def _distances(lines: Lines, heights_ns: NDArray[np.float64], weights: NDArray[np.float32]) -> tuple[float, float]:
    """The root mean square and the largest. A reading further off than the launch is long is none."""
    placed = np.bincount(lines.counter, lines.plausible) > 0
    longest_ns = np.ptp(lines.readings.ns[lines.plausible]) if lines.plausible.any() else 0
    total = squares = worst_ns = 0.0
    for part in parts(len(heights_ns)):
        residuals = lines.residuals(part).lowered_by(heights_ns[part])
        weight = weights[part] / residuals.error_ns**2
        total += float(weight.sum())
        squares += float(weight @ residuals.height_ns**2)
        far_ns = np.abs(residuals.height_ns[placed[residuals.counter]])
        worst_ns = max(worst_ns, float(far_ns.max(initial=0.0, where=far_ns <= longest_ns)))
    return float(np.sqrt(squares / total)) if total else 0.0, worst_ns
