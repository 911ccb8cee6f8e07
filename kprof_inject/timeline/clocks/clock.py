"""Cycles to nanoseconds.

Each SM has a counter of its own, and its clock is not steady: under load an H200 was seen to move by 20 % within
15 µs, and its SMs by a few per cent against each other. The fit goes in steps:

1. readings that cannot be true are left out (``agreement``);
2. one rate for the launch, by weighted least squares over all others (``rate``), and a line of that rate for each SM's
   counter (``lines``);
3. what the readings leave of those lines: a curve through them (``curves``).

Without readings there is nothing to fit: the rate is then assumed, and so is when each SM began.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.clocks.agreement import agreement, rough_rate
from kprof_inject.timeline.clocks.curves import COUNTER_SHIFT, USUAL_WALK_NS2_PER_NS, Curves, fit_curves, flat_curves
from kprof_inject.timeline.clocks.lines import Lines, straight_lines
from kprof_inject.timeline.clocks.parts import parts
from kprof_inject.timeline.clocks.rate import NOMINAL_SPREAD, Rate, assumed_rate, fit_rate, nominal_rate
from kprof_inject.timeline.clocks.readings import Readings
from kprof_inject.timeline.groups import smallest

# The rate of a launch is as exact as it can be with so many readings.
_MOST_FOR_RATE = 1 << 16
# By how much a rate that falls within a long time may differ between that time's halves, as one standard deviation: an
# H200 was seen to fall from 1.98 to 1.48 GHz.
_DRIFT = 0.125


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The clock of a launch. ``source`` says whether its rate was "fitted" to readings; is "assumed" to be the device's
    nominal one, because the launch was too short for its readings, or made no record; or is "nominal" where no timer
    was read.

    ``rate_ns`` is nanoseconds per cycle on the average, and ``rate_error`` its relative standard error. ``residual_ns``
    is the root mean square of the readings about the fit, ``worst_ns`` the largest, ``readings`` how many there were,
    and ``readings_left_out`` how many contradict the others too much to be true. Between two readings of an SM that are
    far apart, times are less sure: midway between those that are furthest apart, the standard error is ``between_ns``.
    The timer moved in steps of ``timer_step_ns`` (0 without readings), and all times are as it shows them: half a step
    late, on the average.

    The tables below have a row for each counter, ascending by ``sms``, its SM, and ``base_cycles``; an SM has more than
    one if its counter jumped, or if several SMs have its number. ``counters_guessed`` is how many had no reading that
    could be true, and stand somewhere within the launch. ``base_cycles`` and ``base_ns`` fix each line; ``curves`` are
    added to it.
    """

    rate_ns: float
    rate_error: float
    residual_ns: float
    worst_ns: float
    between_ns: float
    timer_step_ns: int
    readings: int
    readings_left_out: int
    counters_guessed: int
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
        places = _place(self.sms, self._begins_cycles())
        ns = np.empty(len(cycles), dtype=np.int64)
        for part in parts(len(cycles)):
            row = np.maximum(np.searchsorted(places, _place(sm[part], cycles[part]), side="right") - 1, 0)
            # Before its first base, an SM goes by that all the same.
            row = np.where(self.sms[row] == sm[part], row, np.minimum(row + 1, len(self.sms) - 1))
            since = cycles[part] - self.base_cycles[row]
            ns[part] = self.base_ns[row] + np.rint(since * self.rate_ns + self.curves.at(row, since)).astype(np.int64)
        return ns

    def _begins_cycles(self) -> NDArray[np.int64]:
        """From where on records are of each counter. Some may stand before the counter's first reading: of two of an
        SM, they are of the nearer one."""
        begins = self.base_cycles.copy()
        again = np.flatnonzero(self.sms[1:] == self.sms[:-1]) + 1
        last = self.base_cycles[again - 1] + self.curves.length_cycles(again - 1)
        begins[again] -= (begins[again] - last) // 2
        return begins


def fit_clock(readings: Readings, nominal_hz: float) -> ClockFit:
    """Fit the clock of one launch; ``nominal_hz`` is the device's, or 0 if unknown."""
    if not readings.sm.size:
        # The timer was read, and no record beside it.
        nominal = nominal_clock(readings.sm.astype(np.int64), readings.cycles, nominal_hz, 0)
        return replace(nominal, source="assumed")
    rough_ns = rough_rate(readings, nominal_rate(nominal_hz))
    counter, believed = agreement(readings, rough_ns)
    rate = _rate(readings, counter, believed, rough_ns, nominal_hz)
    lines = straight_lines(readings, counter, believed, rate)
    between_ns = _between_ns(lines)
    fit = fit_curves(lines)
    placed = np.bincount(counter, believed) > 0
    return ClockFit(
        rate_ns=rate.ns,
        rate_error=rate.error,
        residual_ns=fit.residual_ns,
        worst_ns=fit.worst_ns,
        between_ns=between_ns,
        timer_step_ns=readings.step_ns,
        readings=len(counter),
        readings_left_out=int(np.count_nonzero(~believed)),
        counters_guessed=int(np.count_nonzero(~placed)),
        sms=readings.sm[np.searchsorted(counter, np.arange(len(placed)))].astype(np.int64),
        base_cycles=lines.base_cycles,
        base_ns=lines.base_ns,
        curves=fit.curves,
        source=rate.source,
    )


def nominal_clock(sm: NDArray[np.int64], first_cycles: NDArray[np.int64], nominal_hz: float, begin_ns: int) -> ClockFit:
    """An assumption for a launch that began at ``begin_ns``: every SM runs at the device's nominal rate, and the least
    of its ``first_cycles``, its first record, is at the launch's begin."""
    if not sm.size:
        sm = first_cycles = np.zeros(1, dtype=np.int64)
    sms, row = np.unique(sm, return_inverse=True)
    return ClockFit(
        rate_ns=nominal_rate(nominal_hz),
        rate_error=NOMINAL_SPREAD,
        residual_ns=0.0,
        worst_ns=0.0,
        between_ns=0.0,
        timer_step_ns=0,
        readings=0,
        readings_left_out=0,
        counters_guessed=0,
        sms=sms,
        base_cycles=smallest(row, first_cycles, len(sms)),
        base_ns=np.full(len(sms), begin_ns),
        curves=flat_curves(len(sms)),
        source="nominal",
    )


def _place(sm: NDArray[np.int64], cycles: NDArray[np.int64]) -> NDArray[np.int64]:
    """SM and clock value as one number."""
    return (sm.astype(np.int64) << COUNTER_SHIFT) + cycles


def _rate(
    readings: Readings, counter: NDArray[np.int32], believed: NDArray[np.bool_], rough_ns: float, nominal_hz: float
) -> Rate:
    rows = np.flatnonzero(believed)
    if not rows.size:
        return assumed_rate(nominal_rate(nominal_hz))
    # An odd distance: at an even one, the readings of CTAs one after the other could all be of one side.
    rows = rows[:: rows.size // _MOST_FOR_RATE * 2 + 1]
    return fit_rate(readings.at(rows), counter[rows], rough_ns, nominal_hz)


def _between_ns(lines: Lines) -> float:
    """The standard error midway between the two readings of a counter that are furthest apart: of the readings, and of
    what a clock does in such a time."""
    rows = np.flatnonzero(lines.believed)
    gaps = np.diff(lines.readings.cycles[rows])[np.diff(lines.counter[rows]) == 0]
    gap_ns = lines.rate.ns * float(gaps.max(initial=0))
    reading_ns = float(np.median(lines.readings.error_ns)) / np.sqrt(2)
    if lines.rate.constant:
        return float(reading_ns)
    return float(np.linalg.norm((reading_ns, np.sqrt(USUAL_WALK_NS2_PER_NS * gap_ns / 4), _DRIFT * gap_ns / 8)))
