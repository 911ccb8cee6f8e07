"""The rate of a launch's clock, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.readings import MIN_SHIFT_WITHIN_FUNCTION_NS, Readings, reading_weights
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
MIN_RATE_NS = 0.1
MAX_RATE_NS = 100.0
# How much likelier the nominal clock is than each of these, before anything was read.
_RARE = 20.0
# By how much what lies between a timer reading and its record may be misjudged, alike for all.
_SHIFT_ERROR_NS = 10.0
# A rate that may be off by more than this for want of records around the whole of a CTA is none.
_MAX_OUTSIDE = 0.1
# No device runs at several times its nominal clock: readings that say so contradict each other.
_FASTER = 4
_ROUNDS = 8
_MAX_ERRORS_ABOVE = 2.0
# By how much the timer's own rate may be off.
_TIMER_ERROR = 1e-3
_MIN_APART = 1e-10  # of a determinant: less is mostly rounding of the 16 digits of its terms
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


@dataclass(frozen=True, slots=True)
class RateSample:
    """What the rate of a launch is fitted to: readings, the ``counter`` of each, about how many nanoseconds a cycle
    takes, and the device's nominal clock, 0 if unknown."""

    readings: Readings
    counter: NDArray[np.int32]
    rough_ns: float
    nominal_hz: float


def fit_rate(readings: Readings, counter: NDArray[np.int32], rough_ns: float, nominal_hz: float) -> ClockRate:
    """Fit lines, one for each ``counter`` and all of one rate, which is about ``rough_ns``. What a launch is too short
    to tell is taken from the device's nominal clock."""
    (rate,) = fit_rates([RateSample(readings, counter, rough_ns, nominal_hz)])
    return rate


def fit_rates(samples: Sequence[RateSample]) -> list[ClockRate]:
    """Fit the rates of many launches at once."""
    rates = _likeliest(samples)
    # No record stands before init or behind pre-final. If the likeliest do, they are near: the rate must be higher.
    near = {
        number: replace(sample, readings=replace(sample.readings, more_shift_ns=MIN_SHIFT_WITHIN_FUNCTION_NS))
        for number, (sample, rate) in enumerate(zip(samples, rates, strict=True))
        if rate.more_shift_ns < 0 and sample.readings.more_shift_ns > MIN_SHIFT_WITHIN_FUNCTION_NS
    }
    for number, rate in zip(near, _likeliest([*near.values()]), strict=True):
        rates[number] = rate
    return [
        rate
        if rate.fitted
        else replace(rate, more_shift_ns=float(np.clip(rate.more_shift_ns, 0.0, sample.readings.max_shift_ns)))
        for sample, rate in zip(samples, rates, strict=True)
    ]


def of_one_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of columns that are as long as each other, together no longer than ``PART``, or a
    single column."""
    by_length: dict[int, list[int]] = {}
    for number, length in enumerate(lengths):
        by_length.setdefault(length, []).append(number)
    for length, numbers in by_length.items():
        step = max(PART // max(length, 1), 1)
        yield from (numbers[begin : begin + step] for begin in range(0, len(numbers), step))


def _likeliest(samples: Sequence[RateSample]) -> list[ClockRate]:
    rates: dict[int, ClockRate] = {}
    for numbers in of_one_length([len(sample.counter) for sample in samples]):
        rates |= zip(numbers, _likeliest_of([samples[number] for number in numbers]), strict=True)
    return [rates[number] for number in range(len(samples))]


def _likeliest_of(samples: Sequence[RateSample]) -> Iterator[ClockRate]:
    """By weighted least squares, of samples that are as long as each other: a row of each column is a launch's.

    Reweighted in rounds, so that a reading far off (a preempted CTA) counts less."""
    line, x, y, error_ns, side = (np.stack(column) for column in zip(*map(_columns, samples), strict=True))
    # Each launch has lines of its own.
    line += np.arange(len(line))[:, None] * (int(line.max()) + 1)
    columns = np.stack((x, -side.astype(np.float64)), axis=1)
    # No prior for the rate as yet, or hardly one: without a cycle between any two readings it is anything.
    prior = np.array([(1 / (100 * MAX_RATE_NS) ** 2, 1 / sample.readings.more_shift_ns**2) for sample in samples])
    expected = prior * [(sample.rough_ns, 0.0) for sample in samples]
    weight = 1 / error_ns**2
    scale = np.ones((len(samples), 1))
    for _ in range(_ROUNDS):
        centred = np.stack([_centred(line, columns[:, place], weight) for place in range(2)], axis=1)
        target = _centred(line, y, weight)
        scaled = weight / scale**2
        weighted = centred * scaled[:, None]
        covariance = _covariances(centred, scaled, prior)
        solution = covariance @ (weighted @ target[:, :, None] + expected[:, :, None])
        rest_ns = target - (np.swapaxes(solution, 1, 2) @ centred)[:, 0]
        errors = rest_ns / error_ns
        scale = np.maximum(1.0, _MEDIAN_TO_DEVIATION * np.median(np.abs(errors), axis=-1, keepdims=True))
        weight = reading_weights(errors / scale, side) / error_ns**2
    fits = zip(covariance, weighted, solution[:, :, 0], scale[:, 0].tolist(), prior, error_ns, strict=True)
    return (_settled(sample, *fit) for sample, fit in zip(samples, fits, strict=True))


def _columns(sample: RateSample) -> tuple[NDArray[Any], ...]:
    """Return the line of each reading; its cycles and nanoseconds, since the first of its line; its error and
    its side."""
    readings = sample.readings
    first, line = np.unique(sample.counter, return_index=True, return_inverse=True)[1:]
    # Differences of integers first: globaltimer values do not fit into a double.
    x = (readings.cycles - readings.cycles[first[line]]).astype(np.float64)
    y = (readings.ns - readings.ns[first[line]]).astype(np.float64) + readings.shift_ns
    return line, x, y, reading_errors(readings, sample.rough_ns), readings.side


def _centred(line: NDArray[np.int64], values: NDArray[np.float64], weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract from the values the mean of their line."""
    centred: NDArray[np.float64] = values - means(line.ravel(), values.ravel(), weight.ravel())[line]
    return centred


def _settled(
    sample: RateSample,
    covariance: NDArray[np.float64],
    weighted: NDArray[np.float64],
    solution: NDArray[np.float64],
    scale: float,
    prior: NDArray[np.float64],
    error_ns: NDArray[np.float64],
) -> ClockRate:
    """Return the rate of one launch, given the solution of its least squares."""
    readings, nominal_hz = sample.readings, sample.nominal_hz
    gain = covariance @ weighted
    variance = scale**2 * _reading_variance(readings, gain[0], error_ns)
    variance += float(covariance[0] ** 2 @ prior) + _shared_variance(readings, gain[0], sample.rough_ns)
    outside_variance = _outside_variance(readings, gain[0], float(solution[0]))
    found = _with_prior(float(solution[0]), variance + outside_variance, nominal_rate(nominal_hz))
    if nominal_hz:
        found = _not_above_maximum(found, nominal_rate(nominal_hz))
    if outside_variance > (_MAX_OUTSIDE * solution[0]) ** 2 and not found.constant:
        found = assumed_rate(nominal_rate(nominal_hz))
    # What the readings say of the shift, were the rate the one that was settled on.
    shift_ns = solution[1] + covariance[0, 1] / covariance[0, 0] * (found.ns - solution[0])
    return replace(found, more_shift_ns=float(shift_ns))


def _covariances(
    columns: NDArray[np.float64], weight: NDArray[np.float64], prior: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the inverse of each launch's two columns' weighted products plus the ``prior``.

    Two readings of a CTA of many seconds put so much weight on one direction that the prior of the other is lost in
    the sums: then it comes from the columns themselves, whose numbers take half as many digits."""
    products = (columns * weight[:, None]) @ np.swapaxes(columns, 1, 2) + prior[:, None] * np.eye(2)
    diagonal = products[:, 0, 0] * products[:, 1, 1]
    apart = diagonal - products[:, 0, 1] ** 2 > _MIN_APART * diagonal
    found = np.empty_like(products)
    found[apart] = np.linalg.inv(products[apart])
    for row in np.flatnonzero(~apart):
        rooted = (columns[row] * np.sqrt(weight[row])).T
        triangle = np.linalg.qr(np.vstack((rooted, np.diag(np.sqrt(prior[row])))), mode="r")
        root = np.linalg.inv(triangle)
        found[row] = root @ root.T
    return found


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
    if not readings.min_hz:
        return 0.0
    share = max(0.0, 1 - readings.min_hz / 1e9 * rate_ns)
    return float(share / 2 * gain @ (readings.side * readings.cta_ns.astype(np.float64))) ** 2


def _with_prior(rate_ns: float, variance: float, nominal_ns: float) -> ClockRate:
    """The rate that was read, or what it would be expected to be, or something between the two: as sure as each is."""
    priors = [_Prior(nominal_ns, NOMINAL_SPREAD * nominal_ns, 1.0)]
    priors.append(_Prior(_CONSTANT_RATE_NS, _CONSTANT_SPREAD * _CONSTANT_RATE_NS, 1 / _RARE, constant=True))
    if MIN_RATE_NS <= rate_ns <= MAX_RATE_NS:
        priors.append(_Prior(rate_ns, MAX_RATE_NS, 1 / _RARE))
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
