"""Scopes of one kind that cross each other in a unit, as those of asynchronous work do: on lanes beside each other."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.nesting import crossing, crossing_kinds, lanes_of
from kprof_inject.timeline.pairs import Pairs


def lanes_beside(key: NDArray[np.int64], start_at: NDArray[np.int64], end_at: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lane of each scope, from 0: the least that is free. Scopes of the same ``key`` and lane never overlap."""
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
    """What to add to the lane of each scope of a block (``SCOPE_COLUMNS``) because of others of its kind. ``overlaps``
    are ``Timeline.overlaps``."""
    lanes = np.zeros(len(scopes), dtype=np.int64)
    rows = np.flatnonzero(overlaps[scopes["scope"]] > 1)
    if rows.size:
        mine = scopes[rows]
        places = np.stack([mine[name].astype(np.int64) for name in ("cta", "warp", "scope")], axis=1)
        key = np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)
        lanes[rows] = lanes_beside(key, mine["start_record"].astype(np.int64), mine["end_record"].astype(np.int64))
    return lanes


def crossing_own_kind(
    scope: NDArray[np.int16], start_at: NDArray[np.int64], end_at: NDArray[np.int64], count: int
) -> NDArray[np.bool_]:
    """Which of the table's ``count`` scopes cross others of their own kind. Takes what ``crossing`` takes."""
    found = np.zeros(count, dtype=bool)
    for kind in np.flatnonzero(np.bincount(scope, minlength=count)).tolist():
        mine = np.flatnonzero(scope == kind)
        found[kind] = crossing(start_at[mine], end_at[mine])[0].size > 0
    return found


@dataclass(frozen=True, slots=True)
class Lanes:
    """``first`` and ``overlaps`` are ``Timeline.lanes`` and ``Timeline.overlaps``. ``own`` is the lane of each scope
    that crosses others of its kind, from 0 among these; ``places`` is where it stands among the pairs."""

    first: NDArray[np.int64]
    overlaps: NDArray[np.int64] | None
    places: NDArray[np.int64]
    own: NDArray[np.int64]


def one_lane(count: int) -> Lanes:
    """Where no scope crosses another. ``count`` is how many the table has, here and below."""
    none = np.zeros(0, dtype=np.int64)
    return Lanes(np.zeros(count, dtype=np.int64), None, none, none)


def lanes_of_pairs(pairs: Pairs, unit: NDArray[np.int64], count: int) -> Lanes:
    """``unit`` is that of each record. A kind that crosses itself has lanes of its own, behind those that the others
    share."""
    scope, start_at, end_at = pairs.scope, pairs.start_at, pairs.end_at
    crosses_own = crossing_own_kind(scope, start_at, end_at, count)
    shared, places = np.flatnonzero(~crosses_own[scope]), np.flatnonzero(crosses_own[scope])
    first = lanes_of(crossing_kinds(scope[shared], start_at[shared], end_at[shared], count))
    if not places.size:
        return replace(one_lane(count), first=first)
    own = lanes_beside(unit[start_at[places]] * count + scope[places], start_at[places], end_at[places])
    overlaps = np.ones(count, dtype=np.int64)
    np.maximum.at(overlaps, scope[places], own + 1)
    widths = overlaps[crosses_own]
    first[crosses_own] = int(first[~crosses_own].max(initial=-1)) + 1 + np.cumsum(widths) - widths
    return Lanes(first, overlaps, places, own)
