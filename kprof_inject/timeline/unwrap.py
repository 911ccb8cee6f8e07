"""Cycle counters: unwrapping of those that overflow, and values that no counter of the launch can have had.

``unwrap`` returns clock values as if the counters never overflowed. The records are all that a group has, in the order
of ``group`` and writing.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from kprof_inject.capture.buffer_layouts import CLOCK_LOW_BITS, RawCtas
from kprof_inject.timeline.columns import Mask, Numbers, group_begins, largest, smallest

FALLBACK_CLOCK_HZ = 1.5e9  # of a device whose clock the capture does not have


class OverflowedOnce(Struct, frozen=True):
    """Counters of a launch shorter than half their ``period``, which is 37 minutes for 43 bits.

    All values are within half a period of their SM's ``reference`` (group).
    """

    reference: Numbers
    period: int

    def unwrap(self, cycles: Numbers, group: Numbers) -> Numbers:
        """Return the clock values nearest to the reference."""
        reference = self.reference[group]
        return reference + _nearest(cycles - reference, self.period)


class OverflowsOften(Struct, frozen=True):
    """Counters that overflow any number of times.

    Consecutive records of a warp are assumed to be less than half a ``period`` apart (one second of 32 bits);
    ``newest`` (group) is the unwrapped value of each warp's last record.
    """

    newest: Numbers
    period: int

    def unwrap(self, cycles: Numbers, group: Numbers) -> Numbers:
        """Return the clock values, counted backwards from each warp's last record."""
        if not cycles.size:
            return cycles
        steps = _nearest(np.diff(cycles), self.period)
        fresh = np.diff(group) != 0
        steps[fresh] = 0
        since = np.append(0, np.cumsum(steps))
        last = np.flatnonzero(np.append(fresh, True))
        counts = np.diff(last, prepend=-1)
        whole: Numbers = since + np.repeat(self.newest[group[last]] - since[last], counts)
        return whole


Counter = OverflowedOnce | OverflowsOften


def counter_of(
    oldest: Numbers, newest: Numbers, sm_of_row: Numbers, bits: int, *, stores_moved: bool
) -> Counter | None:
    """Return the counters of a launch that is shorter than half their period; None if none overflowed.

    ``oldest`` and ``newest`` (CTA, warp) are the values of the first and the last entry of each ring, -1 without any:
    the others are between them, unless stores were moved.
    """
    size = int(sm_of_row.max(initial=0)) + 1
    row, warp = np.nonzero(newest >= 0)
    sm, first, last = sm_of_row[row], oldest[row, warp], newest[row, warp]
    lowest = np.minimum(smallest(sm, first, size), smallest(sm, last, size))
    highest = np.maximum(largest(sm, first, size), largest(sm, last, size))
    # A single damaged value looks the same.
    has_overflowed = (highest >= lowest) & (stores_moved | (highest - np.minimum(lowest, highest) > 1 << (bits - 1)))
    if not has_overflowed.any():
        return None
    # The reference of an SM is the last value that most other warps' values closely precede, by distances the short way
    # round. It is a period higher where values are below 0, and 0 for an SM without any.
    period = 1 << bits
    order = np.lexsort((last, sm))
    first, last = first[order], last[order]
    begin = np.searchsorted(sm[order], np.arange(size + 1))
    references = np.zeros(size, dtype=np.int64)
    for number in np.flatnonzero(np.diff(begin)).tolist():
        of_sm = slice(begin[number], begin[number + 1])
        ahead = (begin[number + 1] - begin[number]) // 2
        reach = np.append(last[of_sm][ahead:], last[of_sm][:ahead] + period) - last[of_sm]
        reference = last[of_sm][np.argmin(reach)]
        away = _nearest(np.append(first[of_sm], last[of_sm]) - reference, period)
        is_before_0 = (away < -reference) & (away > -period // 4)
        references[number] = reference + period * is_before_0.any()
    return OverflowedOnce(np.repeat(references[sm_of_row], newest.shape[1]), period)


def often_overflowing(newest: Numbers, ctas: RawCtas, bits: int, clock_hz: float | None) -> OverflowsOften:
    """Return the counters of a launch that may be longer than their period; ``newest`` is as for ``counter_of``.

    The last records of two warps of a CTA are assumed to be less than half a period apart. The CTAs of one SM are
    placed by the device's timer at their ends: its nominal clock, ``clock_hz``, is exact enough for that. The first CTA
    of each SM keeps its value.
    """
    period = 1 << bits
    has_any = newest >= 0
    rows = np.flatnonzero(has_any.any(axis=1))
    reference = newest[rows, np.argmax(has_any[rows], axis=1)]
    placed = _placed(reference, ctas.sm[rows], ctas.pre_final_ns[rows], period, clock_hz)
    counted = np.zeros_like(newest)
    counted[rows] = placed[:, None] + _nearest(newest[rows] - reference[:, None], period)
    return OverflowsOften(counted.reshape(-1), period)


def _placed(cycles: Numbers, sm: Numbers, ns: Numbers, period: int, clock_hz: float | None) -> Numbers:
    if not cycles.size:
        return cycles
    order = np.lexsort((ns, sm))
    steps = np.diff(cycles[order])
    expected = np.diff(ns[order]) * ((clock_hz or FALLBACK_CLOCK_HZ) / 1e9)
    steps += np.rint((expected - steps) / period).astype(np.int64) * period
    steps[np.diff(sm[order]) != 0] = 0
    since = np.append(0, np.cumsum(steps))
    start = group_begins(np.diff(sm[order], prepend=-1) != 0)
    placed = np.empty_like(cycles)
    placed[order] = cycles[order][start] + since - since[start]
    return placed


def _nearest(cycles: Numbers, period: int) -> Numbers:
    """Return differences of a counter's values the short way round: from minus to plus half a period."""
    return (cycles + period // 2) % period - period // 2


_HALF = 1 << CLOCK_LOW_BITS
_MAX_BETWEEN_CYCLES = 1 << 12  # the two reads are adjacent instructions, but other warps may run in between


def torn_by_cycles(cycles: Numbers, distance: Numbers, max_distance: int) -> Numbers:
    """Return by how much each clock value is too large because it was torn: 2^32, or 0.

    A record reads the lower half of the counter, then the upper one: PTX ``%clock`` and ``%clock_hi`` (Proton's
    lowering), of which ptxas makes ``CS2R.32 SR_CLOCKLO`` and ``CS2R.32 SR_CLOCKHI``. Every two to three seconds the
    lower half overflows. If it does so between the two reads, the upper half is one too high.

    ``distance`` is the distance of each value from the middle one of its CTA. A value is taken for torn if its lower
    half was about to overflow, and if without the 2^32 it would be within ``max_distance`` of that middle. It would
    also have to be a time of the counter, which has none below 0: where all 43 bits overflowed, the values of an SM
    with any other record before that are higher by a period.
    """
    about_to_overflow = (cycles >= _HALF) & (cycles % _HALF >= _HALF - _MAX_BETWEEN_CYCLES)
    return np.where(about_to_overflow & (np.abs(distance - _HALF) <= max_distance), _HALF, 0)


_MAX_CYCLES_PER_NS = 5  # no GPU's SM counts faster than 5 GHz
_TIMER_SLACK_NS = 2_000  # each timer reading may be off by two steps of the coarsest timer (1 µs)
_MAX_LAUNCH_NS = 1 << 51  # about 26 days: longer than any launch runs, and short enough that its cycles fit 64 bits
_UNTIMED_LAUNCH_NS = 60_000_000_000  # assumed maximum length of a launch that read no timer


def max_launch_cycles(ctas: RawCtas) -> int:
    """Return the maximum distance of two records of one SM: what it may have counted in the launch's time.

    A CTA has no smaller maximum: one warp reads the timer for it, and may begin long after the others. In a loop that
    keeps the fp32 units busy, a warp waited 100 µs for its first instruction (H200).
    """
    if not ctas.timed:
        return _UNTIMED_LAUNCH_NS * _MAX_CYCLES_PER_NS
    if not ctas.sm.size:
        return 0
    duration_ns = min(max(int(ctas.pre_final_ns.max()) - int(ctas.init_ns.min()), 0), _MAX_LAUNCH_NS)
    return (duration_ns + 2 * _TIMER_SLACK_NS) * _MAX_CYCLES_PER_NS


def far_records(row: Numbers, cycles: Numbers, usable: Mask, max_distance: int) -> Numbers:
    """Return the distance in cycles of each record from the middle one of its CTA, if beyond ``max_distance``; else 0.

    Records that are not ``usable`` get 0. The records are in order of ``row``.
    """
    found = np.zeros(len(row), dtype=np.int64)
    row, cycles = row[usable], cycles[usable]
    if not row.size:
        return found
    begins = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    span = np.maximum.reduceat(cycles, begins) - np.minimum.reduceat(cycles, begins)
    wide = span > max_distance
    if not wide.any():
        return found
    # Sort only CTAs that have a record out of place.
    suspect = np.flatnonzero(np.repeat(wide, np.diff(np.append(begins, row.size))))
    order = suspect[np.lexsort((cycles[suspect], row[suspect]))]
    begins = np.flatnonzero(np.append(True, np.diff(row[order]) != 0))
    counts = np.diff(np.append(begins, order.size))
    middle = np.repeat(cycles[order][begins + counts // 2], counts)
    distance = cycles[order] - middle
    far = np.abs(distance) > max_distance
    found[np.flatnonzero(usable)[order[far]]] = distance[far]
    return found
