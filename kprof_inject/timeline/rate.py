"""Rate of a launch's clock, its error, and the straight line of that rate for each counter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.timeline.columns import Mask, Numbers, Reals
from kprof_inject.timeline.readings import MIN_SHIFT_WITHIN_FUNCTION_NS, Readings, reading_weights
from kprof_inject.timeline.unwrap import FALLBACK_CLOCK_HZ

PART = 1 << 16
"""Number of rows of a long column that are processed at once, so that temporary columns do not grow with it."""


def parts(count: int) -> Iterator[slice]:
    """Yield slices that cover 0 to ``count``, at most ``PART`` rows each."""
    for begin in range(0, count, PART):
        yield slice(begin, min(begin + PART, count))


def spaced(count: int) -> Numbers:
    """Return rows of a launch's readings: all, or evenly spaced ones of more than ``PART``."""
    # An odd stride: with an even one, all readings of consecutive CTAs could be of one side.
    return np.arange(0, count, 1 + 2 * (count // PART))


NOMINAL_SPREAD = 0.25  # relative distance from its nominal clock at which a GPU under load runs
# Other clocks of a launch: a counter of 100 MHz (AMD's constant clock), or any rate between these limits.
_CONSTANT_RATE_NS = 10.0
_CONSTANT_SPREAD = 0.001
MIN_RATE_NS = 0.1
MAX_RATE_NS = 100.0
_RARE = 20.0  # prior odds of the nominal clock against each of these
_SHIFT_ERROR_NS = 10.0  # error, common to all readings, of the time between a timer reading and its record
_MAX_OUTSIDE = 0.1  # maximum relative error of a rate due to time outside of the records; rates above it are rejected
_FASTER = 4  # no device runs at this multiple of its nominal clock: such readings contradict each other
# Rounds of reweighted least squares, and the standard errors by which a rate may exceed the maximum clock.
_ROUNDS = 8
_MAX_ERRORS_ABOVE = 2.0
# Part by which the readings of kernels at the maximum clock were seen to exceed it: 0.7 % (H100, DRAM-bound kernels,
# whose CTAs begin and end while others delay their accesses).
_SEEN_ABOVE = 0.01
# Relative error of the timer's own rate.
_TIMER_ERROR = 1e-3
_MIN_APART = 1e-10  # of a determinant: smaller ones are mostly rounding of the 16 digits of its terms
# Ratio of a normal distribution's standard deviation to the median of its absolute values.
_MEDIAN_TO_DEVIATION = 1.4826


class ClockRate(Struct, frozen=True):
    """Rate of the counters of a launch."""

    ns: float  # nanoseconds per cycle
    error: float
    more_shift_ns: float  # shift that all readings share, as in ``Readings``
    fitted: bool
    constant: bool  # the clock is not an SM's, and does not wander


def nominal_rate(nominal_hz: float | None) -> float:
    """Return the nanoseconds per cycle of a device with that nominal clock."""
    return 1e9 / (nominal_hz or FALLBACK_CLOCK_HZ)


def assumed_rate(nominal_ns: float) -> ClockRate:
    """Return the rate of a launch whose readings do not determine it."""
    return ClockRate(nominal_ns, NOMINAL_SPREAD, 0.0, fitted=False, constant=False)


class RateSample(Struct, frozen=True):
    """Data to which the rate of a launch is fitted."""

    readings: Readings
    counter: NDArray[np.int32]
    rough_ns: float  # approximate nanoseconds per cycle
    nominal_hz: float | None


def fit_rates(samples: Sequence[RateSample]) -> list[ClockRate]:
    """Fit the rates of many launches: by the device's nominal clock where a launch is too short to determine it."""
    rates = _likeliest(samples)
    # No record is before init or after pre-final. If the likeliest fit has some there, they must be close to them, and
    # the rate higher.
    refits = {
        number: replace(sample, readings=replace(sample.readings, more_shift_ns=MIN_SHIFT_WITHIN_FUNCTION_NS))
        for number, (sample, rate) in enumerate(zip(samples, rates, strict=True))
        if rate.more_shift_ns < 0 and sample.readings.more_shift_ns > MIN_SHIFT_WITHIN_FUNCTION_NS
    }
    for number, rate in zip(refits, _likeliest([*refits.values()]), strict=True):
        rates[number] = rate
    return [
        rate
        if rate.fitted
        else replace(rate, more_shift_ns=float(np.clip(rate.more_shift_ns, 0.0, sample.readings.max_shift_ns)))
        for sample, rate in zip(samples, rates, strict=True)
    ]


def of_one_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers of columns of equal length, together no longer than ``PART``, or a single column."""
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
    """Fit samples of equal length by weighted least squares: for each counter a line, all of one rate.

    Each row of a column is a launch. Reweighting in rounds reduces the weight of distant readings (for example of a
    preempted CTA).
    """
    line, x, y, error_ns, side = (np.stack(column) for column in zip(*map(_columns, samples), strict=True))
    # Number the lines of each launch separately.
    line += np.arange(len(line))[:, None] * (int(line.max()) + 1)
    columns = np.stack((x, -side.astype(np.float64)), axis=1)
    # Hardly any prior for the rate yet: without a cycle between any two readings it can be anything.
    prior = np.array([(1 / (100 * MAX_RATE_NS) ** 2, 1 / sample.readings.more_shift_ns**2) for sample in samples])
    expected = prior * [(sample.rough_ns, 0.0) for sample in samples]
    weight = 1 / error_ns**2
    scale = np.ones((len(samples), 1))
    for _ in range(_ROUNDS):
        # Each value less the mean of its line.
        *pair, target = (
            values - means(line.ravel(), values.ravel(), weight.ravel())[line]
            for values in (columns[:, 0], columns[:, 1], y)
        )
        centred = np.stack(pair, axis=1)
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
    """Return each reading's line, cycles and nanoseconds since the first reading of the line, error and side."""
    readings = sample.readings
    first, line = np.unique(sample.counter, return_index=True, return_inverse=True)[1:]
    # Differences of integers first: globaltimer values do not fit into a double.
    x = (readings.cycles - readings.cycles[first[line]]).astype(np.float64)
    y = (readings.ns - readings.ns[first[line]]).astype(np.float64) + readings.shift_ns
    return line, x, y, reading_errors(readings, sample.rough_ns), readings.side


def _settled(
    sample: RateSample, covariance: Reals, weighted: Reals, solution: Reals, scale: float, prior: Reals, error_ns: Reals
) -> ClockRate:
    readings, nominal_hz = sample.readings, sample.nominal_hz
    rate_ns, nominal_ns = float(solution[0]), nominal_rate(nominal_hz)
    gain = (covariance @ weighted)[0]  # derivative of the rate by each reading
    # Readings of the same step of the timer may all be late by the same amount.
    step_variance = min(readings.step_ns**2 / 12, float(error_ns.min() ** 2))
    _, step = np.unique(readings.ns, return_inverse=True)
    alike = np.bincount(step, gain)
    variance = scale**2 * float(step_variance * alike @ alike + gain**2 @ (error_ns**2 - step_variance))
    # Errors that all readings share do not average out.
    estimated_ns = sample.rough_ns * float(gain @ readings.estimated_error_cycles)
    shift_ns = _SHIFT_ERROR_NS * float(gain @ readings.side)
    variance += float(covariance[0] ** 2 @ prior) + (estimated_ns**2 + shift_ns**2)
    # If the unknown time before the first and after the last record is longer in CTAs whose recorded part is longer, it
    # looks like slower cycles.
    outside_variance = 0.0
    if readings.min_hz:
        share = max(0.0, 1 - readings.min_hz / 1e9 * rate_ns)
        outside_variance = float(share / 2 * gain @ (readings.side * readings.cta_ns.astype(np.float64))) ** 2
    found = _with_prior(rate_ns, variance + outside_variance, nominal_ns)
    if nominal_hz and found.fitted and found.ns < nominal_ns:
        # A device's nominal clock is its maximum. Readings that exceed it within their error mean that clock; beyond
        # their error, they contradict each other.
        beyond = nominal_ns / found.ns - 1
        if beyond > max(_MAX_ERRORS_ABOVE * found.error + _TIMER_ERROR, _SEEN_ABOVE):
            found = assumed_rate(nominal_ns)
        else:
            found = replace(found, ns=nominal_ns, error=max(found.error, beyond))
    if outside_variance > (_MAX_OUTSIDE * rate_ns) ** 2 and not found.constant:
        found = assumed_rate(nominal_ns)
    # The shift according to the readings, given the settled rate.
    more_shift_ns = solution[1] + covariance[0, 1] / covariance[0, 0] * (found.ns - rate_ns)
    return replace(found, more_shift_ns=float(more_shift_ns))


def _covariances(columns: Reals, weight: Reals, prior: Reals) -> Reals:
    """Return the inverse of each launch's two columns' weighted products plus the ``prior``.

    Two readings of a CTA that lasts many seconds put so much weight on one direction that the prior of the other is
    lost in the sums: then the inverse is computed from the columns themselves, whose numbers take half as many digits.
    """
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


def reading_errors(readings: Readings, rate_ns: float) -> Reals:
    """Return the standard errors of the readings in nanoseconds, including those of their clock values."""
    estimated_ns = rate_ns * readings.estimated_error_cycles.astype(np.float64)
    return np.sqrt(readings.error_ns.astype(np.float64) ** 2 + estimated_ns**2 + rate_ns**2 / 12)


def means(group: NDArray[Any], values: Reals, weight: Reals) -> Reals:
    """Return the weighted mean of each group, 0 for a group without weight."""
    total = np.bincount(group, weight)
    return np.bincount(group, weight * values) / np.where(total == 0, 1, total)


def _with_prior(rate_ns: float, variance: float, nominal_ns: float) -> ClockRate:
    # Expected rates before any reading, with their standard deviations and odds.
    constant = (_CONSTANT_RATE_NS, _CONSTANT_SPREAD * _CONSTANT_RATE_NS, 1 / _RARE)
    priors = [(nominal_ns, NOMINAL_SPREAD * nominal_ns, 1.0), constant]
    if MIN_RATE_NS <= rate_ns <= MAX_RATE_NS:
        priors.append((rate_ns, MAX_RATE_NS, 1 / _RARE))

    def log_evidence(prior: tuple[float, float, float]) -> float:
        expected_ns, spread_ns, odds = prior
        total = variance + spread_ns**2
        return float(np.log(odds) - (rate_ns - expected_ns) ** 2 / total / 2 - np.log(total) / 2)

    expected_ns, spread_ns, _ = likeliest = max(priors, key=log_evidence)
    is_constant = likeliest is constant
    measured_weight, prior_weight = 1 / variance, 1 / spread_ns**2
    settled_ns = (measured_weight * rate_ns + prior_weight * expected_ns) / (measured_weight + prior_weight)
    if (variance > spread_ns**2 and not is_constant) or settled_ns < nominal_ns / _FASTER:
        return assumed_rate(nominal_ns)
    error = (measured_weight + prior_weight) ** -0.5 / settled_ns
    return ClockRate(settled_ns, error, 0.0, fitted=True, constant=is_constant)


class Residuals(Struct, frozen=True):
    """Distances of some readings from their counters' lines, in order of ``counter`` and time."""

    counter: NDArray[np.int32]
    cycles: Numbers  # cycles since the counter's base
    line_ns: Reals  # time of the line at these cycles, since the first base of all counters
    height_ns: Reals  # distance of the reading above the line
    error_ns: Reals
    side: NDArray[np.int8]
    plausible: Mask

    def at(self, rows: Numbers) -> Residuals:
        """Return the readings of ``rows``, in that order."""
        return Residuals(*(getattr(self, name)[rows] for name in self.__struct_fields__))

    def lowered_by(self, ns: Reals) -> Residuals:
        """Return the readings, each lowered by its part of ``ns``."""
        return replace(self, height_ns=self.height_ns - ns)


def stacked(launches: Sequence[Residuals]) -> Residuals:
    """Stack the residuals of launches that have equally many readings: each column has the shape (launch, reading)."""
    return Residuals(
        *(np.stack([getattr(residuals, name) for residuals in launches]) for name in Residuals.__struct_fields__)
    )


class Lines(Struct, frozen=True):
    """Straight line for each counter of a launch, all of the same rate, through its readings (see ``agreement``)."""

    readings: Readings
    counter: NDArray[np.int32]
    plausible: Mask
    rate: ClockRate
    base_cycles: Numbers
    base_ns: Numbers  # time of each counter's line at ``base_cycles``

    def residuals(self, rows: slice | Numbers) -> Residuals:
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


def straight_lines(readings: Readings, counter: NDArray[np.int32], plausible: Mask, rate: ClockRate) -> Lines:
    """Fit the lines to the plausible readings; a counter without any is placed by the others that it has."""
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
        # They are placed by the median of those within the launch, or else of all, and then limited to the launch.
        lines = replace(lines, base_ns=base_ns)
        rows = np.flatnonzero(np.isin(counter, lost))
        sound_ns = readings.ns[plausible] if plausible.any() else readings.ns
        first_ns, last_ns = int(sound_ns.min()), int(sound_ns.max())
        is_within = (readings.ns[rows] >= first_ns) & (readings.ns[rows] <= last_ns)
        has_one = np.isin(counter[rows], counter[rows[is_within]])
        residuals = lines.residuals(rows[is_within | ~has_one])
        heights_ns = residuals.height_ns[np.lexsort((residuals.height_ns, residuals.counter))]
        begins = np.flatnonzero(np.append(True, np.diff(residuals.counter) != 0))
        stops = np.append(begins[1:], len(heights_ns))
        medians_ns = (heights_ns[(begins + stops - 1) // 2] + heights_ns[(begins + stops) // 2]) / 2
        guessed_ns = base_ns[lost] + np.rint(medians_ns).astype(np.int64)
        ends = np.searchsorted(counter, lost, side="right") - 1
        half_ns = np.rint((readings.cycles[ends] - base_cycles[lost]) * (rate.ns / 2)).astype(np.int64)
        base_ns[lost] = np.clip(guessed_ns + half_ns, first_ns, last_ns) - half_ns
    return replace(lines, base_ns=base_ns)
