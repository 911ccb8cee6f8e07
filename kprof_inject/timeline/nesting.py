"""Nesting of a warp's scopes, the lanes of those that cross, and the number of each iteration in its loop."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.columns import Mask, Numbers, Rows, group_begins
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import Records

# Two scopes cross if one begins inside the other and ends after it. The functions below take the positions of the
# scopes' records, ``start_at`` ascending. Records are sorted by warp, so scopes of different warps never touch.


def innermost_around(start_at: Numbers, end_at: Numbers) -> Numbers:
    """Return, for each scope, the last one that starts before it and ends after it, or -1."""
    maxima = _range_maxima(end_at)
    place = np.arange(len(end_at))
    # Skip runs of scopes that all end earlier, the longest runs first; the scope before them then ends later.
    for level in range(len(maxima) - 1, -1, -1):
        begin = place - (1 << level)
        can = begin >= 0
        can[can] = maxima[level][begin[can]] < end_at[can]
        place = np.where(can, begin, place)
    return place - 1


def crossing(start_at: Numbers, end_at: Numbers) -> tuple[Numbers, Numbers]:
    """Return pairs of crossing scopes, the first to begin and the last to end; each that crosses is in one at least."""
    # Of all scopes that start inside each scope, find the one that ends last, if it ends after the scope.
    inside = np.searchsorted(start_at, end_at)
    last_end = _range_maximum(end_at, np.arange(len(end_at)) + 1, inside)
    firsts = np.flatnonzero(last_end > end_at)
    by_end = np.argsort(end_at)
    seconds = by_end[np.searchsorted(end_at[by_end], last_end[firsts])]
    # Of all scopes that end inside each scope, find the one that begins first, if it begins before the scope.
    begin = np.searchsorted(end_at[by_end], start_at)
    end = np.searchsorted(end_at[by_end], end_at)
    first_start = -_range_maximum(-start_at[by_end], begin, end)
    later = np.flatnonzero(first_start < start_at)
    earlier = np.searchsorted(start_at, first_start[later])
    return np.concatenate((firsts, earlier)), np.concatenate((seconds, later))


def crossing_kinds(scope: NDArray[np.int16], start_at: Numbers, end_at: Numbers, count: int) -> Mask:
    """Determine which of the table's ``count`` scopes cross which: shape (scope, scope); none crosses itself."""
    crosses = np.zeros((count, count), dtype=bool)
    places = np.unique(np.concatenate(crossing(start_at, end_at)))
    for kind in np.unique(scope[places]):
        own = np.flatnonzero(scope == kind)
        # Runs of one scope do not cross. Of those that are open where another scope begins, the innermost ends first.
        after = np.concatenate((np.arange(len(own)), innermost_around(start_at[own], end_at[own])))
        changes = np.concatenate((start_at[own], end_at[own]))
        order = np.argsort(changes)
        last = np.searchsorted(changes[order], start_at[places]) - 1
        innermost = np.where(last < 0, -1, after[order[last]])
        inside = np.flatnonzero(innermost >= 0)
        ends_first = end_at[own[innermost[inside]]] < end_at[places[inside]]
        crosses[kind, scope[places[inside[ends_first]]]] = True
    return crosses | crosses.T


def lanes_of(crosses: Mask) -> Numbers:
    """Assign each scope of the table, outer ones first, the lowest lane without an earlier one that it ``crosses``."""
    lanes = np.zeros(len(crosses), dtype=np.int64)
    for kind in range(len(lanes)):
        taken = lanes[:kind][crosses[kind, :kind]]
        lanes[kind] = np.setdiff1d(np.arange(kind + 1), taken)[0]
    return lanes


_NOTHING = -np.iinfo(np.int64).max  # identity of the maximum that can be negated


def _range_maxima(values: Numbers) -> list[Numbers]:
    """Return, for each level, the maxima of all runs of ``2 ** level`` values, by their first index."""
    levels = [values]
    while 2 * (reach := 1 << (len(levels) - 1)) <= len(values):
        levels.append(np.maximum(levels[-1][:-reach], levels[-1][reach:]))
    return levels


def _range_maximum(values: Numbers, begin: Numbers, end: Numbers) -> Numbers:
    maxima = _range_maxima(values)
    length = end - begin
    found = np.full(len(begin), _NOTHING)
    # Two runs of the longest length that fits cover the range from either end.
    for level, runs in enumerate(maxima):
        rows = np.flatnonzero((length >> level) == 1)
        found[rows] = np.maximum(runs[begin[rows]], runs[end[rows] - (1 << level)])
    return found


class Nesting(Struct, frozen=True):
    """Nesting of a block's scopes.

    ``depth`` is the number of scopes of the warp that contain each scope, ``parent`` the index of the innermost of
    these, or -1. ``is_proper`` is true if no two scopes cross.
    """

    depth: Numbers
    parent: Numbers
    is_proper: bool


def nest(pairs: Pairs, record_count: int) -> Nesting:
    """Compute the nesting of the scopes of ``record_count`` records."""
    step = np.zeros(record_count, dtype=np.int8)
    step[pairs.start_at] = 1
    step[pairs.end_at] = -1
    opened = np.cumsum(step, dtype=np.int64)
    depth = opened[pairs.start_at] - 1
    # Proper nesting closes inside a scope whatever was opened inside it, so the number of open scopes is the same at
    # both its ends.
    if (opened[pairs.end_at] == depth).all():
        # The parent is the last scope one level up.
        parent = np.full(len(depth), -1)
        above = np.flatnonzero(depth == 0)
        for level in range(1, int(depth.max(initial=0)) + 1):
            here = np.flatnonzero(depth == level)
            parent[here] = above[np.searchsorted(above, here) - 1]
            above = here
        return Nesting(depth, parent, True)
    # A scope that is open but does not contain this one does not add to its depth: it may end before a scope inside
    # this one begins.
    return Nesting(_count_around(pairs.end_at), innermost_around(pairs.start_at, pairs.end_at), False)


def _count_around(end_at: Numbers) -> Numbers:
    count = len(end_at)
    here = np.arange(count)
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(end_at)] = here
    found = np.zeros(count, dtype=np.int64)
    # A radix sort by rank, from the highest bit on. Two scopes are separated at the first bit that differs; until then,
    # scopes of one group are in the order of starts.
    order = here
    for bit in reversed(range(count.bit_length())):
        ordered = rank[order]
        ends_late = ordered >> bit & 1 == 1
        group = ordered >> (bit + 1) << (bit + 1)
        late_before = np.cumsum(ends_late) - ends_late
        late_before -= late_before[group]
        found[order] += np.where(ends_late, 0, late_before)
        place = np.where(ends_late, group + (1 << bit) + late_before, here - late_before)
        regrouped = np.empty_like(order)
        regrouped[place] = order
        order = regrouped
    return found


def within_children(elapsed: Numbers, pairs: Pairs, nesting: Nesting) -> Numbers:
    """Return the time that scopes directly inside each scope take, by the records' ``elapsed``; none counts twice."""
    children = np.flatnonzero(nesting.parent >= 0)
    if not nesting.is_proper:
        children = children[np.argsort(nesting.parent[children], kind="stable")]
    parent, begin, end = nesting.parent[children], pairs.start_at[children], pairs.end_at[children]
    if not nesting.is_proper:
        # Start after the end of every earlier sibling. Each parent has its own range of numbers for that.
        range_of_parent = parent * len(elapsed)
        reach = np.maximum.accumulate(range_of_parent + end)
        begin[1:] = np.maximum(begin[1:], reach[:-1] - range_of_parent[1:])
        begin = np.minimum(begin, end)
    # A double is exact up to 2 ** 53 ns, 104 days.
    taken = np.bincount(parent, elapsed[end] - elapsed[begin], len(nesting.parent))
    return taken.astype(np.int64)


def iterations(records: Records, pairs: Pairs, parent: Numbers, iteration_scopes: Iterable[int]) -> Numbers:
    """Return the number of each iteration within its loop, from 0; -1 for other scopes, and where it cannot be known.

    ``iteration_scopes`` are the scopes of the table that are iterations. Only loops that began after all lost records
    can be numbered. No iteration can be numbered after a damaged entry of its warp, which may have been an iteration's,
    or after a start without an end, which may have been the loop's.
    """
    number = np.full(len(pairs.scope), -1)
    for scope in iteration_scopes:
        of_scope = np.flatnonzero(pairs.scope == scope)
        if not of_scope.size:
            continue
        group, around = records.group[pairs.start_at[of_scope]], parent[of_scope]
        # Rank within one warp and one instance of the loop: ``of_scope`` is sorted by both.
        fresh = np.append(True, (np.diff(group) != 0) | (np.diff(around) != 0))
        is_complete = _is_complete(records, pairs, of_scope, around)
        number[of_scope] = np.where(is_complete, np.arange(of_scope.size) - group_begins(fresh), -1)
    return number


def _is_complete(records: Records, pairs: Pairs, scopes: Numbers, around: Numbers) -> Mask:
    """Determine whether no record is missing before each of ``scopes``, since its parent or else its warp began."""
    start_at = pairs.start_at[scopes]
    group = records.group[start_at]
    warp = group - records.first_group
    since = pairs.start_at[around]
    alone = np.flatnonzero(around < 0)
    since[alone] = np.searchsorted(records.group, group[alone])
    is_after_loss = (around >= 0) & (records.cycles[since] >= records.oldest[1, warp])
    whole: Mask = (records.lost[warp] == 0) | is_after_loss
    if pairs.stray_ends.size:
        # A warp that lost nothing has no stray ends: either its count is damaged, or a start is.
        whole &= (around >= 0) | ~np.isin(group, records.group[pairs.stray_ends])
    if pairs.open_starts.size:
        whole &= np.searchsorted(pairs.open_starts, since) == np.searchsorted(pairs.open_starts, start_at)
    if records.damaged.size:
        begin = np.searchsorted(records.group, group)
        whole &= records.number[start_at] - records.lost[warp] == start_at - begin
    return whole


def free_lanes(key: Numbers, start_at: Numbers, end_at: Numbers) -> Numbers:
    """Assign each scope the lowest free lane, from 0; scopes of the same ``key`` and lane never overlap."""
    lanes = np.zeros(len(key), dtype=np.int64)
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    used, last_key = 0, None
    for place in np.lexsort((start_at, key)).tolist():
        if key[place] != last_key:
            free, busy, used, last_key = [], [], 0, key[place]
        while busy and busy[0][0] <= start_at[place]:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, used = used, used + 1
        lanes[place] = lane
        heapq.heappush(busy, (int(end_at[place]), lane))
    return lanes


def lanes_of_rows(scopes: Rows, overlaps: Numbers) -> Numbers:
    """Return the offset to each scope's lane due to others of its kind, given ``Timeline.overlaps``."""
    lanes = np.zeros(len(scopes), dtype=np.int64)
    rows = np.flatnonzero(overlaps[scopes["scope"]] > 1)
    if rows.size:
        crossing_rows = scopes[rows]
        places = np.stack([crossing_rows[name].astype(np.int64) for name in ("cta", "warp", "scope")], axis=1)
        key = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
        start, end = (crossing_rows[name].astype(np.int64) for name in ("start_record", "end_record"))
        lanes[rows] = free_lanes(key, start, end)
    return lanes


def lanes_of_pairs(pairs: Pairs, unit: Numbers, count: int) -> tuple[Numbers, Numbers | None, Numbers]:
    """Assign lanes to pairs that cross; ``unit`` is the unit of each record, ``count`` the table's number of scopes.

    A kind that crosses itself has lanes of its own, after those that the others share. Return ``Timeline.lanes``,
    ``Timeline.overlaps``, and the lane of each pair among its kind, -1 if the kind does not cross itself.
    """
    scope, start_at, end_at = pairs.scope, pairs.start_at, pairs.end_at
    crosses_own = np.zeros(count, dtype=bool)
    for kind in np.flatnonzero(np.bincount(scope, minlength=count)).tolist():
        of_kind = np.flatnonzero(scope == kind)
        crosses_own[kind] = crossing(start_at[of_kind], end_at[of_kind])[0].size > 0
    shared, places = np.flatnonzero(~crosses_own[scope]), np.flatnonzero(crosses_own[scope])
    first = lanes_of(crossing_kinds(scope[shared], start_at[shared], end_at[shared], count))
    own = np.full(len(scope), -1)
    if not places.size:
        return first, None, own
    own[places] = free_lanes(unit[start_at[places]] * count + scope[places], start_at[places], end_at[places])
    overlaps = np.ones(count, dtype=np.int64)
    np.maximum.at(overlaps, scope, own + 1)
    widths = overlaps[crosses_own]
    first[crosses_own] = int(first[~crosses_own].max(initial=-1)) + 1 + np.cumsum(widths) - widths
    return first, overlaps, own
