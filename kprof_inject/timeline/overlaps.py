"""Scopes of one kind that cross each other in a unit, as those of asynchronous work do: on lanes beside each other."""

from __future__ import annotations

import heapq

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.nesting import crossing, crossing_kinds, lanes_of


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
    for kind in np.unique(scope).tolist():
        mine = np.flatnonzero(scope == kind)
        found[kind] = crossing(start_at[mine], end_at[mine])[0].size > 0
    return found


def lanes_with_overlaps(
    scope: NDArray[np.int16], start_at: NDArray[np.int64], end_at: NDArray[np.int64], overlaps: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The first lane of each scope of the table. One that crosses its own kind has as many for itself as ``overlaps``
    says, behind those that the others share."""
    alone = overlaps == 1
    shared = np.flatnonzero(alone[scope])
    crosses = crossing_kinds(scope[shared], start_at[shared], end_at[shared], len(overlaps))
    lanes = lanes_of(crosses)
    own = np.flatnonzero(~alone)
    first = int(lanes[alone].max(initial=-1)) + 1
    lanes[own] = first + np.cumsum(overlaps[own]) - overlaps[own]
    return lanes
