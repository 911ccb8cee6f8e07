"""Cycle counters that overflow, made to go on counting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.groups import largest, smallest

_FALLBACK_CLOCK_HZ = 1.5e9


def unwrap_once(cycles: NDArray[np.int64], sm: NDArray[np.int64], bits: int) -> NDArray[np.int64]:
    """Undo one overflow of a counter of ``bits`` bits within the launch, SM by SM: for one that no launch outlasts, as
    half the period of 43 bits, 37 minutes."""
    if cycles.size == 0:
        return cycles
    half = 1 << (bits - 1)
    size = int(sm.max()) + 1
    wrapped = largest(sm, cycles, size)[sm] - smallest(sm, cycles, size)[sm] > half
    return np.where(wrapped & (cycles < half), cycles + 2 * half, cycles)


def unwrap_often(
    cycles: NDArray[np.int64],
    row: NDArray[np.int64],
    warp: NDArray[np.int64],
    sm_of_row: NDArray[np.int64],
    end_ns_of_row: NDArray[np.int64],
    bits: int,
    clock_hz: float,
) -> NDArray[np.int64]:
    """Undo any number of overflows of a counter of ``bits`` bits.

    The records stand in the order of ``row``, ``warp`` and writing. Two that follow each other, and the last of two
    warps, are taken to be less than half a period apart (one second of 32 bits). The last records of the CTAs of one SM
    are placed by the device's timer at the CTAs' ends, ``end_ns_of_row``: for that, the nominal ``clock_hz`` (0 if
    unknown) is exact enough. Each SM's first value stays as it is.
    """
    if cycles.size == 0:
        return cycles
    period = 1 << bits
    before_newest = _until_newest(cycles, row, warp, period)
    # Each warp's newest, and of each row that of the first warp which recorded.
    newest = np.flatnonzero(np.append((row[1:] != row[:-1]) | (warp[1:] != warp[:-1]), True))
    rows, first = np.unique(row[newest], return_index=True)
    reference = cycles[newest[first]]
    place = np.searchsorted(rows, row)
    within_row = _nearest(cycles[newest] - reference[place[newest]], period)
    warp_number = np.searchsorted(newest, np.arange(len(cycles)))
    placed = _placed(reference, sm_of_row[rows], end_ns_of_row[rows], period, clock_hz)
    counted = placed[place] + within_row[warp_number] - before_newest

    sm = sm_of_row[row]
    lowest = smallest(sm, counted, int(sm.max()) + 1)[sm]
    shifted: NDArray[np.int64] = counted - lowest // period * period
    return shifted


def _until_newest(
    cycles: NDArray[np.int64], row: NDArray[np.int64], warp: NDArray[np.int64], period: int
) -> NDArray[np.int64]:
    """How many cycles lie between each record and the newest of its warp."""
    steps = _nearest(np.diff(cycles), period)
    steps[(row[1:] != row[:-1]) | (warp[1:] != warp[:-1])] = 0
    since = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps)))
    is_newest = np.append((row[1:] != row[:-1]) | (warp[1:] != warp[:-1]), True)
    newest = np.flatnonzero(is_newest)
    until: NDArray[np.int64] = since[newest[np.searchsorted(newest, np.arange(len(cycles)))]] - since
    return until


def _placed(
    cycles: NDArray[np.int64], sm: NDArray[np.int64], ns: NDArray[np.int64], period: int, clock_hz: float
) -> NDArray[np.int64]:
    """Clock values with as many periods added as the time between those of the same SM says."""
    order = np.lexsort((ns, sm))
    steps = np.diff(cycles[order])
    expected = np.diff(ns[order]) * ((clock_hz or _FALLBACK_CLOCK_HZ) / 1e9)
    steps += np.rint((expected - steps) / period).astype(np.int64) * period
    steps[np.diff(sm[order]) != 0] = 0
    since = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps)))
    fresh = np.append(True, np.diff(sm[order]) != 0)
    start = np.maximum.accumulate(np.where(fresh, np.arange(len(cycles)), 0))
    placed = np.empty_like(cycles)
    placed[order] = cycles[order][start] + since - since[start]
    return placed


def _nearest(cycles: NDArray[np.int64], period: int) -> NDArray[np.int64]:
    """Differences of a counter's values as the shortest way round: from minus to plus half a period."""
    shortest: NDArray[np.int64] = (cycles + period // 2) % period - period // 2
    return shortest
