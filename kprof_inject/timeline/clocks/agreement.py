"""Which readings of a launch can be true, before anything is fitted to them: one corrupted word can put a time minutes
away, and a least squares fit with it.

A reading is believed if most of its neighbours on the same counter agree with it: a clock between the two that runs at
half to one and a half times the launch's rate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.clocks.parts import parts
from kprof_inject.timeline.clocks.rate import LARGEST_RATE_NS, LEAST_RATE_NS
from kprof_inject.timeline.clocks.readings import Readings

# A time of fewer steps says nothing of the rate, and one of enough of them all that needs to be known of it here.
_LEAST_STEPS = 8
_ENOUGH_STEPS = 64
_MOST_PAIRS = 1 << 16
# The furthest pairs count as these many usual ones: a clock value that is far off makes a far pair.
_MOST_WEIGHT = 4.0
# How many neighbours are asked on each side, and how far off they may be: what a busy memory holds a reading up by,
# some steps of the timer, and this share of the time between the two.
_NEIGHBOURS = 3
_HELD_UP_NS = 5_000.0
_MOST_STEPS = 8.0
_MOST_TURN = 0.5
_ERRORS = 4.0


def rough_rate(readings: Readings, nominal_ns: float) -> float:
    """About how many nanoseconds a cycle takes: what half of the readings say, whatever the others do. ``nominal_ns``
    if they say nothing, or what cannot be."""
    cycles, ns = _pairs(readings)
    apart = cycles > 0
    if not apart.any() or np.median(np.abs(ns[apart])) < _LEAST_STEPS * readings.step_ns:
        return nominal_ns
    cycles, ns = cycles[apart], ns[apart]
    weight = np.minimum(cycles, _MOST_WEIGHT * np.median(cycles))
    slopes = ns / cycles
    order = np.argsort(slopes)
    below = np.cumsum(weight[order])
    rate_ns = float(slopes[order[np.searchsorted(below, below[-1] / 2)]])
    return rate_ns if LEAST_RATE_NS <= rate_ns <= LARGEST_RATE_NS else nominal_ns


def _pairs(readings: Readings) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distances of pairs of readings in cycles and in nanoseconds. Each two are of one SM, and as near one another
    as the timer's steps allow: should a counter jump somewhere, few pairs have that between them."""
    count = len(readings.sm)
    index = np.arange(0, count, 1 + count // _MOST_PAIRS)
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
    """Which counter each reading is of, numbered from 0 in the readings' order; and whether it is believed.

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
    tolerance_ns = _ERRORS * (doubt_ns[lag:] + doubt_ns[:-lag]) + _MOST_TURN * clock_ns
    tolerance_ns += _HELD_UP_NS + _MOST_STEPS * readings.step_ns
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
