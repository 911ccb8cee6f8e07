"""Records to scopes: each start with the next end of the same scope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.records import Records


@dataclass(frozen=True, slots=True)
class Pairs:
    """The scopes of one launch, ordered by CTA row, warp and start; an outer scope before the ones in it.

    ``scope`` indexes the scope table. ``open_starts`` and ``stray_ends`` count, for each scope of the table, the
    records that have no partner; ``unknown`` counts records whose id is not Proton's for any scope.
    """

    row: NDArray[np.int64]
    warp: NDArray[np.int64]
    scope: NDArray[np.int64]
    start_cycles: NDArray[np.int64]
    end_cycles: NDArray[np.int64]
    start_at: NDArray[np.int64]
    end_at: NDArray[np.int64]
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]
    unknown: int


def pair_records(records: Records, scope_of_id: NDArray[np.int64], scope_count: int) -> Pairs:
    """``scope_of_id`` has 256 entries: the scope of each id, or -1. Several ids may mean one scope."""
    scope = scope_of_id[records.scope_id]
    known = np.flatnonzero(scope >= 0)
    # Stable, so that records of one warp and scope stay in the order of the clock.
    order = known[np.lexsort((scope[known], records.warp[known], records.row[known]))]
    row, warp, is_end = records.row[order], records.warp[order], records.is_end[order]
    scope, cycles = scope[order], records.cycles[order]

    same = (row[1:] == row[:-1]) & (warp[1:] == warp[:-1]) & (scope[1:] == scope[:-1])
    starts = np.flatnonzero(same & ~is_end[:-1] & is_end[1:])
    paired = np.zeros(len(order), dtype=bool)
    paired[starts] = True
    paired[starts + 1] = True

    by_start = np.lexsort((-cycles[starts + 1], cycles[starts], warp[starts], row[starts]))
    starts = starts[by_start]
    return Pairs(
        row[starts],
        warp[starts],
        scope[starts],
        cycles[starts],
        cycles[starts + 1],
        order[starts],
        order[starts + 1],
        np.bincount(scope[~paired & ~is_end], minlength=scope_count),
        np.bincount(scope[~paired & is_end], minlength=scope_count),
        len(records.row) - len(known),
    )
