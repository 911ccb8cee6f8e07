"""Entries that no warp can have written: found before anything is made of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.layouts import RawCtas

# No GPU's SM counts faster.
_MOST_CYCLES_PER_NS = 5
# A timer's readings may be so far off, each: two steps of the coarsest one.
_TIMER_SLACK_NS = 2_000
# Five weeks: longer than any CTA takes, and of a size that its cycles can be reckoned with.
_LONGEST_NS = 1 << 51
# A launch that read no timer is taken to be shorter.
_UNTIMED_LAUNCH_NS = 60_000_000_000
_ROUNDS = 8


def most_cycles(ctas: RawCtas) -> NDArray[np.int64]:
    """How far apart two records of each CTA can be: what its SM may have counted in the CTA's time."""
    if not ctas.timed:
        return np.full(len(ctas.sm), np.iinfo(np.int64).max)
    duration_ns = np.clip(ctas.pre_final_ns - ctas.init_ns, 0, _LONGEST_NS)
    most: NDArray[np.int64] = (duration_ns + 2 * _TIMER_SLACK_NS) * _MOST_CYCLES_PER_NS
    return most


def most_launch_cycles(ctas: RawCtas) -> int:
    """How far apart two records of one SM can be: what it may have counted in the launch's time."""
    if not ctas.timed:
        return _UNTIMED_LAUNCH_NS * _MOST_CYCLES_PER_NS
    if not ctas.sm.size:
        return 0
    duration_ns = int(ctas.pre_final_ns.max()) - int(ctas.init_ns.min())
    return (duration_ns + 2 * _TIMER_SLACK_NS) * _MOST_CYCLES_PER_NS


def far_records(
    row: NDArray[np.int64], cycles: NDArray[np.int64], usable: NDArray[np.bool_], most: NDArray[np.int64]
) -> NDArray[np.int64]:
    """How far from the middle one of their CTA those of the ``usable`` records are that are further than ``most`` (row)
    cycles from it; 0 for all others. The records are in order of ``row``, which indexes ``most``."""
    found = np.zeros(len(row), dtype=np.int64)
    row, cycles = row[usable], cycles[usable]
    if not row.size:
        return found
    begins = np.flatnonzero(np.append(True, row[1:] != row[:-1]))
    span = np.maximum.reduceat(cycles, begins) - np.minimum.reduceat(cycles, begins)
    wide = span > most[row[begins]]
    if not wide.any():
        return found
    # Only CTAs with a record out of place are sorted.
    suspect = np.flatnonzero(np.repeat(wide, np.diff(np.append(begins, row.size))))
    order = suspect[np.lexsort((cycles[suspect], row[suspect]))]
    begins = np.flatnonzero(np.append(True, np.diff(row[order]) != 0))
    counts = np.diff(np.append(begins, order.size))
    middle = np.repeat(cycles[order][begins + counts // 2], counts)
    distance = cycles[order] - middle
    far = np.abs(distance) > most[row[order]]
    found[np.flatnonzero(usable)[order[far]]] = distance[far]
    return found


def contradicted_records(
    group: NDArray[np.int64], cycles: NDArray[np.int64], usable: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Which of the ``usable`` records stand beside one with which their clock runs backwards.

    A warp writes its records in the order of its clock. Where two contradict that, nobody knows which one is wrong."""
    at = np.flatnonzero(usable)
    wrong = np.zeros(len(group), dtype=bool)
    for _ in range(_ROUNDS):
        turns = np.flatnonzero((np.diff(cycles[at]) < 0) & (np.diff(group[at]) == 0))
        if not turns.size:
            return wrong
        wrong[at[turns]] = wrong[at[turns + 1]] = True
        at = at[~wrong[at]]
    # Too many to be single words: nothing of such a warp can be believed.
    turns = np.flatnonzero((np.diff(cycles[at]) < 0) & (np.diff(group[at]) == 0))
    wrong[at[np.isin(group[at], group[at[turns]])]] = True
    return wrong
