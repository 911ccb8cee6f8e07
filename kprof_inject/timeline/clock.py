"""Cycles to nanoseconds: one rate for the launch, one offset for each SM.

Every CTA reads the device's globaltimer when it begins (init) and when it is about to copy its records out
(pre-final). Its first record comes a little after the first reading, its last a little before the second. With ``g``
the sum of both gaps, a reading ``y`` at the clock value ``x`` of the nearest record obeys

    y = rate * x + offset(SM) - g/2     (init)          y = rate * x + offset(SM) + g/2     (pre-final)

All SMs share the rate. It and ``g`` are fitted by weighted least squares; a weak prior on either keeps the fit sound
where the readings alone do not decide, as with one CTA on each SM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas
from kprof_inject.timeline.records import Records, lost_records

# globaltimer moves in steps of 32 ns on an H200: a reading is off by 32/sqrt(12) ns.
_READING_ERROR_NS = 9.2
# Between a timer reading and the record of a scope that spans the function, measured on an H200: both gaps together.
_FUNCTION_GAP_NS = (60.0, 40.0)
# Between a timer reading and the record of some scope within the function: nothing is known.
_OTHER_GAP_NS = (500.0, 5000.0)
# A GPU under load runs within this share of its nominal clock.
_NOMINAL_RATE_SHARE = 0.25
_FALLBACK_CLOCK_HZ = 1.5e9
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The fitted clock. ``rate_ns`` is nanoseconds per cycle and ``rate_error`` its relative standard error.

    ``residual_ns`` is the root mean square of the readings about the fit, ``worst_ns`` the largest, ``readings`` how
    many there were. ``gap_ns`` is what lies between readings and records, both ends together.
    """

    rate_ns: float
    rate_error: float
    gap_ns: float
    residual_ns: float
    worst_ns: float
    readings: int
    base_cycles: NDArray[np.int64]
    base_ns: NDArray[np.int64]

    @property
    def clock_hz(self) -> float:
        return 1e9 / self.rate_ns

    def to_ns(self, cycles: NDArray[np.int64], sm: NDArray[np.int64]) -> NDArray[np.int64]:
        """Clock values of the given SMs on the device's globaltimer, rounded to whole nanoseconds."""
        since = (cycles - self.base_cycles[sm]).astype(np.float64)
        return self.base_ns[sm] + np.rint(since * self.rate_ns).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Readings:
    """Timer readings and the clock values nearest to them; ``side`` is -1/2 for init and +1/2 for pre-final."""

    sm: NDArray[np.int64]
    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]
    side: NDArray[np.float64]


def fit_clock(ctas: RawCtas, records: Records, nominal_hz: float, *, spans_function: bool) -> ClockFit:
    """Fit the clock of one launch. ``nominal_hz`` is the device's, or 0 if unknown; ``spans_function`` says whether
    the first and last record of a CTA belong to a scope around the whole function."""
    readings = _readings(ctas, records)
    sm_count = int(ctas.sm.max(initial=-1)) + 1
    nominal_ns = 1e9 / (nominal_hz or _FALLBACK_CLOCK_HZ)
    if not readings.sm.size:
        nothing = np.zeros(sm_count, dtype=np.int64)
        return ClockFit(nominal_ns, _NOMINAL_RATE_SHARE, 0.0, 0.0, 0.0, 0, nothing, nothing)

    # int64 differences first: globaltimer values do not fit into a double.
    first_cycles = _smallest(readings.sm, readings.cycles, sm_count)
    first_ns = int(readings.ns.min())
    x = (readings.cycles - first_cycles[readings.sm]).astype(np.float64)
    y = (readings.ns - first_ns).astype(np.float64)

    gap = _FUNCTION_GAP_NS if spans_function else _OTHER_GAP_NS
    prior_mean = np.array([nominal_ns, gap[0]])
    prior_weight = 1 / np.array([_NOMINAL_RATE_SHARE * nominal_ns, gap[1]]) ** 2
    columns = np.stack((x, readings.side), axis=1)
    weight = np.ones(len(x))
    scale = _READING_ERROR_NS
    for _ in range(_ROUNDS):  # iteratively reweighted: a reading far off (a context switch) counts less
        centred = columns - _means(readings.sm, columns, weight, sm_count)[readings.sm]
        target = y - _means(readings.sm, y[:, None], weight, sm_count)[readings.sm, 0]
        normal = (centred * weight[:, None]).T @ centred / scale**2 + np.diag(prior_weight)
        moment = (centred * weight[:, None]).T @ target / scale**2 + prior_weight * prior_mean
        solution = np.linalg.solve(normal, moment)
        residual = target - centred @ solution
        scale = max(_READING_ERROR_NS, 1.4826 * float(np.median(np.abs(residual))))
        weight = np.minimum(1.0, 3 * scale / np.maximum(np.abs(residual), 1e-9))

    rate_ns, gap_ns = (float(value) for value in solution)
    offset = _means(readings.sm, (y - columns @ solution)[:, None], weight, sm_count)[:, 0]
    rate_error = float(np.sqrt(np.linalg.inv(normal)[0, 0])) / rate_ns
    return ClockFit(
        rate_ns,
        rate_error,
        gap_ns,
        float(np.sqrt(np.mean(residual**2))),
        float(np.max(np.abs(residual))),
        len(residual),
        first_cycles,
        first_ns + np.rint(offset).astype(np.int64),
    )


def _readings(ctas: RawCtas, records: Records) -> _Readings:
    """The readings that have a record near: every pre-final one, and init where no warp lost its first record."""
    count = len(ctas.sm)
    first = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(first, records.row, records.cycles)
    last = np.full(count, np.iinfo(np.int64).min)
    np.maximum.at(last, records.row, records.cycles)
    recorded = np.isin(np.arange(count), records.row)
    whole = recorded & (lost_records(ctas).sum(axis=1) == 0)
    return _Readings(
        np.concatenate((ctas.sm[whole], ctas.sm[recorded])),
        np.concatenate((first[whole], last[recorded])),
        np.concatenate((ctas.init_ns[whole], ctas.pre_final_ns[recorded])),
        np.repeat((-0.5, 0.5), (int(whole.sum()), int(recorded.sum()))),
    )


def _smallest(sm: NDArray[np.int64], values: NDArray[np.int64], sm_count: int) -> NDArray[np.int64]:
    smallest = np.full(sm_count, np.iinfo(np.int64).max)
    np.minimum.at(smallest, sm, values)
    return np.where(smallest == np.iinfo(np.int64).max, 0, smallest)


def _means(
    sm: NDArray[np.int64], values: NDArray[np.float64], weight: NDArray[np.float64], sm_count: int
) -> NDArray[np.float64]:
    """Weighted means of each column over each SM's rows; 0 for an SM without rows."""
    total = np.bincount(sm, weight, sm_count)
    sums = [np.bincount(sm, weight * column, sm_count) for column in values.T]
    return np.stack(sums, axis=1) / np.where(total == 0, 1, total)[:, None]
