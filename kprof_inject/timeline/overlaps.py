"""Lanes for scopes of one kind that cross each other in a unit, as scopes of asynchronous work do."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.nesting import crossing, crossing_kinds, lanes_of
from kprof_inject.timeline.pairs import Pairs


def free_lanes(key: NDArray[np.int64], start_at: NDArray[np.int64], end_at: NDArray[np.int64]) -> NDArray[np.int64]:
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


def lanes_of_rows(scopes: NDArray[np.void], overlaps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offset to each scope's lane due to others of its kind, for a block (``SCOPE_COLUMNS``).

    ``overlaps`` are ``Timeline.overlaps``.
    """
    lanes = np.zeros(len(scopes), dtype=np.int64)
    rows = np.flatnonzero(overlaps[scopes["scope"]] > 1)
    if rows.size:
        crossing_rows = scopes[rows]
        places = np.stack([crossing_rows[name].astype(np.int64) for name in ("cta", "warp", "scope")], axis=1)
        key = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
        start, end = (crossing_rows[name].astype(np.int64) for name in ("start_record", "end_record"))
        lanes[rows] = free_lanes(key, start, end)
    return lanes


def crossing_own_kind(
    scope: NDArray[np.int16], start_at: NDArray[np.int64], end_at: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Return which of the table's ``count`` scopes cross others of their kind; takes the arguments of ``crossing``."""
    found = np.zeros(count, dtype=bool)
    for kind in np.flatnonzero(np.bincount(scope, minlength=count)).tolist():
        of_kind = np.flatnonzero(scope == kind)
        found[kind] = crossing(start_at[of_kind], end_at[of_kind])[0].size > 0
    return found


@dataclass(frozen=True, slots=True)
class Lanes:
    """Lanes of a launch's scopes.

    ``first`` and ``overlaps`` are ``Timeline.lanes`` and ``Timeline.overlaps``. ``own`` is the lane of each scope that
    crosses others of its kind, from 0 among these; ``places`` is its index among the pairs.
    """

    first: NDArray[np.int64]
    overlaps: NDArray[np.int64] | None
    places: NDArray[np.int64]
    own: NDArray[np.int64]


def single_lane(count: int) -> Lanes:
    """Return the lanes of a launch in which no scope crosses another; ``count`` is the table's number of scopes."""
    none = np.zeros(0, dtype=np.int64)
    return Lanes(np.zeros(count, dtype=np.int64), None, none, none)


def lanes_of_pairs(pairs: Pairs, unit: NDArray[np.int64], count: int) -> Lanes:
    """Assign lanes to pairs that cross; ``unit`` is the unit of each record, ``count`` the table's number of scopes.

    A kind that crosses itself has lanes of its own, after those that the others share.
    """
    scope, start_at, end_at = pairs.scope, pairs.start_at, pairs.end_at
    crosses_own = crossing_own_kind(scope, start_at, end_at, count)
    shared, places = np.flatnonzero(~crosses_own[scope]), np.flatnonzero(crosses_own[scope])
    first = lanes_of(crossing_kinds(scope[shared], start_at[shared], end_at[shared], count))
    if not places.size:
        return replace(single_lane(count), first=first)
    own = free_lanes(unit[start_at[places]] * count + scope[places], start_at[places], end_at[places])
    overlaps = np.ones(count, dtype=np.int64)
    np.maximum.at(overlaps, scope[places], own + 1)
    widths = overlaps[crosses_own]
    first[crosses_own] = int(first[~crosses_own].max(initial=-1)) + 1 + np.cumsum(widths) - widths
    return Lanes(first, overlaps, places, own)
