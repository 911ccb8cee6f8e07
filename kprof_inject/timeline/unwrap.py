"""Cycle counters that overflow, made to go on counting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import RawCtas
from kprof_inject.timeline.columns import largest, smallest

FALLBACK_CLOCK_HZ = 1.5e9
"""What is assumed of a device where a capture tells no clock."""


class Counter(Protocol):
    """The cycle counters of a launch's SMs."""

    def count_on(self, cycles: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
        """Clock values as if the counters never overflowed. The records stand in the order of ``group`` and writing,
        all that a group has."""
        ...


@dataclass(frozen=True, slots=True)
class NeverOverflowed:
    """No SM's counter overflowed."""

    def count_on(self, cycles: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
        return cycles


@dataclass(frozen=True, slots=True)
class OverflowedOnce:
    """All values of an SM are less than half a ``period`` away from its ``reference`` (group): for a launch that does
    not outlast that, of 43 bits 37 minutes."""

    reference: NDArray[np.int64]
    period: int

    def count_on(self, cycles: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
        reference = self.reference[group]
        return reference + _nearest(cycles - reference, self.period)


@dataclass(frozen=True, slots=True)
class OverflowsOften:
    """Any number of overflows. Two records of a warp that follow each other are taken to be less than half a
    ``period`` apart (one second of 32 bits); ``newest`` (group) is the value of each warp's last, counted on."""

    newest: NDArray[np.int64]
    period: int

    def count_on(self, cycles: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
        if not cycles.size:
            return cycles
        steps = _nearest(np.diff(cycles), self.period)
        fresh = np.diff(group) != 0
        steps[fresh] = 0
        since = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(steps)))
        last = np.flatnonzero(np.append(fresh, True))
        counts = np.diff(last, prepend=-1)
        counted: NDArray[np.int64] = since + np.repeat(self.newest[group[last]] - since[last], counts)
        return counted

    def lifted(self, lowest: NDArray[np.int64]) -> OverflowsOften:
        """The same counters, each group's later by as many whole periods as bring its ``lowest`` value to 0 or above,
        and no further than needed."""
        return replace(self, newest=self.newest - lowest // self.period * self.period)


def counter_of(
    oldest: NDArray[np.int64], newest: NDArray[np.int64], sm_of_row: NDArray[np.int64], bits: int, *, stores_moved: bool
) -> Counter:
    """The counters of a launch that does not outlast half their period. ``oldest`` and ``newest`` (CTA, warp) are the
    values of the first and the last entry of each ring, -1 where it has none: the others lie between them, unless
    stores were moved."""
    size = int(sm_of_row.max(initial=0)) + 1
    row, warp = np.nonzero(newest >= 0)
    sm, first, last = sm_of_row[row], oldest[row, warp], newest[row, warp]
    lowest = np.minimum(smallest(sm, first, size), smallest(sm, last, size))
    highest = np.maximum(largest(sm, first, size), largest(sm, last, size))
    # One damaged value looks the same.
    has_overflowed = (highest >= lowest) & (stores_moved | (highest - np.minimum(lowest, highest) > 1 << (bits - 1)))
    if not has_overflowed.any():
        return NeverOverflowed()
    references = _references(sm, first, last, size, 1 << bits)
    return OverflowedOnce(np.repeat(references[sm_of_row], newest.shape[1]), 1 << bits)


def _references(
    sm: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64], size: int, period: int
) -> NDArray[np.int64]:
    """For each of ``size`` SMs one of the ``last`` values of its warps, that which most others stand close behind, the
    short way round; a period more where values stand before 0. 0 for an SM without any."""
    order = np.lexsort((last, sm))
    first, last = first[order], last[order]
    begin = np.searchsorted(sm[order], np.arange(size + 1))
    references = np.zeros(size, dtype=np.int64)
    for number in np.flatnonzero(np.diff(begin)).tolist():
        mine = slice(begin[number], begin[number + 1])
        ahead = (begin[number + 1] - begin[number]) // 2
        reach = np.append(last[mine][ahead:], last[mine][:ahead] + period) - last[mine]
        reference = last[mine][np.argmin(reach)]
        away = _nearest(np.append(first[mine], last[mine]) - reference, period)
        is_before_0 = (away < -reference) & (away > -period // 4)
        references[number] = reference + period * is_before_0.any()
    return references


def often_overflowing(newest: NDArray[np.int64], ctas: RawCtas, bits: int, clock_hz: float) -> OverflowsOften:
    """The counters of a launch that may take longer than they count. ``newest`` is as for ``counter_of``, ``clock_hz``
    the device's nominal clock, 0 if unknown."""
    return OverflowsOften(_newest_counted_on(newest, ctas, 1 << bits, clock_hz), 1 << bits)


def _newest_counted_on(newest: NDArray[np.int64], ctas: RawCtas, period: int, clock_hz: float) -> NDArray[np.int64]:
    """The values of the last records of all groups, counted on.

    Those of two warps of a CTA are taken to be less than half a period apart. The CTAs of one SM are placed by the
    device's timer at their ends: for that, the nominal clock is exact enough. The first of each SM stays as it is."""
    has_any = newest >= 0
    rows = np.flatnonzero(has_any.any(axis=1))
    reference = newest[rows, np.argmax(has_any[rows], axis=1)]
    placed = _placed(reference, ctas.sm[rows], ctas.pre_final_ns[rows], period, clock_hz)
    counted = np.zeros_like(newest)
    counted[rows] = placed[:, None] + _nearest(newest[rows] - reference[:, None], period)
    return counted.reshape(-1)


def _placed(
    cycles: NDArray[np.int64], sm: NDArray[np.int64], ns: NDArray[np.int64], period: int, clock_hz: float
) -> NDArray[np.int64]:
    """Clock values with as many periods added as the time between those of the same SM says."""
    if not cycles.size:
        return cycles
    order = np.lexsort((ns, sm))
    steps = np.diff(cycles[order])
    expected = np.diff(ns[order]) * ((clock_hz or FALLBACK_CLOCK_HZ) / 1e9)
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
