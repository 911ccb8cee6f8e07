"""Which scope of a warp stands in which, which cross, and which iteration of its loop each is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import Records

# Scopes that cross: one begins in the other and ends behind it. What follows takes the places of the scopes' records,
# ``start_at`` ascending. The warps stand one behind the other, so that no two scopes of different warps touch.


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
    """Which of the table's ``count`` scopes cross which: shape (scope, scope). Two of the same scope never do, but one
    may stand in the other."""
    crosses = np.zeros((count, count), dtype=bool)
    places = np.unique(np.concatenate(crossing(start_at, end_at)))
    for kind in np.unique(scope[places]):
        own = np.flatnonzero(scope == kind)
        # Of those of this kind that are open where another begins, the innermost ends first.
        innermost = _innermost_at(start_at[places], start_at[own], end_at[own])
        inside = np.flatnonzero(innermost >= 0)
        ends_first = end_at[own[innermost[inside]]] < end_at[places[inside]]
        crosses[kind, scope[places[inside[ends_first]]]] = True
    return crosses | crosses.T


def _innermost_at(at: NDArray[np.int64], start_at: NDArray[np.int64], end_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The innermost of scopes that do not cross which is open ahead of each place ``at``, or -1."""
    after = np.concatenate((np.arange(len(start_at)), innermost_around(start_at, end_at)))
    turns = np.concatenate((start_at, end_at))
    order = np.argsort(turns)
    last = np.searchsorted(turns[order], at) - 1
    return np.where(last < 0, -1, after[order[last]])


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


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each of a block's scopes: ``depth`` counts the scopes of its warp that hold it whole, ``parent`` is the place
    of the innermost of these, or -1. ``is_proper`` says that no two cross."""

    depth: NDArray[np.int64]
    parent: NDArray[np.int64]
    is_proper: bool


def nest(pairs: Pairs, record_count: int) -> Nesting:
    """The nesting of the scopes of ``record_count`` records."""
    step = np.zeros(record_count, dtype=np.int8)
    step[pairs.start_at] = 1
    step[pairs.end_at] = -1
    opened = np.cumsum(step, dtype=np.int64)
    depth = opened[pairs.start_at] - 1
    # In proper nesting, what was opened in a scope is closed in it: a last that ends out of turn shows.
    if (opened[pairs.end_at] == depth).all():
        return Nesting(depth, _last_one_level_up(depth), True)
    # What is open and does not hold it whole is none of its depth: it may end before what begins in this one.
    return Nesting(_count_around(pairs.end_at), innermost_around(pairs.start_at, pairs.end_at), False)


def _count_around(end_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each scope how many start before it and end after it."""
    count = len(end_at)
    here = np.arange(count)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(end_at)] = here
    found = np.zeros(count, dtype=np.int64)
    # Sorted by rank bit after bit, the highest first. Two scopes part where the first bit differs; what is in one group
    # until then is still in the order of starts.
    order = here
    for bit in reversed(range(count.bit_length())):
        mine = rank[order]
        ends_late = mine >> bit & 1 == 1
        group = mine >> (bit + 1) << (bit + 1)
        late_before = np.cumsum(ends_late) - ends_late
        late_before -= late_before[group]
        found[order] += np.where(ends_late, 0, late_before)
        place = np.where(ends_late, group + (1 << bit) + late_before, here - late_before)
        parted = np.empty_like(order)
        parted[place] = order
        order = parted
    return found


def _last_one_level_up(depth: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each place the last before it whose depth is one less, or -1."""
    parent = np.full(len(depth), -1)
    above = np.flatnonzero(depth == 0)
    for level in range(1, int(depth.max(initial=0)) + 1):
        here = np.flatnonzero(depth == level)
        parent[here] = above[np.searchsorted(above, here) - 1]
        above = here
    return parent


def within_children(elapsed: NDArray[np.int64], pairs: Pairs, nesting: Nesting) -> NDArray[np.int64]:
    """How much of each scope's time the scopes directly in it take; where they cross, what they share counts once.
    ``elapsed`` has the time of each record."""
    children = np.flatnonzero(nesting.parent >= 0)
    if not nesting.is_proper:
        children = children[np.argsort(nesting.parent[children], kind="stable")]
    parent, begin, end = nesting.parent[children], pairs.start_at[children], pairs.end_at[children]
    if not nesting.is_proper:
        # Behind all that its siblings before it reach; each parent has its own range of numbers for that.
        range_of_parent = parent * len(elapsed)
        reach = np.maximum.accumulate(range_of_parent + end)
        begin[1:] = np.maximum(begin[1:], reach[:-1] - range_of_parent[1:])
        begin = np.minimum(begin, end)
    # A double holds such sums exactly: they are far from 2 ** 53 ns, 104 days.
    taken = np.bincount(parent, elapsed[end] - elapsed[begin], len(nesting.parent))
    return taken.astype(np.int64)


def iterations(
    records: Records, pairs: Pairs, parent: NDArray[np.int64], iteration_scopes: Iterable[int]
) -> NDArray[np.int64]:
    """The number of each iteration within its loop, from 0; -1 for scopes that are none, or if it cannot be known.

    ``iteration_scopes`` are the scopes of the table that are iterations. Where the ring lost records, only the
    iterations of a loop that began after what it lost can be numbered: all of that loop is there. After a damaged
    entry, none of its warp can: it may have been an iteration's. Nor after a start without an end: it may have been the
    loop's."""
    number = np.full(len(pairs.scope), -1)
    for scope in iteration_scopes:
        mine = np.flatnonzero(pairs.scope == scope)
        if not mine.size:
            continue
        group, around = records.group[pairs.start_at[mine]], parent[mine]
        # Rank within one warp and one instance of the loop around: mine is in order of both.
        fresh = np.append(True, (np.diff(group) != 0) | (np.diff(around) != 0))
        first = np.maximum.accumulate(np.where(fresh, np.arange(mine.size), 0))
        number[mine] = np.where(_all_is_there(records, pairs, mine, around), np.arange(mine.size) - first, -1)
    return number


def _all_is_there(
    records: Records, pairs: Pairs, mine: NDArray[np.int64], around: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether nothing is missing between the begin of what is ``around`` each of the scopes ``mine``, or of its warp's
    records, and its own begin."""
    start_at = pairs.start_at[mine]
    group = records.group[start_at]
    warp = group - records.first_group
    since = pairs.start_at[around]
    alone = np.flatnonzero(around < 0)
    since[alone] = np.searchsorted(records.group, group[alone])
    is_after_loss = (around >= 0) & (records.cycles[since] >= records.oldest[1, warp])
    whole: NDArray[np.bool_] = (records.lost[warp] == 0) | is_after_loss
    if pairs.stray_ends.size:
        # A warp that lost nothing has none: its count is damaged, if not a start.
        whole &= (around >= 0) | ~np.isin(group, records.group[pairs.stray_ends])
    if pairs.open_starts.size:
        whole &= np.searchsorted(pairs.open_starts, since) == np.searchsorted(pairs.open_starts, start_at)
    if records.damaged.size:
        begin = np.searchsorted(records.group, group)
        whole &= records.number[start_at] - records.lost[warp] == start_at - begin
    return whole
