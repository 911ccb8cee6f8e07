"""Records to scopes: each start with the next end of the same scope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.records import Records

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


def pair_records(records: Records) -> Pairs:
    """A pair that two damaged entries or more stand between is none: nobody knows that they belong together."""
    count = len(records.scope)
    # Stable, so that records of one warp and scope stay in the order of time. NumPy sorts 16 bits by radix: in linear
    # time, and bytes twice as fast.
    key = records.scope.astype(np.uint8) if records.scope.max(initial=0) <= np.iinfo(np.uint8).max else records.scope
    order = np.argsort(key, kind="stable")
    scope, group, is_end = records.scope[order], records.group[order], records.is_end[order]
    same = (scope[1:] == scope[:-1]) & (group[1:] == group[:-1])
    starts = np.flatnonzero(same & ~is_end[:-1] & is_end[1:])
    start_at, end_at = order[starts], order[starts + 1]
    if records.damaged.size:
        between = (records.number[end_at] - records.number[start_at]) - (end_at - start_at)
        sure = between < _TOO_MANY_DAMAGED
        start_at, end_at = start_at[sure], end_at[sure]

    end_of = np.full(count, -1)
    end_of[start_at] = end_at
    start_at = np.flatnonzero(end_of >= 0)
    end_at = end_of[start_at]
    alone = np.ones(count, dtype=bool)
    alone[start_at] = alone[end_at] = False
    alone_at = np.flatnonzero(alone)
    ends_alone = records.is_end[alone_at]
    return Pairs(start_at, end_at, records.scope[start_at], alone_at[~ends_alone], alone_at[ends_alone])
