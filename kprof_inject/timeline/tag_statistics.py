"""What a scope takes by the values of its tags: one pass over the blocks of a timeline.

A scope that ran costs 8 bytes, and 8 more for each of its tags; no block is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeKind, ScopeTable, TagInfo
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.timeline import Timeline

MAX_VALUES = 64
"""Of one tag: those that take most."""


@dataclass(frozen=True, slots=True)
class TagValue:
    """All that ran of a scope with one value of a tag. Times are None of a mark, whose time is the record's own.
    ``times_others`` is the median over that of the scope with any other value; None if there is no other, or if it
    takes no time."""

    value: int
    count: int
    total_ns: int | None
    p50_ns: float | None
    times_others: float | None


@dataclass(frozen=True, slots=True)
class TagStatistics:
    """One tag of a scope. ``values`` are those that take most in all, or of a mark occur most, at most ``MAX_VALUES``
    of the ``distinct`` ones; ``unknown`` is how often the scope ran with a value that the ring lost."""

    name: str
    values: tuple[TagValue, ...]
    distinct: int
    unknown: int


def tag_statistics(timeline: Timeline) -> tuple[tuple[TagStatistics, ...], ...]:
    """Those of each scope of the table, in its order. Without tags the scopes are not read."""
    sums, scopes = TagSums(timeline.table), range(len(timeline.table.scopes))
    for block in timeline.blocks() if timeline.table.max_tags else ():
        sums.add(block)
    return tuple(sums.of(scope) for scope in scopes)


class TagSums:
    """Gathers the values of a launch's tags from its blocks of scopes."""

    def __init__(self, table: ScopeTable) -> None:
        self._table = table
        self._values = {
            (index, place): [np.empty(0, np.int64)]
            for index, scope in enumerate(table.scopes)
            for place in range(len(scope.tags))
        }
        self._durations = {index: [np.empty(0, np.int64)] for index, scope in enumerate(table.scopes) if scope.tags}

    def add(self, block: NDArray[np.void]) -> None:
        for index, durations in self._durations.items():
            mine = block["scope"] == index
            durations.append(block["duration_ns"][mine])
            for place in range(len(self._table.scopes[index].tags)):
                self._values[index, place].append(block["tags"][mine, place])

    def of(self, scope: int) -> tuple[TagStatistics, ...]:
        """Those of a scope of the table, in their order."""
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


def _median_and_ratio(durations: NDArray[np.int64], mine: NDArray[np.bool_]) -> tuple[float, float | None]:
    median, others = float(np.median(durations[mine])), durations[~mine]
    usual = float(np.median(others)) if others.size else 0.0
    return median, median / usual if usual else None
