"""Which scope stands in which: depths and iteration numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.pairs import Pairs


def depths(pairs: Pairs) -> NDArray[np.int64]:
    """How many scopes of the same warp are open around each: 0 for an outermost one."""
    count = len(pairs.row)
    row = np.concatenate((pairs.row, pairs.row))
    warp = np.concatenate((pairs.warp, pairs.warp))
    cycles = np.concatenate((pairs.start_cycles, pairs.end_cycles))
    is_end = np.arange(2 * count) >= count
    # At one clock value a scope ends before its neighbour starts, and one of no length does both in between.
    is_empty = np.tile(pairs.start_cycles == pairs.end_cycles, 2)
    turn = np.where(is_empty, np.where(is_end, 2, 1), np.where(is_end, 0, 3))
    order = np.lexsort((turn, cycles, warp, row))
    level = np.cumsum(np.where(is_end[order], -1, 1))
    depth = np.empty(2 * count, dtype=np.int64)
    depth[order] = level
    return np.maximum(depth[:count] - 1, 0)


def iterations(
    pairs: Pairs, parents: NDArray[np.int64], is_iteration: NDArray[np.bool_], lost: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of each iteration within its loop, from 0; -1 for scopes that are none, or if it cannot be known.

    ``parents`` holds the scope around each scope of the table (or -1), ``is_iteration`` marks the scopes of
    iterations, ``lost`` is shaped (CTA row, warp). Where the ring lost records, only the iterations of a loop whose
    own start survived can be numbered: all of that loop did.
    """
    number = np.full(len(pairs.row), -1, dtype=np.int64)
    warps = lost.shape[1]
    group = pairs.row * warps + pairs.warp
    for scope in np.flatnonzero(is_iteration):
        mine = np.flatnonzero(pairs.scope == scope)
        if not mine.size:
            continue
        outer = _enclosing(pairs, group, mine, scope, parents)
        # Rank within one warp and one instance of the loop around: mine is in order of both.
        fresh = np.ones(mine.size, dtype=bool)
        fresh[1:] = (group[mine[1:]] != group[mine[:-1]]) | (outer[1:] != outer[:-1])
        first = np.maximum.accumulate(np.where(fresh, np.arange(mine.size), 0))
        is_complete = (outer >= 0) | (lost.reshape(-1)[group[mine]] == 0)
        number[mine] = np.where(is_complete, np.arange(mine.size) - first, -1)
    return number


def _enclosing(
    pairs: Pairs,
    group: NDArray[np.int64],
    mine: NDArray[np.int64],
    scope: np.intp,
    parents: NDArray[np.int64],
) -> NDArray[np.int64]:
    """For each of ``mine`` the index of the nearest recorded scope around it, or -1."""
    outer = np.full(mine.size, -1, dtype=np.int64)
    parent = parents[scope]
    while parent >= 0:
        theirs = np.flatnonzero(pairs.scope == parent)
        if theirs.size:
            at = _last_start_before(pairs, group, theirs, mine)
            candidate = theirs[np.maximum(at, 0)]
            inside = (
                (at >= 0) & (group[candidate] == group[mine]) & (pairs.end_cycles[candidate] >= pairs.end_cycles[mine])
            )
            outer = np.where((outer < 0) & inside, candidate, outer)
        parent = parents[parent]
    return outer


def _last_start_before(
    pairs: Pairs, group: NDArray[np.int64], theirs: NDArray[np.int64], mine: NDArray[np.int64]
) -> NDArray[np.int64]:
    """For each of ``mine`` the position in ``theirs`` of the last that starts no later, or -1 (any group)."""
    count = theirs.size
    both = np.concatenate((theirs, mine))
    is_mine = np.arange(both.size) >= count
    order = np.lexsort((is_mine, pairs.start_cycles[both], group[both]))
    seen = np.cumsum(~is_mine[order]) - 1
    position = np.empty(both.size, dtype=np.int64)
    position[order] = seen
    # ``theirs`` ascends by group and start, so that the count of those seen is the position of the last.
    return position[count:]
