"""Which scope stands in which: depths, the scopes around, and iteration numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.decoding.crossings import innermost_around
from kprof_inject.timeline.decoding.pairs import Pairs
from kprof_inject.timeline.decoding.records import Records


@dataclass(frozen=True, slots=True)
class Nesting:
    """For each of a block's scopes: ``depth`` counts the scopes of its warp that are open around it, ``parent`` is the
    place of the innermost that holds it whole, or -1. ``is_proper`` says that no two cross."""

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
    is_proper = bool((opened[pairs.end_at] == depth).all())
    parent = _last_one_level_up(depth) if is_proper else innermost_around(pairs.start_at, pairs.end_at)
    return Nesting(depth, parent, is_proper)


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
