"""Records to scopes: each start with the next end of the same scope."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.decoding.containment import begun_amid_inner
from kprof_inject.timeline.decoding.records import Records

# An end and a start that were both damaged may have parted what now looks like one scope.
_TOO_MANY_DAMAGED = 2


@dataclass(frozen=True, slots=True)
class Pairs:
    """The scopes of some records, in the order of their starts; an outer scope stands before the ones in it.

    ``start_at`` and ``end_at`` are the places of their records, ``scope`` indexes the scope table. ``open_starts`` and
    ``stray_ends`` are the places of the records that have no partner.
    """

    start_at: NDArray[np.int64]
    end_at: NDArray[np.int64]
    scope: NDArray[np.int16]
    open_starts: NDArray[np.int64]
    stray_ends: NDArray[np.int64]


def pair_records(records: Records, parents: Sequence[int] = ()) -> Pairs:
    """A pair that two damaged entries or more stand between is none: nobody knows that they belong together. Nor is one
    behind another start of its scope, or before another end: a warp makes them in turns, so one of the two is wrong.

    ``parents`` has, for each scope of the table, the one around it, or -1. Where the ring lost records, a scope whose
    first record stands amid those of the scopes in it did not begin there."""
    count = len(records.scope)
    # Stable, so that records of one warp and scope stay in the order of time. NumPy sorts 16 bits by radix: in linear
    # time, and bytes twice as fast.
    key = records.scope.astype(np.uint8) if records.scope.max(initial=0) <= np.iinfo(np.uint8).max else records.scope
    order = np.argsort(key, kind="stable")
    scope, group, is_end = records.scope[order], records.group[order], records.is_end[order]
    same = (scope[1:] == scope[:-1]) & (group[1:] == group[:-1])
    takes_turns = is_end[1:] != is_end[:-1]
    joined = same & takes_turns & is_end[1:]
    repeats = same & ~takes_turns
    if repeats.any():
        joined[1:] &= ~repeats[:-1]
        joined[:-1] &= ~repeats[1:]
    starts = np.flatnonzero(joined)
    if records.damaged.size:
        start_at, end_at = order[starts], order[starts + 1]
        between = (records.number[end_at] - records.number[start_at]) - (end_at - start_at)
        starts = starts[between < _TOO_MANY_DAMAGED]
    if parents and records.lost.any():
        warp = group[starts] - records.first_group
        is_after_loss = (records.lost[warp] > 0) & (records.cycles[order[starts]] >= records.oldest[1, warp])
        first = np.flatnonzero(is_after_loss & ~np.append(False, same)[starts])
        starts = np.delete(starts, first[begun_amid_inner(starts[first], order, scope, group, is_end, parents)])

    end_of = np.full(count, -1)
    end_of[order[starts]] = order[starts + 1]
    start_at = np.flatnonzero(end_of >= 0)
    end_at = end_of[start_at]
    alone = np.ones(count, dtype=bool)
    alone[start_at] = alone[end_at] = False
    alone_at = np.flatnonzero(alone)
    ends_alone = records.is_end[alone_at]
    return Pairs(start_at, end_at, records.scope[start_at], alone_at[~ends_alone], alone_at[ends_alone])
