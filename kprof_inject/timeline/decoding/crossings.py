"""Scopes that cross: one begins in the other and ends behind it.

All functions take the places of the scopes' records, ``start_at`` ascending. Of several warps, those of each stand
behind those of the one before, so that no two of different warps touch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def innermost_around(start_at: NDArray[np.int64], end_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each scope the last one that starts before it and ends after it, or -1."""
    maxima = _range_maxima(end_at)
    place = np.arange(len(end_at))
    # Leaps over scopes that all end earlier, the longest first; what then stands before it ends later.
    for level in range(len(maxima) - 1, -1, -1):
        begin = place - (1 << level)
        can = begin >= 0
        can[can] = maxima[level][begin[can]] < end_at[can]
        place = np.where(can, begin, place)
    return place - 1


def crossing(start_at: NDArray[np.int64], end_at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Pairs of scopes that cross, the one that begins first and the one that ends last; of each scope that crosses
    others there is at least one pair."""
    # Ends behind me, of all that start in me, the last one's.
    inside = np.searchsorted(start_at, end_at)
    last_end = _range_maximum(end_at, np.arange(len(end_at)) + 1, inside)
    firsts = np.flatnonzero(last_end > end_at)
    by_end = np.argsort(end_at)
    seconds = by_end[np.searchsorted(end_at[by_end], last_end[firsts])]
    # And begins before me, of all that end in me, the first one's.
    begin = np.searchsorted(end_at[by_end], start_at)
    end = np.searchsorted(end_at[by_end], end_at)
    first_start = -_range_maximum(-start_at[by_end], begin, end)
    later = np.flatnonzero(first_start < start_at)
    earlier = np.searchsorted(start_at, first_start[later])
    return np.concatenate((firsts, earlier)), np.concatenate((seconds, later))


def crossing_kinds(
    scope: NDArray[np.int16], start_at: NDArray[np.int64], end_at: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Which of the table's ``count`` scopes cross which: shape (scope, scope). Two of the same scope never do."""
    crosses = np.zeros((count, count), dtype=bool)
    places = np.unique(np.concatenate(crossing(start_at, end_at)))
    for kind in np.unique(scope[places]):
        own = np.flatnonzero(scope == kind)
        # Of those of this kind, only the last that began before can still be open.
        last = own[np.searchsorted(start_at[own], start_at[places]) - 1]
        is_open = (start_at[last] < start_at[places]) & (end_at[last] > start_at[places])
        crosses[kind, scope[places[is_open & (end_at[last] < end_at[places])]]] = True
    return crosses | crosses.T


def lanes_of(crosses: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A number for each scope of the table, the least that none before it has with which it ``crosses``: the table has
    outer scopes first, and they stay on lane 0."""
    lanes = np.zeros(len(crosses), dtype=np.int64)
    for kind in range(len(lanes)):
        taken = lanes[:kind][crosses[kind, :kind]]
        lanes[kind] = np.setdiff1d(np.arange(kind + 1), taken)[0]
    return lanes


# It has a negative.
_NOTHING = -np.iinfo(np.int64).max


def _range_maxima(values: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """For each level the maxima of all runs of ``2 ** level`` values, by where they begin."""
    levels = [values]
    while 2 * (reach := 1 << (len(levels) - 1)) <= len(values):
        levels.append(np.maximum(levels[-1][:-reach], levels[-1][reach:]))
    return levels


def _range_maximum(values: NDArray[np.int64], begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """The largest of ``values[begin:end]``, for each pair; the least number there is for an empty one."""
    maxima = _range_maxima(values)
    length = end - begin
    found = np.full(len(begin), _NOTHING)
    # Two runs of the longest length that fits, from either end.
    for level, runs in enumerate(maxima):
        mine = np.flatnonzero((length >> level) == 1)
        found[mine] = np.maximum(runs[begin[mine]], runs[end[mine] - (1 << level)])
    return found
