"""Cycles to nanoseconds.

Each SM has a counter of its own, and its clock is not steady: under load an H200 was seen to move by 20 % within
15 µs, and its SMs by a few per cent against each other. The fit goes in steps:

1. readings that cannot be true are left out (``agreement``);
2. one rate for the launch, by weighted least squares over all others (``fit_rate``), and a line of that rate for each
   SM's counter (``straight_lines``);
3. how far the readings lie from those lines: a curve through that (``fit_curves``).

Without readings there is nothing to fit: the rate is then assumed, and so is when each SM began.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import RawCtas
from kprof_inject.capture.model import Launch
from kprof_inject.timeline.columns import smallest
from kprof_inject.timeline.curves import COUNTER_SHIFT, USUAL_WALK_NS2_PER_NS, CurveFit, Curves, fit_curves, flat_curves
from kprof_inject.timeline.rate import (
    MAX_RATE_NS,
    MIN_RATE_NS,
    NOMINAL_SPREAD,
    RateSample,
    assumed_rate,
    fit_rates,
    nominal_rate,
    parts,
)
from kprof_inject.timeline.readings import Readings, WarpTally, first_cycles
from kprof_inject.timeline.timer_lines import Lines, straight_lines

# A time of fewer steps says nothing of the rate, and one of enough of them all that needs to be known of it here.
_MIN_STEPS = 8
_ENOUGH_STEPS = 64
_MAX_PAIRS = 1 << 16
# The furthest pairs count as these many usual ones: a clock value that is far off makes a far pair.
_MAX_WEIGHT = 4.0
# How many neighbours are asked on each side, and how far off they may be: what a busy memory holds a reading up by,
# some steps of the timer, and this share of the time between the two.
_NEIGHBOURS = 3
_HELD_UP_NS = 5_000.0
_MAX_STEPS = 8.0
_MAX_TURN = 0.5
_ERRORS = 4.0


def rough_rate(readings: Readings, nominal_ns: float) -> float:
    """About how many nanoseconds a cycle takes: what half of the readings say, whatever the others do. ``nominal_ns``
    if they say nothing, or what cannot be."""
    cycles, ns = _pairs(readings)
    apart = cycles > 0
    if not apart.any() or np.median(np.abs(ns[apart])) < _MIN_STEPS * readings.step_ns:
        return nominal_ns
    cycles, ns = cycles[apart], ns[apart]
    weight = np.minimum(cycles, _MAX_WEIGHT * np.median(cycles))
    slopes = ns / cycles
    order = np.argsort(slopes)
    below = np.cumsum(weight[order])
    rate_ns = float(slopes[order[np.searchsorted(below, below[-1] / 2)]])
    return rate_ns if MIN_RATE_NS <= rate_ns <= MAX_RATE_NS else nominal_ns


def _pairs(readings: Readings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distances of pairs of readings in cycles and in nanoseconds. Each two are of one SM, and as near one another
    as the timer's steps allow: should a counter jump somewhere, few pairs have that between them."""
    count = len(readings.sm)
    index = np.arange(0, count, 1 + count // _MAX_PAIRS)
    cycles = ns = np.empty(0, dtype=np.int64)
    lag = 1
    while lag < count and (ns.size == 0 or np.median(np.abs(ns)) < _ENOUGH_STEPS * readings.step_ns):
        partner = np.minimum(index + lag, count - 1)
        paired = (readings.sm[partner] == readings.sm[index]) & (partner > index)
        if not paired.any():
            break
        cycles = readings.cycles[partner[paired]] - readings.cycles[index[paired]]
        ns = readings.ns[partner[paired]] - readings.ns[index[paired]]
        lag *= 2
    return cycles, ns


def agreement(readings: Readings, rate_ns: float) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Which counter each reading is of, numbered from 0 in the readings' order; and whether it is plausible.

    One corrupted word can put a time minutes away, and a least squares fit with it. So a reading is plausible only if
    most of its neighbours on the same counter agree with it: the clock between the two must run at half to one and a
    half times the launch's rate.

    An SM has one counter; or several, far apart: one that jumped, or those of several SMs of the same number. (Proton
    numbers CUs by ``32 * XCC + 10 * SE + CU`` on gfx950, and the last two come to 38.)"""
    count = len(readings.sm)
    agree = np.zeros((_NEIGHBOURS, count), dtype=bool)
    for part in parts(count):
        some = readings.at(slice(part.start, part.stop + _NEIGHBOURS))
        for lag in range(1, _NEIGHBOURS + 1):
            agreed = _agree(some, lag, rate_ns)[: part.stop - part.start]
            agree[lag - 1, part.start : part.start + agreed.size] = agreed
    fresh = np.append(True, readings.sm[1:] != readings.sm[:-1])
    fresh[1:] |= _jumps(fresh[1:], agree[0, :-1], agree[-1])
    counter = np.cumsum(fresh, dtype=np.int32) - np.int32(1)
    asked, for_it = np.zeros((2, count), dtype=np.int8)
    for lag in range(1, _NEIGHBOURS + 1):
        same = counter[lag:] == counter[:-lag]
        for side in (slice(lag, None), slice(None, -lag)):
            asked[side] += same
            for_it[side] += same & agree[lag - 1, :-lag]
    return counter, 2 * for_it >= asked


def _agree(readings: Readings, lag: int, rate_ns: float) -> NDArray[np.bool_]:
    """Whether each reading and that ``lag`` rows further on may be of one counter."""
    clock_ns = (readings.cycles[lag:] - readings.cycles[:-lag]) * rate_ns
    apart_ns = readings.ns[lag:] - readings.ns[:-lag] - clock_ns
    doubt_ns = readings.error_ns + rate_ns * readings.reckoned_cycles
    tolerance_ns = _ERRORS * (doubt_ns[lag:] + doubt_ns[:-lag]) + _MAX_TURN * clock_ns
    tolerance_ns += _HELD_UP_NS + _MAX_STEPS * readings.step_ns
    agreed: NDArray[np.bool_] = (np.abs(apart_ns) <= tolerance_ns) & (readings.sm[lag:] == readings.sm[:-lag])
    return agreed


def _jumps(
    fresh: NDArray[np.bool_], next_agrees: NDArray[np.bool_], third_agrees: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Where two readings of an SM in a row contradict each other, and those on either side of them do so too, but
    neither has a quarrel with its own neighbour: there, another counter begins."""
    jumps = np.zeros(len(next_agrees), dtype=bool)
    jumps[1:-1] = next_agrees[:-2] & ~next_agrees[1:-1] & next_agrees[2:] & ~third_agrees[: max(len(jumps) - 2, 0)]
    return jumps & ~fresh


# The rate of a launch is as exact as it can be with so many readings.
_MAX_FOR_RATE = 1 << 16
# By how much a rate that falls within a long time may differ between that time's halves, as one standard deviation: an
# H200 was seen to fall from 1.98 to 1.48 GHz.
_DRIFT = 0.125


class ClockSource(StrEnum):
    """Where the rate of a launch's clock comes from."""

    FITTED = "fitted"
    """Readings of the timer."""
    ASSUMED = "assumed"
    """The device's nominal rate: the launch was too short for its readings, or made no record."""
    NOMINAL = "nominal"
    """The same, and nothing else is known: no timer was read."""
    TIMER = "timer"
    """No clock: every record is a reading of the timer itself, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class ClockFit:
    """The clock of a launch: what takes the cycles of its SMs' counters to nanoseconds.

    All times are as the timer shows them: half of its step late, on the average.
    """

    rate_ns: float
    """Nanoseconds per cycle, on the average."""
    rate_error: float
    """The relative standard error of ``rate_ns``."""
    residual_ns: float
    """How far the readings are from the fit: the root of their mean square."""
    worst_ns: float
    """The same of the one that is furthest away."""
    between_ns: float
    """The standard error of a time where it is largest: midway between the two readings of an SM that are furthest
    apart."""
    timer_step_ns: int
    """In which steps the timer moved; 0 without readings."""
    readings: int
    """How many there were."""
    readings_left_out: int
    """How many of them contradict the others too much to be true."""
    counters_guessed: int
    """How many counters had no reading that could be true, and stand somewhere within the launch."""
    sms: NDArray[np.int64]
    """The SM of each counter, ascending. An SM has several counters if its own jumped, or if several SMs bear its
    number."""
    base_cycles: NDArray[np.int64]
    """Of each counter, ascending within an SM: where its line begins."""
    base_ns: NDArray[np.int64]
    """Of each counter: the time at ``base_cycles``."""
    curves: Curves
    """Of each counter: what is added to its line."""
    source: ClockSource

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
    (fit,) = fit_clocks([(readings, nominal_hz)])
    return fit


def fit_clocks(launches: Sequence[tuple[Readings, float]]) -> list[ClockFit]:
    """Fit the clocks of many launches at once, each as if it were alone."""
    fits = {number: _without_readings(*launch) for number, launch in enumerate(launches) if not launch[0].sm.size}
    fitted = [launch for number, launch in enumerate(launches) if number not in fits]
    lines = _lines(fitted)
    found = iter(map(_clock, lines, fit_curves(lines)))
    return [fits[number] if number in fits else next(found) for number in range(len(launches))]


def _without_readings(readings: Readings, nominal_hz: float) -> ClockFit:
    """The timer was read, and no record beside it."""
    nominal = nominal_clock(readings.sm.astype(np.int64), readings.cycles, nominal_hz, 0)
    return replace(nominal, source=ClockSource.ASSUMED)


def _lines(launches: Sequence[tuple[Readings, float]]) -> list[Lines]:
    agreed, samples = [], []
    for readings, nominal_hz in launches:
        rough_ns = rough_rate(readings, nominal_rate(nominal_hz))
        counter, plausible = agreement(readings, rough_ns)
        agreed.append((counter, plausible))
        samples.append(_sample(readings, nominal_hz, rough_ns, counter, plausible))
    fitted = iter(fit_rates([sample for sample in samples if sample is not None]))
    rates = [
        next(fitted) if sample else assumed_rate(nominal_rate(nominal_hz))
        for (_, nominal_hz), sample in zip(launches, samples, strict=True)
    ]
    return [
        straight_lines(readings, *found, rate)
        for (readings, _), found, rate in zip(launches, agreed, rates, strict=True)
    ]


def _clock(lines: Lines, fit: CurveFit) -> ClockFit:
    placed = np.bincount(lines.counter, lines.plausible) > 0
    return ClockFit(
        rate_ns=lines.rate.ns,
        rate_error=lines.rate.error,
        residual_ns=fit.residual_ns,
        worst_ns=fit.worst_ns,
        between_ns=_between_ns(lines),
        timer_step_ns=lines.readings.step_ns,
        readings=len(lines.counter),
        readings_left_out=int(np.count_nonzero(~lines.plausible)),
        counters_guessed=int(np.count_nonzero(~placed)),
        sms=lines.readings.sm[np.searchsorted(lines.counter, np.arange(len(placed)))].astype(np.int64),
        base_cycles=lines.base_cycles,
        base_ns=lines.base_ns,
        curves=fit.curves,
        source=ClockSource.FITTED if lines.rate.fitted else ClockSource.ASSUMED,
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
        source=ClockSource.NOMINAL,
    )


def timer_clock(sms: NDArray[np.int64]) -> ClockFit:
    """Of a launch whose records are readings of the timer: a cycle is a nanosecond of it. ``sms`` are its SMs,
    ascending."""
    zeros = np.zeros(len(sms), dtype=np.int64)
    return ClockFit(
        rate_ns=1.0,
        rate_error=0.0,
        residual_ns=0.0,
        worst_ns=0.0,
        between_ns=0.0,
        timer_step_ns=0,
        readings=0,
        readings_left_out=0,
        counters_guessed=0,
        sms=sms,
        base_cycles=zeros,
        base_ns=zeros,
        curves=flat_curves(len(sms)),
        source=ClockSource.TIMER,
    )


def _place(sm: NDArray[np.int64], cycles: NDArray[np.int64]) -> NDArray[np.int64]:
    """SM and clock value as one number."""
    return (sm.astype(np.int64) << COUNTER_SHIFT) + cycles


def _sample(
    readings: Readings,
    nominal_hz: float,
    rough_ns: float,
    counter: NDArray[np.int32],
    plausible: NDArray[np.bool_],
) -> RateSample | None:
    """The readings that the rate is fitted to; None if there is none."""
    rows = np.flatnonzero(plausible)
    if not rows.size:
        return None
    # An odd distance: at an even one, the readings of CTAs one after the other could all be of one side.
    rows = rows[:: rows.size // _MAX_FOR_RATE * 2 + 1]
    return RateSample(readings.at(rows), counter[rows], rough_ns, nominal_hz)


def _between_ns(lines: Lines) -> float:
    """The standard error midway between the two readings of a counter that are furthest apart: of the readings, and of
    what a clock does in such a time."""
    rows = np.flatnonzero(lines.plausible)
    gaps = np.diff(lines.readings.cycles[rows])[np.diff(lines.counter[rows]) == 0]
    gap_ns = lines.rate.ns * float(gaps.max(initial=0))
    reading_ns = float(np.median(lines.readings.error_ns)) / np.sqrt(2)
    if lines.rate.constant:
        return float(reading_ns)
    return float(np.linalg.norm((reading_ns, np.sqrt(USUAL_WALK_NS2_PER_NS * gap_ns / 4), _DRIFT * gap_ns / 8)))


def assumed_times(launch: Launch, ctas: RawCtas, warps: WarpTally) -> tuple[RawCtas, ClockFit]:
    """Of a launch whose Triton reads no timer: its clock, and its CTAs with times by that clock, from the first record
    (reckoned, if the ring lost it) to the last. A CTA without records begins and ends with the launch.

    Each SM's counter has a zero of its own, far from the others'. But a device gives each SM its first CTA within 0.2
    µs of the others (H200), so their first records are taken to be at one time, the launch's begin."""
    begin_ns = _called_ns(launch)
    rows = np.flatnonzero(warps.kept.any(axis=1))
    reckoned, _ = first_cycles(ctas, warps)
    first = np.minimum(reckoned, warps.first_cycles.min(axis=1))[rows]
    last = warps.last_cycles.max(axis=1)[rows]
    clock = nominal_clock(ctas.sm[rows], first, launch.kernel.sm_clock_hz, begin_ns)
    init_ns, final_ns = np.full((2, len(ctas.sm)), begin_ns)
    init_ns[rows] = clock.to_ns(first, ctas.sm[rows])
    final_ns[rows] = clock.to_ns(last, ctas.sm[rows])
    return replace(ctas, init_ns=init_ns, pre_final_ns=final_ns, post_final_ns=final_ns), clock


def _called_ns(launch: Launch) -> int:
    """When the host had made the launch: by the device's globaltimer if the host read it too, else by its own clock."""
    readings = [reading for reading in launch.origin.host_readings if reading.device == launch.device]
    if not readings:
        return launch.host_ns
    nearest = min(readings, key=lambda reading: abs(reading.host_ns - launch.host_ns))
    return nearest.device_ns + launch.host_ns - nearest.host_ns
