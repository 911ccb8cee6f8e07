"""The rate of a launch's clock, how sure it is, and a straight line of that rate for each counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.readings import LEAST_MORE_WITHIN_FUNCTION_NS, Readings, reading_weights
from kprof_inject.timeline.unwrap import FALLBACK_CLOCK_HZ

PART = 1 << 16
"""Long columns are worked on part by part, so that what is made of a part does not grow with the column."""


def parts(count: int) -> Iterator[slice]:
    """From 0 to ``count``, at most ``PART`` rows at a time."""
    for begin in range(0, count, PART):
        yield slice(begin, min(begin + PART, count))


# A GPU under load runs within this share of its nominal clock.
NOMINAL_SPREAD = 0.25
# What else a launch may be timed by: a counter of 100 MHz (AMD's constant clock), or anything between these.
_CONSTANT_RATE_NS = 10.0
_CONSTANT_SPREAD = 0.001
LEAST_RATE_NS = 0.1
LARGEST_RATE_NS = 100.0
# How much likelier the nominal clock is than each of these, before anything was read.
_RARE = 20.0
# By how much what lies between a timer reading and its record may be misjudged, alike for all.
_SHIFT_ERROR_NS = 10.0
# A rate that may be off by more than this for want of records around the whole of a CTA is none.
_MOST_OUTSIDE = 0.1
# No device runs at several times its nominal clock: readings that say so contradict each other.
_FASTER = 4
_ROUNDS = 8
_MAX_ERRORS_ABOVE = 2.0
# By how much the timer's own rate may be off.
_TIMER_ERROR = 1e-3
_LEAST_APART = 1e-10  # of a determinant: less is mostly rounding of the 16 digits of its terms
# The median of a normal distribution's absolute values, in standard deviations, is one by this.
_MEDIAN_TO_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class ClockRate:
    """How fast the counters of a launch run."""

    ns: float
    """Nanoseconds per cycle."""
    error: float
    """The relative standard error of ``ns``."""
    more_shift_ns: float
    """What all readings have in common, as in ``Readings``."""
    fitted: bool
    """Whether the readings gave it; else it is assumed."""
    constant: bool
    """The clock is none of an SM's, and does not wander."""


@dataclass(frozen=True, slots=True)
class _Prior:
    """What the rate may be, before anything was read: ``rate_ns`` with a standard deviation of ``spread_ns``."""

    rate_ns: float
    spread_ns: float
    odds: float
    constant: bool = False

    def log_evidence(self, rate_ns: float, variance: float) -> float:
        """How well this explains that ``rate_ns`` was found, with that variance."""
        total = variance + self.spread_ns**2
        return float(np.log(self.odds) - (rate_ns - self.rate_ns) ** 2 / total / 2 - np.log(total) / 2)


def nominal_rate(nominal_hz: float) -> float:
    """Nanoseconds per cycle of a device whose nominal clock that is, or 0 if unknown."""
    return 1e9 / (nominal_hz or FALLBACK_CLOCK_HZ)


def assumed_rate(nominal_ns: float) -> ClockRate:
    """That of a launch whose readings do not tell."""
    return ClockRate(nominal_ns, NOMINAL_SPREAD, 0.0, fitted=False, constant=False)


def fit_rate(readings: Readings, counter: NDArray[np.int32], rough_ns: float, nominal_hz: float) -> ClockRate:
    """Fit lines, one for each ``counter`` and all of one rate, which is about ``rough_ns``. What a launch is too short
    to tell is taken from the device's nominal clock."""
    rate = _likeliest(readings, counter, rough_ns, nominal_hz)
    if rate.more_shift_ns < 0 and readings.more_shift_ns > LEAST_MORE_WITHIN_FUNCTION_NS:
        # No record stands before init or behind pre-final. If the likeliest do, they are near: the rate must be higher.
        near = replace(readings, more_shift_ns=LEAST_MORE_WITHIN_FUNCTION_NS)
        rate = _likeliest(near, counter, rough_ns, nominal_hz)
    if rate.fitted:
        return rate
    return replace(rate, more_shift_ns=float(np.clip(rate.more_shift_ns, 0.0, readings.most_shift_ns)))


def _likeliest(readings: Readings, counter: NDArray[np.int32], rough_ns: float, nominal_hz: float) -> ClockRate:
    """By weighted least squares.

    Reweighted in rounds, so that a reading far off (a preempted CTA) counts less."""
    first, line = np.unique(counter, return_index=True, return_inverse=True)[1:]
    # Differences of integers first: globaltimer values do not fit into a double.
    x = (readings.cycles - readings.cycles[first[line]]).astype(np.float64)
    y = (readings.ns - readings.ns[first[line]]).astype(np.float64) + readings.shift_ns
    error_ns = reading_errors(readings, rough_ns)
    columns = np.stack((x, -readings.side.astype(np.float64)))
    # No prior for the rate as yet, or hardly one: without a cycle between any two readings it is anything.
    prior = np.array([1 / (100 * LARGEST_RATE_NS) ** 2, 1 / readings.more_shift_ns**2])
    weight = 1 / error_ns**2
    scale = 1.0
    for _ in range(_ROUNDS):
        centred = np.stack([column - means(line, column, weight)[line] for column in columns])
        target = y - means(line, y, weight)[line]
        weighted = centred * (weight / scale**2)
        covariance = _covariance(centred, weight / scale**2, prior)
        solution = covariance @ (weighted @ target + prior * (rough_ns, 0.0))
        rest_ns = target - solution @ centred
        scale = max(1.0, _MEDIAN_TO_DEVIATION * float(np.median(np.abs(rest_ns / error_ns))))
        weight = reading_weights(rest_ns / error_ns / scale, readings.side) / error_ns**2

    gain = covariance @ weighted
    variance = scale**2 * _reading_variance(readings, gain[0], error_ns)
    variance += float(covariance[0] ** 2 @ prior) + _shared_variance(readings, gain[0], rough_ns)
    outside_variance = _outside_variance(readings, gain[0], float(solution[0]))
    found = _with_prior(float(solution[0]), variance + outside_variance, nominal_rate(nominal_hz))
    if nominal_hz:
        found = _not_above_maximum(found, nominal_rate(nominal_hz))
    if outside_variance > (_MOST_OUTSIDE * solution[0]) ** 2 and not found.constant:
        found = assumed_rate(nominal_rate(nominal_hz))
    # What the readings say of the shift, were the rate the one that was settled on.
    shift_ns = solution[1] + covariance[0, 1] / covariance[0, 0] * (found.ns - solution[0])
    return replace(found, more_shift_ns=float(shift_ns))


def _covariance(columns: NDArray[np.float64], weight: NDArray[np.float64], prior: NDArray[np.float64]) -> Any:
    """Return the inverse of the two columns' weighted products plus the ``prior``.

    Two readings of a CTA of many seconds put so much weight on one direction that the prior of the other is lost in
    the sums: then it comes from the columns themselves, whose numbers take half as many digits."""
    products = (columns * weight) @ columns.T + np.diag(prior)
    diagonal = products[0, 0] * products[1, 1]
    if diagonal - products[0, 1] ** 2 > _LEAST_APART * diagonal:
        return np.linalg.inv(products)
    triangle = np.linalg.qr(np.vstack(((columns * np.sqrt(weight)).T, np.diag(np.sqrt(prior)))), mode="r")
    root = np.linalg.inv(triangle)
    return root @ root.T


def reading_errors(readings: Readings, rate_ns: float) -> NDArray[np.float64]:
    """The standard errors of the readings in nanoseconds, those of their clock values among them."""
    reckoned_ns = rate_ns * readings.reckoned_cycles.astype(np.float64)
    return np.sqrt(readings.error_ns.astype(np.float64) ** 2 + reckoned_ns**2 + rate_ns**2 / 12)


def means(group: NDArray[Any], values: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted mean of each group, 0 for one without weight."""
    total = np.bincount(group, weight)
    return np.bincount(group, weight * values) / np.where(total == 0, 1, total)


def _reading_variance(readings: Readings, gain: NDArray[np.float64], error_ns: NDArray[np.float64]) -> float:
    """What the readings' own errors do to the rate, which goes by ``gain`` with each. Readings of the same step of the
    timer may all be late by the same."""
    step_variance = min(readings.step_ns**2 / 12, float(error_ns.min() ** 2))
    _, step = np.unique(readings.ns, return_inverse=True)
    alike = np.bincount(step, gain)
    return float(step_variance * alike @ alike + gain**2 @ (error_ns**2 - step_variance))


def _shared_variance(readings: Readings, gain: NDArray[np.float64], rate_ns: float) -> float:
    """What errors that all readings share do to it: those do not average out."""
    reckoned_ns = rate_ns * float(gain @ readings.reckoned_cycles)
    shift_ns = _SHIFT_ERROR_NS * float(gain @ readings.side)
    return reckoned_ns**2 + shift_ns**2


def _outside_variance(readings: Readings, gain: NDArray[np.float64], rate_ns: float) -> float:
    """What it does to the rate that nobody knows how long a CTA ran before its first record and behind its last one. If
    that is longer in those CTAs in which the rest is longer, too, all of it seems to be slower cycles."""
    if not readings.least_hz:
        return 0.0
    share = max(0.0, 1 - readings.least_hz / 1e9 * rate_ns)
    return float(share / 2 * gain @ (readings.side * readings.cta_ns.astype(np.float64))) ** 2


def _with_prior(rate_ns: float, variance: float, nominal_ns: float) -> ClockRate:
    """The rate that was read, or what it would be expected to be, or something between the two: as sure as each is."""
    priors = [_Prior(nominal_ns, NOMINAL_SPREAD * nominal_ns, 1.0)]
    priors.append(_Prior(_CONSTANT_RATE_NS, _CONSTANT_SPREAD * _CONSTANT_RATE_NS, 1 / _RARE, constant=True))
    if LEAST_RATE_NS <= rate_ns <= LARGEST_RATE_NS:
        priors.append(_Prior(rate_ns, LARGEST_RATE_NS, 1 / _RARE))
    prior = max(priors, key=lambda prior: prior.log_evidence(rate_ns, variance))
    sure, expected = 1 / variance, 1 / prior.spread_ns**2
    settled_ns = (sure * rate_ns + expected * prior.rate_ns) / (sure + expected)
    if (variance > prior.spread_ns**2 and not prior.constant) or settled_ns < nominal_ns / _FASTER:
        return assumed_rate(nominal_ns)
    return ClockRate(settled_ns, (sure + expected) ** -0.5 / settled_ns, 0.0, fitted=True, constant=prior.constant)


def _not_above_maximum(rate: ClockRate, least_ns: float) -> ClockRate:
    """No SM runs faster than its device's nominal clock, which is the highest that it has (``least_ns`` a cycle).
    Readings that say so within their error mean that clock; further off, they contradict each other."""
    if not rate.fitted or rate.ns >= least_ns:
        return rate
    beyond = least_ns / rate.ns - 1
    if beyond > _MAX_ERRORS_ABOVE * rate.error + _TIMER_ERROR:
        return assumed_rate(least_ns)
    return replace(rate, ns=least_ns, error=max(rate.error, beyond))


@dataclass(frozen=True, slots=True)
class Residuals:
    """How far some readings lie from their counters' lines, in order of ``counter`` and time."""

    counter: NDArray[np.int32]
    cycles: NDArray[np.int64]
    """Since the counter's base."""
    line_ns: NDArray[np.float64]
    """Where the line is at these cycles, since the first base of all counters."""
    height_ns: NDArray[np.float64]
    """How far above the line the reading is."""
    error_ns: NDArray[np.float64]
    """The reading's standard error."""
    side: NDArray[np.int8]
    """As in ``Readings``."""
    plausible: NDArray[np.bool_]
    """As ``agreement`` gives it."""

    def at(self, rows: NDArray[np.int64]) -> Residuals:
        """The same readings, or some of them, in another order."""
        return Residuals(*(getattr(self, field.name)[rows] for field in fields(self)))

    def lowered_by(self, ns: NDArray[np.float64]) -> Residuals:
        """The same readings, each so much lower."""
        return replace(self, height_ns=self.height_ns - ns)


def stacked(launches: Sequence[Residuals]) -> Residuals:
    """The residuals of launches that have as many readings: each column has the shape (launch, reading)."""
    return Residuals(*(np.stack([getattr(one, field.name) for one in launches]) for field in fields(Residuals)))


@dataclass(frozen=True, slots=True)
class Lines:
    """A straight line for each counter of a launch, all of the same rate, through its readings."""

    readings: Readings
    counter: NDArray[np.int32]
    """The counter of each reading, as ``agreement`` numbers them."""
    plausible: NDArray[np.bool_]
    """Whether each reading can be true, as ``agreement`` says."""
    rate: ClockRate
    base_cycles: NDArray[np.int64]
    """Of each counter: its least value."""
    base_ns: NDArray[np.int64]
    """Of each counter: where its line is at ``base_cycles``."""

    def residuals(self, rows: slice | NDArray[np.int64]) -> Residuals:
        """How far some of the readings lie from their lines."""
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
    """The lines through the plausible readings. A counter without any is placed by the middle one of those that it has,
    and within the time of the others."""
    begins = np.flatnonzero(np.append(True, np.diff(counter) != 0))
    base_cycles = readings.cycles[begins]
    lines = Lines(readings, counter, plausible, rate, base_cycles, readings.ns[begins])
    # The first reading of a counter may be any, and is only near enough for a double.
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
    """Where the lines of ``counters`` are at their bases, none of whose readings is plausible: by the middle one of
    those that are within the launch, else of all, and then within the launch."""
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
    """The median height of each counter."""
    heights_ns = residuals.height_ns[np.lexsort((residuals.height_ns, residuals.counter))]
    begins = np.flatnonzero(np.append(True, np.diff(residuals.counter) != 0))
    ends = np.append(begins[1:], len(heights_ns))
    middle_ns: NDArray[np.float64] = (heights_ns[(begins + ends - 1) // 2] + heights_ns[(begins + ends) // 2]) / 2
    return middle_ns
