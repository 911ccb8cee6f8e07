"""The first pass over a launch's records: what its clock is fitted to, what it lacks, and how its scopes stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.decoding.crossings import crossing_kinds, lanes_of
from kprof_inject.timeline.decoding.nesting import nest
from kprof_inject.timeline.decoding.pairs import Pairs, pair_records
from kprof_inject.timeline.decoding.records import RecordDecoder, Records, lost_records
from kprof_inject.timeline.groups import NO_LARGEST, NO_SMALLEST

# What a damaged count or clock value tells may be more: half the period of 43 bits, which no CTA outlasts.
_MOST_LOST_CYCLES = float(1 << 42)
# The share of distances that count as they are.
_USUAL_DISTANCES = 0.96


@dataclass(frozen=True, slots=True)
class WarpTally:
    """What each recorded warp of each CTA wrote; every array has the shape (CTA, warp).

    ``first_cycles`` and ``last_cycles`` are those of its sound records (``NO_SMALLEST`` and ``NO_LARGEST`` without
    any), ``kept`` how many there are. Those ``lost`` were written before ``oldest_cycles``, where the oldest that the
    ring kept end; ``lost_cycles`` is how long before the first record they began, by the mean distance of the others.
    ``damaged`` entries are none of a record's; ``open_starts`` and ``stray_ends`` have no partner."""

    kept: NDArray[np.int32]
    lost: NDArray[np.int64]
    first_cycles: NDArray[np.int64]
    last_cycles: NDArray[np.int64]
    oldest_cycles: NDArray[np.int64]
    lost_cycles: NDArray[np.float64]
    damaged: NDArray[np.int32]
    open_starts: NDArray[np.int32]
    stray_ends: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a launch's records add up to. ``scopes`` is how many ran; ``open_starts`` and ``stray_ends`` count, for each
    scope of the table, the records without a partner; scopes of the table with the same number in ``lanes`` never
    cross. ``groups`` has how many records of each group of scopes each warp wrote: shape (group, warp)."""

    warps: WarpTally
    scopes: int
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]
    lanes: NDArray[np.int64]
    groups: NDArray[np.int64]


def tally_launch(
    decoder: RecordDecoder,
    scope_count: int,
    parents: Sequence[int] = (),
    group_of_scope: NDArray[np.int64] | None = None,
) -> Tally:
    """Count all records of a launch; ``scope_count`` is how many scopes its table has, ``parents`` are as for
    ``pair_records``. ``group_of_scope`` puts each scope into a group, numbered from 0; None if there are none."""
    lost = lost_records(decoder.ctas)
    warps = WarpTally(
        np.zeros(lost.shape, dtype=np.int32),
        lost,
        np.full_like(lost, NO_SMALLEST),
        np.full_like(lost, NO_LARGEST),
        np.full_like(lost, NO_SMALLEST),
        np.zeros(lost.shape),
        *np.zeros((3, *lost.shape), dtype=np.int32),
    )
    scopes = 0
    open_starts, stray_ends = np.zeros((2, scope_count), dtype=np.int64)
    crosses = np.zeros((scope_count, scope_count), dtype=bool)
    group_count = 0 if group_of_scope is None else int(group_of_scope.max(initial=-1)) + 1
    groups = np.zeros((group_count, lost.shape[1]), dtype=np.int64)
    for rows in decoder.blocks():
        records = decoder.decode(rows)
        pairs = pair_records(records, parents)
        _count_warps(warps, records, pairs, rows)
        scopes += len(pairs.scope)
        open_starts += np.bincount(records.scope[pairs.open_starts], minlength=scope_count)
        stray_ends += np.bincount(records.scope[pairs.stray_ends], minlength=scope_count)
        if group_of_scope is not None:
            cells = group_of_scope[records.scope] * lost.shape[1] + records.group % lost.shape[1]
            groups += np.bincount(cells, minlength=groups.size).reshape(groups.shape)
        if not nest(pairs, len(records.scope)).is_proper:
            crosses |= crossing_kinds(pairs.scope, pairs.start_at, pairs.end_at, scope_count)
    return Tally(warps, scopes, open_starts, stray_ends, lanes_of(crosses), groups)


def _count_warps(warps: WarpTally, records: Records, pairs: Pairs, rows: slice) -> None:
    """Fill in the CTAs ``rows``."""
    shape = warps.kept[rows].shape

    def counted(group: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.bincount(group - records.first_group, minlength=len(records.lost)).reshape(shape)

    kept = counted(records.group)
    begins = np.cumsum(kept.reshape(-1)).reshape(shape) - kept
    has_any = kept > 0
    warps.kept[rows] = kept
    warps.first_cycles[rows][has_any] = records.cycles[begins[has_any]]
    warps.last_cycles[rows][has_any] = records.cycles[(begins + kept - 1)[has_any]]
    warps.oldest_cycles[rows] = records.oldest[1].reshape(shape)
    warps.damaged[rows] = counted(records.damaged)
    warps.open_starts[rows] = counted(records.group[pairs.open_starts])
    warps.stray_ends[rows] = counted(records.group[pairs.stray_ends])
    # Where a scope is older than all that were lost, which moved stores make possible, it begins before them.
    is_first = warps.first_cycles[rows] == records.oldest[0].reshape(shape)
    losers = np.flatnonzero((warps.lost[rows] > 0) & (kept > 1) & is_first)
    if losers.size:
        distance = _usual_distance(records, losers + records.first_group)
        lost_cycles = np.minimum(warps.lost[rows].reshape(-1)[losers] * distance, _MOST_LOST_CYCLES)
        warps.lost_cycles[rows].reshape(-1)[losers] = lost_cycles


def _usual_distance(records: Records, groups: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean distance of the records of each of ``groups``, which ascend.

    The widest distances count for less: what follows a loop takes long for few records, and the lost ones were in it.
    """
    mine = np.isin(records.group, groups)
    group, cycles = records.group[mine], records.cycles[mine]
    same = np.diff(group) == 0
    group, distances = group[1:][same], np.diff(cycles)[same]
    order = np.lexsort((distances, group))
    begins = np.searchsorted(group, groups)
    counts = np.diff(np.append(begins, group.size))
    widest = distances[order][begins + np.maximum((counts * _USUAL_DISTANCES).astype(np.int64) - 1, 0)]
    usual = np.minimum(distances, np.repeat(widest, counts))
    return np.add.reduceat(usual, begins) / counts
