"""Curves through the timer readings of each counter, relative to its straight line.

Mostly, the clocks of all SMs wander together: one walk through the readings of all is fitted first. The rest of each SM
is a walk of its own. No walk goes further than the launch's readings show.

Stores in a busy memory delay the readings at both ends of a CTA, by hundreds of nanoseconds. A curve through them would
be too steep inside of the CTAs. So the two sides are compared where an SM ends a CTA and begins another, and where it
begins one and ends another (``reading_delay_ns``). If its clock's rate is not the line's, this adds to the one and
takes from the other, in proportion to the time between the readings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.timeline.columns import Mask, Numbers, Reals
from kprof_inject.timeline.rate import Lines, Residuals, means, of_one_length, parts, spaced, stacked
from kprof_inject.timeline.readings import reading_weights

_MIN_STEP_NS2 = 1e-3  # keeps the stiffness finite between two readings at one time
# Factors by which the readings' errors are overestimated in each round. The first walk passes an outlier smoothly, so
# that its distance shows; a walk that went through it at once would never reject it.
_CAUTION = (30.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 1.0)


def likeliest_walks(residuals: Residuals, linked: Mask, walk_ns2_per_ns: float | Reals) -> tuple[Reals, Reals]:
    """Return the likeliest walks through readings with errors: height and weight (0 to 1) of each reading.

    The rate of a clock wanders, so the distance from a straight line is a random walk. The likeliest walk is straight
    between two readings, and at the readings it is a penalised least squares fit: close readings are averaged, distant
    ones are met individually. Nothing can overshoot between them.

    ``residuals`` has one walk after the other, each in the order of time; ``linked`` is true for readings of the same
    walk as the one before. The variance of a walk's climb grows by ``walk_ns2_per_ns`` with time. Columns may have one
    row for each of several launches; ``walk_ns2_per_ns`` then has one column.
    """
    gap_ns = np.diff(residuals.line_ns, prepend=0)
    stiffness = np.where(linked, 1 / np.maximum(gap_ns * walk_ns2_per_ns, _MIN_STEP_NS2), 0.0)
    weights = residuals.plausible.astype(np.float64)
    for caution in _CAUTION:
        error_ns = caution * residuals.error_ns
        heights_ns = _balance(weights / error_ns**2, residuals.height_ns, stiffness)
        weights = residuals.plausible * reading_weights((residuals.height_ns - heights_ns) / error_ns, residuals.side)
    return heights_ns, weights


def _balance(weight: Reals, target: Reals, stiffness: Reals) -> Reals:
    """Return the rest positions of chains of springs, along the last axis.

    Each node is tied by ``weight`` to its ``target`` and by ``stiffness`` to the node before it. A chain without any
    weight rests at 0. Every second node is replaced by springs between its neighbours and their targets, until one node
    is left. All terms are positive, so nothing cancels out.
    """
    launches, count = weight.shape[:-1], weight.shape[-1]
    size = 1 << max(count - 1, 0).bit_length()
    # Each node's weight, and the force on it. Free nodes at the end make the size a power of two.
    nodes = np.zeros((2, *launches, size))
    nodes[0, ..., :count] = weight
    np.multiply(weight, target, out=nodes[1, ..., :count])
    # The spring before each node, and one after the last.
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
    rest: Reals = nodes[1] / np.where(nodes[0] == 0, 1, nodes[0])
    for to_before, to_after, pulled in reversed(levels):
        both = np.empty((*launches, 2 * rest.shape[-1]))
        both[..., ::2] = rest
        moved = pulled + to_before * rest
        moved[..., :-1] += to_after[..., :-1] * rest[..., 1:]
        both[..., 1::2] = moved
        rest = both
    return rest[..., :count]


# Walk if readings do not determine it: as for a rate that is 3 % off for 4 µs, growing with the square root of time.
# The maximum is that of a rate 25 % off. The minimum is not 0, because no launch has enough readings to exclude that
# its clocks wander.
USUAL_WALK_NS2_PER_NS = (0.03 * 4000.0) ** 2 / 4000.0
_MAX_WALK_NS2_PER_NS = (0.25 * 4000.0) ** 2 / 4000.0
_MIN_WALK_NS2_PER_NS = USUAL_WALK_NS2_PER_NS / 64
_MEMORY_DELAY_NS = 100.0  # delay of a reading by a busy memory
_CONSTANT_WALK_NS2_PER_NS = 1e-6  # a constant clock and the timer count the same crystal, so this walk is nearly 0
# Maximum change of a clock's rate between two readings, as a share of the rate, however much they contradict each
# other.
_MAX_SLOPE_CHANGE = 0.5
_SLOPE_MARGIN = 1 << 12  # readings on either side of a part within which a limited slope can still affect it
COUNTER_SHIFT = 44  # bits for the cycles of the longest launch that a counter can time, below the counter's number
# Quantile of the distances of paired readings that is used, and its value for noise alone in standard deviations: 1.90
# for a triangular distribution, 1.96 for a normal one.
_USUAL_SHARE = 0.95
_USUAL_DEVIATIONS = 1.93
# Relative error of the variance of pairs, times the square root of their number.
_VARIANCE_ERROR = 2.0
_MIN_PAIRS = 32
# Rounds in which lines and their common walk are fitted alternately.
_ALTERNATIONS = 4
_MIN_COUNTERS = 8
_ONE_DEVIATION = 0.68  # share of a normal distribution that is within one standard deviation


_MIN_SIDE_PAIRS = 32  # fewer pairs of readings show nothing
# Standard error of a median, times the square root of the number, as a multiple of the median deviation (normal
# distribution).
_MEDIAN_ERROR = 1.86
_CERTAIN = 4.0  # number of standard errors from which on there is a delay
_MAX_DELAY_NS = 1000.0  # a loaded memory answers within about a microsecond
_ALIKE = 2.0  # ratio of the errors of both sides' readings up to which either may be delayed


def reading_delay_ns(rest: Residuals) -> float:
    """Return the usual time between a reading and its record beyond the assumed one; 0 if it is not determined.

    ``rest`` are the readings of a launch, less what all its clocks do together.
    """
    errors_ns = [float(np.median(rest.error_ns[rest.side == side])) for side in (1, -1) if (rest.side == side).any()]
    if len(errors_ns) < 2 or max(errors_ns) > _ALIKE * min(errors_ns):
        return 0.0  # one side is known better, and the line goes through that one
    begins_first, ends_first = _apart(rest, 1), _apart(rest, -1)
    if begins_first is None or ends_first is None:
        return 0.0
    (begin_ns, begin_error_ns, begin_gap_ns), (end_ns, end_error_ns, end_gap_ns) = begins_first, ends_first
    part = end_gap_ns / max(begin_gap_ns + end_gap_ns, 1.0)
    delay_ns = (part * begin_ns + (1 - part) * end_ns) / 2
    error_ns = np.hypot(part * begin_error_ns, (1 - part) * end_error_ns) / 2
    return min(delay_ns, _MAX_DELAY_NS) if delay_ns > _CERTAIN * error_ns else 0.0


def _apart(rest: Residuals, first: int) -> tuple[float, float, float] | None:
    """Compare successive readings of a counter, of which the earlier is of the side ``first``.

    Return the median distance of the end's readings above the begin's, its error, and the median time between them.
    """
    is_pair = (rest.counter[1:] == rest.counter[:-1]) & (rest.side[:-1] == first) & (rest.side[1:] == -first)
    pairs = np.flatnonzero(is_pair & rest.plausible[1:] & rest.plausible[:-1])
    if pairs.size < _MIN_SIDE_PAIRS:
        return None
    gap_ns = rest.line_ns[pairs + 1] - rest.line_ns[pairs]
    close = gap_ns <= np.median(gap_ns)
    apart_ns = first * (rest.height_ns[pairs + 1] - rest.height_ns[pairs])[close]
    middle_ns = float(np.median(apart_ns))
    deviation_ns = float(np.median(np.abs(apart_ns - middle_ns)))
    return middle_ns, _MEDIAN_ERROR * deviation_ns / np.sqrt(apart_ns.size), float(np.median(gap_ns[close]))


class Curves(Struct, frozen=True):
    """Curve for each counter, through knots in the order of time.

    ``keys`` combine the counter's number and the knot's cycles; ``first`` indexes each counter's first knot, and has
    one more element.
    """

    keys: Numbers
    heights_ns: Reals
    first: Numbers

    def length_cycles(self, counter: Numbers) -> Numbers:
        """Return the cycles from the base of each of these counters to its last knot."""
        return self.keys[self.first[counter + 1] - 1] - (counter << COUNTER_SHIFT)

    @property
    def mean_cycles(self) -> float:
        """Mean cycles from the first knot of a curve to its last."""
        return float((self.keys[self.first[1:] - 1] - self.keys[self.first[:-1]]).mean())

    @property
    def mean_slope(self) -> float:
        """Rise of all curves from their first knots to their last, in nanoseconds per cycle."""
        rises_ns = self.heights_ns[self.first[1:] - 1] - self.heights_ns[self.first[:-1]]
        return float(rises_ns.mean()) / max(self.mean_cycles, 1.0)

    def at(self, counter: Numbers, cycles: Numbers) -> Reals:
        """Return the heights at the given cycles since the counter's base; outside of its knots, the nearest one's."""
        begin, end = self.first[counter], self.first[counter + 1] - 1
        key = np.clip((counter << COUNTER_SHIFT) + cycles, self.keys[begin], self.keys[end])
        after = np.clip(np.searchsorted(self.keys, key), begin, end)
        before = np.maximum(after - 1, begin)
        width = self.keys[after] - self.keys[before]
        part = (key - self.keys[before]) / np.where(width == 0, 1, width)
        rise = self.heights_ns[after] - self.heights_ns[before]
        heights: Reals = self.heights_ns[before] + rise * np.where(width == 0, 1.0, part)
        return heights


def flat_curves(counters: int) -> Curves:
    """Return curves of height 0 for this number of counters."""
    every = np.arange(counters + 1)
    return Curves(every[:-1] << COUNTER_SHIFT, np.zeros(counters), every)


def fit_curves(launches: Sequence[Lines]) -> list[tuple[Curves, float]]:
    """Fit curves through all readings of each launch's lines; return them with the weighted RMS distance from them."""
    fittings = _with_common_curves(launches)
    delayed = {
        number: lines
        for number, fitting in enumerate(fittings)
        if (lines := fitting.with_delayed_readings()) is not None
    }
    for number, fitting in zip(delayed, _with_common_curves([*delayed.values()]), strict=True):
        fittings[number] = fitting
    pieces = [(fitting, part) for fitting in fittings for part in parts(len(fitting.keys))]
    for numbers in of_one_length([part.stop - part.start for _, part in pieces]):
        batch = [pieces[number] for number in numbers]
        residuals = [fitting.lines.residuals(part) for fitting, part in batch]
        common_ns = [fitting.common.at(piece) for (fitting, _), piece in zip(batch, residuals, strict=True)]
        rest = stacked([piece.lowered_by(ns) for piece, ns in zip(residuals, common_ns, strict=True)])
        linked = np.diff(rest.counter, prepend=-1) == 0
        walks = np.array([fitting.own_walk for fitting, _ in batch])[:, None]
        for (fitting, part), piece, ns, own_ns, weights in zip(
            batch, residuals, common_ns, *likeliest_walks(rest, linked, walks), strict=True
        ):
            fitting.keys[part] = (piece.counter.astype(np.int64) << COUNTER_SHIFT) + piece.cycles
            fitting.heights_ns[part] = ns + own_ns
            fitting.weights[part] = weights
    return [fitting.fit() for fitting in fittings]


class _Fitting(Struct, frozen=True):
    lines: Lines
    common: _CommonCurve
    own_walk: float
    keys: Numbers
    heights_ns: Reals
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, lines: Lines, residuals: Residuals, common: _CommonCurve | None) -> _Fitting:
        """Allocate a launch's knots; ``common`` is None for a constant clock, which does not wander."""
        own_walk = _CONSTANT_WALK_NS2_PER_NS
        if common is not None:
            own = _wandering(residuals.lowered_by(common.at(residuals)))
            own_walk = float(np.clip(own, _MIN_WALK_NS2_PER_NS, _max_walk(residuals)))
        count = len(lines.counter)
        keys, heights_ns = np.empty(count, dtype=np.int64), np.empty(count)
        return cls(lines, common or _NOTHING_IN_COMMON, own_walk, keys, heights_ns, np.empty(count, dtype=np.float32))

    def with_delayed_readings(self) -> Lines | None:
        """Return the lines for readings of the timer, if these turn out to be delayed."""
        residuals = self.lines.residuals(spaced(len(self.keys)))
        delay_ns = reading_delay_ns(residuals.lowered_by(self.common.at(residuals)))
        if not delay_ns:
            return None
        rate = self.lines.rate
        return replace(self.lines, rate=replace(rate, more_shift_ns=rate.more_shift_ns + delay_ns))

    def fit(self) -> tuple[Curves, float]:
        lines = self.lines
        heights_ns = _limited_slopes(self.keys, self.heights_ns, lines.rate.ns)
        first = np.searchsorted(lines.counter, np.arange(len(lines.base_ns) + 1))
        total = squares = 0.0
        for part in parts(len(heights_ns)):
            residuals = lines.residuals(part).lowered_by(heights_ns[part])
            weight = self.weights[part] / residuals.error_ns**2
            total += float(weight.sum())
            squares += float(weight @ residuals.height_ns**2)
        return Curves(self.keys, heights_ns, first), float(np.sqrt(squares / total)) if total else 0.0


def _with_common_curves(launches: Sequence[Lines]) -> list[_Fitting]:
    sampled = [lines.residuals(spaced(len(lines.counter))) for lines in launches]
    wandering = [number for number, lines in enumerate(launches) if not lines.rate.constant]
    curves = dict(zip(wandering, _common_curves([sampled[number] for number in wandering]), strict=True))
    return [
        _Fitting.of(lines, residuals, curves.get(number))
        for number, (lines, residuals) in enumerate(zip(launches, sampled, strict=True))
    ]


class _CommonCurve(Struct, frozen=True):
    times_ns: Reals
    heights_ns: Reals

    def at(self, residuals: Residuals) -> Reals:
        return np.interp(residuals.line_ns, self.times_ns, self.heights_ns)


_NOTHING_IN_COMMON = _CommonCurve(np.zeros(1), np.zeros(1))


def _common_curves(launches: Sequence[Residuals]) -> list[_CommonCurve]:
    """Fit one walk through the readings of all counters of each launch; a flat one if these have little in common.

    Where counters have readings at different times, their lines do not yet agree with the walk, and both are fitted
    alternately.
    """
    curves = [_NOTHING_IN_COMMON] * len(launches)
    candidates = [
        number
        for number, residuals in enumerate(launches)
        if residuals.counter[-1] - residuals.counter[0] >= _MIN_COUNTERS - 1
    ]
    before = {number: _wandering(launches[number]) for number in candidates}
    for places in of_one_length([len(launches[number].counter) for number in candidates]):
        numbers = [candidates[place] for place in places]
        batch = [launches[number] for number in numbers]
        walks = [
            float(np.clip(before[number], USUAL_WALK_NS2_PER_NS, _max_walk(residuals)))
            for number, residuals in zip(numbers, batch, strict=True)
        ]
        in_time = stacked([residuals.at(np.argsort(residuals.line_ns, kind="stable")) for residuals in batch])
        found = _walks_in_common(in_time, np.array(walks)[:, None])
        for number, residuals, times_ns, heights_ns in zip(numbers, batch, *found, strict=True):
            curve = _CommonCurve(times_ns, heights_ns)
            if _wandering(residuals.lowered_by(curve.at(residuals))) <= max(before[number], 0.0):
                curves[number] = curve
    return curves


def _walks_in_common(in_time: Residuals, walk_ns2_per_ns: Reals) -> tuple[Reals, Reals]:
    linked = np.arange(in_time.counter.shape[-1]) > 0
    row = np.arange(len(in_time.counter))[:, None]
    counter = row * (int(in_time.counter.max()) + 1) + in_time.counter
    offset_ns = np.zeros(in_time.height_ns.shape)
    for _ in range(_ALTERNATIONS):
        shifted = in_time.lowered_by(offset_ns)
        apart_ns = np.abs(np.diff(shifted.height_ns))
        scatter_ns = np.quantile(apart_ns, _ONE_DEVIATION, axis=-1, keepdims=True) / np.sqrt(2)
        shifted = replace(shifted, error_ns=np.maximum(shifted.error_ns, scatter_ns))
        heights_ns, weights = likeliest_walks(shifted, linked, walk_ns2_per_ns)
        offset_ns = means(counter.ravel(), (in_time.height_ns - heights_ns).ravel(), weights.ravel())[counter]
    return in_time.line_ns, heights_ns


def _max_walk(residuals: Residuals) -> float:
    # Where the timer is finer than the delays of its readings by a busy memory, these look like wandering too.
    is_fine = residuals.error_ns.min() < _MEMORY_DELAY_NS
    return USUAL_WALK_NS2_PER_NS if is_fine else _MAX_WALK_NS2_PER_NS


def _wandering(residuals: Residuals) -> float:
    """Estimate how far walks go, in square nanoseconds per nanosecond; the usual value if readings do not show it.

    The distance of two readings of a counter is noise and the walk between them: it counts where the walk could be the
    larger part.
    """
    found = []
    lag = 1
    while len(residuals.counter) - lag >= _MIN_PAIRS:
        both = residuals.counter[lag:] == residuals.counter[:-lag]
        both &= residuals.plausible[lag:] & residuals.plausible[:-lag]
        time_ns = (residuals.line_ns[lag:] - residuals.line_ns[:-lag])[both]
        noise_ns2 = (residuals.error_ns[lag:] ** 2 + residuals.error_ns[:-lag] ** 2)[both]
        is_informative = time_ns * _MAX_WALK_NS2_PER_NS >= noise_ns2
        pairs = np.count_nonzero(is_informative)
        if pairs >= _MIN_PAIRS:
            apart_ns = (residuals.height_ns[lag:] - residuals.height_ns[:-lag])[both][is_informative]
            at_least_ns2 = (apart_ns / _USUAL_DEVIATIONS) ** 2 * (1 - _VARIANCE_ERROR / np.sqrt(pairs))
            found.append(
                float(np.quantile((at_least_ns2 - noise_ns2[is_informative]) / time_ns[is_informative], _USUAL_SHARE))
            )
        lag *= 2
    return max(found, default=USUAL_WALK_NS2_PER_NS)


def _limited_slopes(keys: Numbers, heights_ns: Reals, rate_ns: float) -> Reals:
    """Limit the steepness of the heights to what a clock can do: time must not run backwards."""
    limited = heights_ns.copy()
    for part in parts(len(keys)):
        # Include neighbours as far as they can affect this part.
        around = slice(max(part.start - _SLOPE_MARGIN, 0), part.stop + _SLOPE_MARGIN)
        heights = heights_ns[around]
        max_steps_ns = _MAX_SLOPE_CHANGE * rate_ns * np.diff(keys[around])
        if (np.abs(np.diff(heights)) <= max_steps_ns).all():
            continue
        # Between different counters any step is possible.
        max_steps_ns[np.diff(keys[around] >> COUNTER_SHIFT) != 0] = np.ptp(heights) + 1
        along = np.append(0, np.cumsum(max_steps_ns))
        middle = (_lowest_reached(heights, along) - _lowest_reached(-heights, along)) / 2
        limited[part] = middle[part.start - around.start :][: part.stop - part.start]
    return limited


def _lowest_reached(heights: Reals, along: Reals) -> Reals:
    """Return the lowest height at each index that rises from any of ``heights`` no faster than ``along``."""
    forward = np.minimum.accumulate(heights - along) + along
    backward = np.minimum.accumulate((heights + along)[::-1])[::-1] - along
    return np.minimum(forward, backward)
