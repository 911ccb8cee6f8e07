"""Convert cycles to nanoseconds.

Each SM has its own counter, whose clock is not steady: under load, an H200 was seen to change by 20 % within 15 µs, and
its SMs to differ by a few per cent. The fit has three steps:

1. leave out readings that cannot be true (``agreement``);
2. fit one rate for the launch, by weighted least squares over all others (``fit_rates``), and a line of that rate for
   each SM's counter (``straight_lines``);
3. fit a curve through the readings' distances from those lines (``fit_curves``).

Without readings there is nothing to fit: the rate is assumed, and so is each SM's begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import RawCtas
from kprof_inject.capture.model import Launch
from kprof_inject.timeline.columns import Mask, Numbers, smallest
from kprof_inject.timeline.curves import COUNTER_SHIFT, Curves, fit_curves, flat_curves
from kprof_inject.timeline.rate import (
    MAX_RATE_NS,
    MIN_RATE_NS,
    NOMINAL_SPREAD,
    Lines,
    RateSample,
    assumed_rate,
    fit_rates,
    nominal_rate,
    parts,
    spaced,
    straight_lines,
)
from kprof_inject.timeline.readings import Readings, WarpTally, first_cycles

# Times shorter than 8 timer steps do not determine the rate; 64 steps suffice for a rough one.
_MIN_STEPS = 8
_ENOUGH_STEPS = 64
_MAX_PAIRS = 1 << 16  # pairs sampled for the rough rate, evenly spaced
_MAX_WEIGHT = 4.0  # maximum weight of a pair, in median ones: a clock value that is far off makes a distant pair
# Neighbours compared on each side, and their tolerance: the delay of a reading by a busy memory, some steps of the
# timer, and this share of the time between the two.
_NEIGHBOURS = 3
_MEMORY_DELAY_NS = 5_000.0
_MAX_STEPS = 8.0
_MAX_RATE_DEVIATION = 0.5
_ERRORS = 4.0


def rough_rate(readings: Readings, nominal_ns: float) -> float:
    """Estimate the nanoseconds per cycle as the weighted median of slopes between readings.

    It holds while half of the readings are right; ``nominal_ns`` if they are too few, or the result is impossible.
    """
    # The pairs are as close as the timer's steps allow, so that a jump of the counter is within few of them.
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
    apart = cycles > 0
    if not apart.any() or np.median(np.abs(ns[apart])) < _MIN_STEPS * readings.step_ns:
        return nominal_ns
    cycles, ns = cycles[apart], ns[apart]
    weight = np.minimum(cycles, _MAX_WEIGHT * np.median(cycles))
    slopes = ns / cycles
    order = np.argsort(slopes, kind="stable")
    below = np.cumsum(weight[order])
    rate_ns = float(slopes[order[np.searchsorted(below, below[-1] / 2)]])
    return rate_ns if MIN_RATE_NS <= rate_ns <= MAX_RATE_NS else nominal_ns


def agreement(readings: Readings, rate_ns: float) -> tuple[NDArray[np.int32], Mask]:
    """Return the counter of each reading, numbered from 0 in the readings' order, and whether the reading is plausible.

    One corrupted word can put a time minutes away, and a least squares fit with it. So most neighbours on the same
    counter must agree with a reading: the clock between the two runs at half to one and a half times the launch's rate.

    An SM has one counter; or several, far apart: one that jumped, or those of several SMs with the same number. (Proton
    numbers CUs by ``32 * XCC + 10 * SE + CU`` on gfx950, and the last two add up to as much as 38.)
    """
    count = len(readings.sm)
    agree = np.zeros((_NEIGHBOURS, count), dtype=bool)
    for part in parts(count):
        near = readings.at(slice(part.start, part.stop + _NEIGHBOURS))
        reading_error_ns = near.error_ns + rate_ns * near.estimated_error_cycles
        for lag in range(1, _NEIGHBOURS + 1):
            clock_ns = (near.cycles[lag:] - near.cycles[:-lag]) * rate_ns
            apart_ns = near.ns[lag:] - near.ns[:-lag] - clock_ns
            tolerance_ns = _ERRORS * (reading_error_ns[lag:] + reading_error_ns[:-lag]) + _MAX_RATE_DEVIATION * clock_ns
            tolerance_ns += _MEMORY_DELAY_NS + _MAX_STEPS * near.step_ns
            agreed = (np.abs(apart_ns) <= tolerance_ns) & (near.sm[lag:] == near.sm[:-lag])
            agreed = agreed[: part.stop - part.start]
            agree[lag - 1, part.start : part.start + agreed.size] = agreed
    fresh = np.append(True, readings.sm[1:] != readings.sm[:-1])
    # Another counter begins within an SM where two consecutive readings contradict each other, and so do the readings
    # on either side of them, but each agrees with its own neighbours.
    next_agrees, third_agrees = agree[0, :-1], agree[-1]
    fresh[2:-1] |= next_agrees[:-2] & ~next_agrees[1:-1] & next_agrees[2:] & ~third_agrees[: max(count - 3, 0)]
    counter = np.cumsum(fresh, dtype=np.int32) - np.int32(1)
    neighbours, agreeing = np.zeros((2, count), dtype=np.int8)
    for lag in range(1, _NEIGHBOURS + 1):
        same = counter[lag:] == counter[:-lag]
        for side in (slice(lag, None), slice(None, -lag)):
            neighbours[side] += same
            agreeing[side] += same & agree[lag - 1, :-lag]
    return counter, 2 * agreeing >= neighbours


class ClockSource(StrEnum):
    """Source of the rate of a launch's clock."""

    FITTED = "fitted"  # fitted to readings of the timer
    ASSUMED = "assumed"  # the device's nominal rate: the launch was too short for its readings, or made no record
    NOMINAL = "nominal"  # the device's nominal rate, because no timer was read at all
    TIMER = "timer"  # no clock: every record is itself a reading of the timer, in nanoseconds


class ClockFit(Struct, frozen=True):
    """Clock of a launch, which converts cycles to nanoseconds as the timer shows them: half a step late on average."""

    rate_ns: float
    rate_error: float
    sms: Numbers  # SM of each counter, ascending; an SM may have several (see ``agreement``)
    base_cycles: Numbers  # first value of each counter's line; ascending within an SM
    base_ns: Numbers
    curves: Curves
    source: ClockSource
    residual_ns: float = 0.0  # root mean square of the readings' distances from the fit
    timer_step_ns: int = 0  # step of the timer; 0 without readings
    readings: int = 0
    readings_left_out: int = 0  # number of readings that contradict the others too much to be true
    counters_guessed: int = 0
    """Number of counters without a plausible reading, which are placed anywhere within the launch."""

    def __repr__(self) -> str:
        error = f" ± {100 * self.rate_error:.2g} %" if self.source == ClockSource.FITTED else ""
        return f"<ClockFit: {self.clock_hz / 1e6:.0f} MHz{error}, {self.source.value}>"

    @property
    def clock_hz(self) -> float:
        """Mean clock rate."""
        return 1e9 / self.rate_ns

    @property
    def measured_hz(self) -> float | None:
        """Mean clock rate if it was fitted to readings of the timer; otherwise None."""
        return self.clock_hz if self.source == ClockSource.FITTED else None

    def to_ns(self, cycles: Numbers, sm: Numbers) -> Numbers:
        """Convert clock values to the device's globaltimer; an SM without readings uses the clock of the next SM."""
        # The first value that is mapped by each counter. Values before a counter's first reading map to the nearer of
        # the SM's two counters.
        begins = self.base_cycles.copy()
        followers = np.flatnonzero(self.sms[1:] == self.sms[:-1]) + 1
        last = self.base_cycles[followers - 1] + self.curves.length_cycles(followers - 1)
        begins[followers] -= (begins[followers] - last) // 2
        places = _place(self.sms, begins)
        ns = np.empty(len(cycles), dtype=np.int64)
        for part in parts(len(cycles)):
            row = np.maximum(np.searchsorted(places, _place(sm[part], cycles[part]), side="right") - 1, 0)
            # Values before an SM's first base use that base as well.
            row = np.where(self.sms[row] == sm[part], row, np.minimum(row + 1, len(self.sms) - 1))
            since = cycles[part] - self.base_cycles[row]
            ns[part] = self.base_ns[row] + np.rint(since * self.rate_ns + self.curves.at(row, since)).astype(np.int64)
        return ns


def fit_clocks(launches: Sequence[tuple[Readings, float | None]]) -> list[ClockFit]:
    """Fit the clocks of many launches, given with their device's nominal clock in Hz, as if each were alone."""
    lines = _lines([launch for launch in launches if launch[0].sm.size])
    fitted = (_clock(line, *fit) for line, fit in zip(lines, fit_curves(lines), strict=True))
    nothing = np.empty(0, dtype=np.int64)
    # A launch without readings made no record.
    return [
        next(fitted)
        if readings.sm.size
        else replace(nominal_clock(nothing, nothing, nominal_hz, 0), source=ClockSource.ASSUMED)
        for readings, nominal_hz in launches
    ]


def _lines(launches: Sequence[tuple[Readings, float | None]]) -> list[Lines]:
    agreed, samples = [], []
    for readings, nominal_hz in launches:
        rough_ns = rough_rate(readings, nominal_rate(nominal_hz))
        counter, plausible = agreement(readings, rough_ns)
        agreed.append((counter, plausible))
        rows = np.flatnonzero(plausible)
        rows = rows[spaced(rows.size)]
        samples.append(RateSample(readings.at(rows), counter[rows], rough_ns, nominal_hz))
    fitted = iter(fit_rates([sample for sample in samples if sample.counter.size]))
    return [
        straight_lines(
            readings, *found, next(fitted) if sample.counter.size else assumed_rate(nominal_rate(nominal_hz))
        )
        for (readings, nominal_hz), found, sample in zip(launches, agreed, samples, strict=True)
    ]


def _clock(lines: Lines, curves: Curves, residual_ns: float) -> ClockFit:
    placed = np.bincount(lines.counter, lines.plausible) > 0
    return ClockFit(
        rate_ns=lines.rate.ns,
        rate_error=lines.rate.error,
        residual_ns=residual_ns,
        timer_step_ns=lines.readings.step_ns,
        readings=len(lines.counter),
        readings_left_out=int(np.count_nonzero(~lines.plausible)),
        counters_guessed=int(np.count_nonzero(~placed)),
        sms=lines.readings.sm[np.searchsorted(lines.counter, np.arange(len(placed)))].astype(np.int64),
        base_cycles=lines.base_cycles,
        base_ns=lines.base_ns,
        curves=curves,
        source=ClockSource.FITTED if lines.rate.fitted else ClockSource.ASSUMED,
    )


def nominal_clock(sm: Numbers, first_cycles: Numbers, nominal_hz: float | None, begin_ns: int) -> ClockFit:
    """Assume the nominal rate, and that each SM's smallest ``first_cycles`` are at the launch's begin, ``begin_ns``."""
    if not sm.size:
        sm = first_cycles = np.zeros(1, dtype=np.int64)
    sms, row = np.unique(sm, return_inverse=True)
    return ClockFit(
        rate_ns=nominal_rate(nominal_hz),
        rate_error=NOMINAL_SPREAD,
        sms=sms,
        base_cycles=smallest(row, first_cycles, len(sms)),
        base_ns=np.full(len(sms), begin_ns),
        curves=flat_curves(len(sms)),
        source=ClockSource.NOMINAL,
    )


def timer_clock(sms: Numbers) -> ClockFit:
    """Return the clock of a launch on ``sms``, ascending, whose records are readings of the timer in nanoseconds."""
    zeros = np.zeros(len(sms), dtype=np.int64)
    return ClockFit(1.0, 0.0, sms, zeros, zeros, flat_curves(len(sms)), ClockSource.TIMER)


def _place(sm: Numbers, cycles: Numbers) -> Numbers:
    return (sm.astype(np.int64) << COUNTER_SHIFT) + cycles


def assumed_times(launch: Launch, ctas: RawCtas, warps: WarpTally) -> tuple[RawCtas, ClockFit]:
    """Assume times for a launch whose Triton reads no timer: its CTAs with times, and the clock they are by.

    A CTA lasts from its first record (estimated, if the ring lost it) to its last; without records, it begins and ends
    with the launch. Each SM's counter has a zero of its own, far from the others'. But a device gives each SM its first
    CTA within 0.2 µs of the others (H200), so all first records are assumed to be at the launch's begin.
    """
    # When the host had made the launch: by the device's globaltimer if the host read it, else by the host's clock.
    begin_ns = launch.host_ns
    if readings := [reading for reading in launch.process.host_readings if reading.device == launch.device]:
        nearest = min(readings, key=lambda reading: abs(reading.host_ns - launch.host_ns))
        begin_ns += nearest.device_ns - nearest.host_ns
    rows = np.flatnonzero(warps.kept.any(axis=1))
    estimated, _ = first_cycles(ctas, warps)
    first = np.minimum(estimated, warps.first_cycles.min(axis=1))[rows]
    last = warps.last_cycles.max(axis=1)[rows]
    clock = nominal_clock(ctas.sm[rows], first, launch.kernel.sm_clock_hz, begin_ns)
    init_ns, final_ns = np.full((2, len(ctas.sm)), begin_ns)
    init_ns[rows] = clock.to_ns(first, ctas.sm[rows])
    final_ns[rows] = clock.to_ns(last, ctas.sm[rows])
    return replace(ctas, init_ns=init_ns, pre_final_ns=final_ns, post_final_ns=final_ns), clock
