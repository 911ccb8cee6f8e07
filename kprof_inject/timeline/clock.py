"""Cycles to nanoseconds.

Each SM has a counter of its own, and its clock is not steady: under load an H200 was seen to move by 20 % within
15 µs, and its SMs by a few per cent against each other. The fit has two steps:

1. one rate for the launch, by weighted least squares over all readings, each SM with an offset of its own;
2. on each SM, what the readings leave of that straight line: a curve through them (see ``curves``).

Without readings there is nothing to fit: the rate is then assumed, and so is when each SM began.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.curves import Curves, fit_curves, flat_curves
from kprof_inject.timeline.groups import smallest
from kprof_inject.timeline.readings import Readings, trust

# A GPU under load runs within this share of its nominal clock.
_NOMINAL_SPREAD = 0.25
_FALLBACK_CLOCK_HZ = 1.5e9
# No device runs at several times its nominal clock: readings that say so contradict each other.
_FASTEST = 4
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The clock of a launch. ``source`` says whether its rate was "fitted" to readings; is "assumed" to be the device's
    nominal one, because the launch was too short for its readings; or is "nominal" for want of any.

    ``rate_ns`` is nanoseconds per cycle and ``rate_error`` its relative standard error. ``residual_ns`` is the root
    mean square of the readings about the fit, ``worst_ns`` the largest, ``readings`` how many there were.
    ``sms`` are the numbers of the SMs that had readings, ascending; the tables below have a row for each.
    ``base_cycles`` and ``base_ns`` (SM) fix each SM's line; ``curves`` are added to it.
    """

    rate_ns: float
    rate_error: float
    residual_ns: float
    worst_ns: float
    readings: int
    sms: NDArray[np.int64]
    base_cycles: NDArray[np.int64]
    base_ns: NDArray[np.int64]
    curves: Curves
    source: str

    @property
    def clock_hz(self) -> float:
        return 1e9 / self.rate_ns

    def to_ns(self, cycles: NDArray[np.int64], sm: NDArray[np.int64]) -> NDArray[np.int64]:
        """Clock values of the given SMs on the device's globaltimer, rounded to whole nanoseconds.

        An SM without readings has no time of its own; it is given that of the next."""
        row = np.minimum(np.searchsorted(self.sms, sm), len(self.sms) - 1)
        since = cycles - self.base_cycles[row]
        return self.base_ns[row] + np.rint(since * self.rate_ns + self.curves.at(row, since)).astype(np.int64)


def fit_clock(readings: Readings, nominal_hz: float) -> ClockFit:
    """Fit the clock of one launch; ``nominal_hz`` is the device's, or 0 if unknown."""
    if not readings.sm.size:
        nowhere = np.zeros(1, dtype=np.int64)
        return nominal_clock(nowhere, nowhere, nominal_hz, 0)
    sms, sm = np.unique(readings.sm, return_inverse=True)
    sm_count = len(sms)
    readings = replace(readings, sm=sm)
    # Differences of integers first: globaltimer values do not fit into a double.
    base_cycles = smallest(readings.sm, readings.cycles, sm_count)
    since = readings.cycles - base_cycles[readings.sm]
    first_ns = int(readings.ns.min())
    x = since.astype(np.float64)
    y = (readings.ns - first_ns) + readings.shift_ns

    nominal_ns = _nominal_ns(nominal_hz)
    (rate_ns, more_shift_ns), rate_error, weight = _fit_rate(readings, x, y, sm_count, nominal_ns)
    source = "fitted"
    if rate_ns < nominal_ns / _FASTEST:
        # The launch was shorter than what its readings are uncertain by; they still tell when each SM began.
        rate_ns, more_shift_ns, rate_error, source = nominal_ns, 0.0, _NOMINAL_SPREAD, "assumed"
    left = y - rate_ns * x + readings.side * more_shift_ns
    offset = _means(readings.sm, left, weight, sm_count)
    left -= offset[readings.sm]

    curves, left, weight = fit_curves(readings, since, left, weight, rate_ns)
    return ClockFit(
        rate_ns,
        rate_error,
        float(np.sqrt(np.average(left**2, weights=weight))),
        float(np.max(np.abs(left))),
        len(left),
        sms,
        base_cycles,
        first_ns + np.rint(offset).astype(np.int64),
        curves,
        source,
    )


def nominal_clock(sm: NDArray[np.int64], first_cycles: NDArray[np.int64], nominal_hz: float, begin_ns: int) -> ClockFit:
    """An assumption for a launch that began at ``begin_ns``: every SM runs at the device's nominal rate, and the least
    of its ``first_cycles``, its first record, is at the launch's begin."""
    sms, row = np.unique(sm, return_inverse=True)
    return ClockFit(
        _nominal_ns(nominal_hz),
        _NOMINAL_SPREAD,
        0.0,
        0.0,
        0,
        sms,
        smallest(row, first_cycles, len(sms)),
        np.full(len(sms), begin_ns),
        flat_curves(len(sms)),
        "nominal",
    )


def _nominal_ns(nominal_hz: float) -> float:
    return 1e9 / (nominal_hz or _FALLBACK_CLOCK_HZ)


def _fit_rate(
    readings: Readings, x: NDArray[np.float64], y: NDArray[np.float64], sm_count: int, nominal_ns: float
) -> tuple[tuple[float, float], float, NDArray[np.float64]]:
    """The launch's rate and the shift that all its readings have in common, the rate's relative error, and the weight
    of each reading.

    Reweighted in rounds, so that a reading far off (a preempted CTA) counts less. The nominal rate and no shift are
    weak priors: they decide where the readings do not.
    """
    columns = np.stack((x, -readings.side), axis=1)
    prior_mean = np.array([nominal_ns, 0.0])
    prior_weight = 1 / np.array([_NOMINAL_SPREAD * nominal_ns, readings.more_shift_ns]) ** 2
    weight: NDArray[np.float64] = 1 / readings.error_ns**2
    scale = 1.0
    for _ in range(_ROUNDS):
        means = [_means(readings.sm, column, weight, sm_count)[readings.sm] for column in columns.T]
        centred = columns - np.stack(means, axis=1)
        target = y - _means(readings.sm, y, weight, sm_count)[readings.sm]
        weighted = centred * (weight / scale**2)[:, None]
        information = weighted.T @ centred + np.diag(prior_weight)
        solution = np.linalg.solve(information, weighted.T @ target + prior_weight * prior_mean)
        rest = (target - centred @ solution) / readings.error_ns
        scale = max(1.0, 1.4826 * float(np.median(np.abs(rest))))
        weight = trust(rest / scale, readings.side) / readings.error_ns**2
    rate_ns, more_shift_ns = (float(value) for value in solution)
    # An error that all readings share does not average out.
    shared_ns = float(np.linalg.solve(information, weighted.T @ readings.shared_error_ns)[0])
    rate_error = float(np.hypot(np.sqrt(np.linalg.inv(information)[0, 0]), shared_ns)) / rate_ns
    return (rate_ns, more_shift_ns), rate_error, weight


def _means(
    sm: NDArray[np.int64], values: NDArray[np.float64], weight: NDArray[np.float64], sm_count: int
) -> NDArray[np.float64]:
    """The weighted mean over each SM's rows; 0 for an SM without rows."""
    total = np.bincount(sm, weight, sm_count)
    return np.bincount(sm, weight * values, sm_count) / np.where(total == 0, 1, total)
