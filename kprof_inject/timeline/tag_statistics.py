"""Time of a scope by the values of its tags: one pass over the blocks of a timeline.

A scope that ran costs 8 bytes, and 8 more for each of its tags; no block is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind, ScopeTable, TagInfo
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.timeline import Timeline

MAX_VALUES = 64
"""Number of values kept of one tag: those that take the most time."""


@dataclass(frozen=True, slots=True)
class TagValue:
    """Runs of a scope with one value of a tag.

    Times are None for a mark, which takes no time except its record's. ``times_others`` is the median over that of the
    scope's runs with any other value; None if there are no others, or if they take no time.
    """

    value: int
    count: int
    total_ns: int | None
    p50_ns: float | None
    times_others: float | None


@dataclass(frozen=True, slots=True)
class TagStatistics:
    """Values of one tag of a scope.

    ``values`` are at most ``MAX_VALUES`` of the ``distinct`` ones: those that take the most time or, for a mark, occur
    most often. ``unknown`` is the number of the scope's runs whose value the ring lost.
    """

    name: str
    values: tuple[TagValue, ...]
    distinct: int
    unknown: int


def tag_statistics(timeline: Timeline) -> tuple[tuple[TagStatistics, ...], ...]:
    """Return the tag statistics of each scope of the table, in its order; without tags the scopes are not read."""
    sums, scopes = TagSums(timeline.table), range(len(timeline.table.scopes))
    for block in timeline.blocks() if timeline.table.max_tags else ():
        sums.add(block)
    return tuple(sums.of(scope) for scope in scopes)


class TagSums:
    """Accumulator of the values of a launch's tags from its blocks of scopes."""

    def __init__(self, table: ScopeTable) -> None:
        """Prepare lists for the scopes of ``table`` that have tags."""
        self._table = table
        self._values = {
            (index, place): [np.empty(0, np.int64)]
            for index, scope in enumerate(table.scopes)
            for place in range(len(scope.tags))
        }
        self._durations = {index: [np.empty(0, np.int64)] for index, scope in enumerate(table.scopes) if scope.tags}

    def add(self, block: NDArray[np.void]) -> None:
        """Add a block of scopes."""
        for index, durations in self._durations.items():
            rows = block["scope"] == index
            durations.append(block["duration_ns"][rows])
            for place in range(len(self._table.scopes[index].tags)):
                self._values[index, place].append(block["tags"][rows, place])

    def of(self, scope: int) -> tuple[TagStatistics, ...]:
        """Return the statistics of the tags of a scope of the table, in their order."""
        if scope not in self._durations:
            return ()
        info, durations = self._table.scopes[scope], np.concatenate(self._durations[scope])
        is_mark = info.kind == ScopeKind.INSTANT
        return tuple(
            _statistics(tag, np.concatenate(self._values[scope, place]), durations, is_mark=is_mark)
            for place, tag in enumerate(info.tags)
        )


def _statistics(
    tag: TagInfo, values: NDArray[np.int64], durations: NDArray[np.int64], *, is_mark: bool
) -> TagStatistics:
    is_known = values != NO_TAG
    values, durations = values[is_known], durations[is_known]
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    totals = np.bincount(which, durations, len(distinct)).astype(np.int64)
    weights = counts if is_mark else totals
    shown = np.argsort(-weights, kind="stable")[:MAX_VALUES].tolist()
    rows = (
        TagValue(int(distinct[at]), int(counts[at]), None, None, None)
        if is_mark
        else TagValue(int(distinct[at]), int(counts[at]), int(totals[at]), *_median_and_ratio(durations, which == at))
        for at in shown
    )
    return TagStatistics(tag.name, tuple(rows), len(distinct), int(np.count_nonzero(~is_known)))


def _median_and_ratio(durations: NDArray[np.int64], has_value: NDArray[np.bool_]) -> tuple[float, float | None]:
    median, rest = float(np.median(durations[has_value])), durations[~has_value]
    usual = float(np.median(rest)) if rest.size else 0.0
    return median, median / usual if usual else None
