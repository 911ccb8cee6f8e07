"""Which scope stands in which: depths, the scopes around, and iteration numbers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.crossings import innermost_around
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.records import Records


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


def iterations(
    records: Records, pairs: Pairs, parent: NDArray[np.int64], iteration_scopes: Iterable[int], lost: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of each iteration within its loop, from 0; -1 for scopes that are none, or if it cannot be known.

    ``iteration_scopes`` are the scopes of the table that are iterations, ``lost`` (group) how many records each ring
    lost. Where it lost some, only the iterations of a loop whose own start survived can be numbered: all of that loop
    did. After a damaged entry, none of its warp can: it may have been an iteration's."""
    number = np.full(len(pairs.scope), -1)
    group = records.group[pairs.start_at]
    lost = lost[group]
    for scope in iteration_scopes:
        mine = np.flatnonzero(pairs.scope == scope)
        if not mine.size:
            continue
        around = parent[mine]
        # Rank within one warp and one instance of the loop around: mine is in order of both.
        fresh = np.append(True, (np.diff(group[mine]) != 0) | (np.diff(around) != 0))
        first = np.maximum.accumulate(np.where(fresh, np.arange(mine.size), 0))
        is_complete = (around >= 0) | (lost[mine] == 0)
        number[mine] = np.where(is_complete, np.arange(mine.size) - first, -1)
    if records.damaged.size:
        begins = np.searchsorted(records.group, group)
        sound_before = pairs.start_at - begins
        number[records.number[pairs.start_at] - lost != sound_before] = -1
    return number
