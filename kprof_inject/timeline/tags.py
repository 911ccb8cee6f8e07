"""Values of tags, from a ring's entries, which directly precede the start of their scope; and statistics by value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import scope_ids, stored_values
from kprof_inject.capture.schema import HALF_BITS, MAX_TAGS, RECORDS_OF_TAG, SCOPE_IDS
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, TagRecord
from kprof_inject.timeline.columns import NO_TAG, Mask, Numbers, Rows

_LOWER_HALF = (1 << HALF_BITS) - 1


class TagIds(Struct, frozen=True):
    """Ids of a scope table's tags."""

    of_id: Numbers  # number of the tag of each id, as by ``_number``, or -1
    is_wide: Mask  # true for tags of 64 bits: shape (scope of the table and two more, tag)
    counts: Numbers  # number of tags of each scope of the table; the last entries are 0, for records of no scope

    @classmethod
    def of(cls, names: Mapping[int, str], table: ScopeTable) -> TagIds:
        """Find the ids of the table's tags; ``names`` are the record names of each id."""
        numbers: dict[str, Numbers | int] = {}
        # Records around the kernel's body have no tags either, if they belong to no scope.
        counts = np.array([*(len(scope.tags) for scope in table.scopes), 0, 0])
        is_wide = np.zeros((len(counts), table.max_tags), dtype=bool)
        for index, scope in enumerate(table.scopes):
            for place, tag in enumerate(scope.tags):
                numbers[tag.record], is_wide[index, place] = _number(index, place), tag.is_wide
        of_id = np.full(SCOPE_IDS, -1)
        for scope_id, name in names.items():
            of_id[scope_id] = numbers.get(name, -1)
        return cls(of_id, is_wide, counts)

    @property
    def max_tags(self) -> int:
        """Maximum number of tags of a scope."""
        return int(self.counts.max())

    def entries_of(self, entries: NDArray[np.uint64]) -> Mask:
        """Determine which entries belong to a tag."""
        return self.of_id[scope_ids(entries)] >= 0

    def values(self, entries: NDArray[np.uint64], group: Numbers, scope: NDArray[np.int16], is_end: Mask) -> Numbers:
        """Return the tag values (entry, tag), ``NO_TAG`` without one, given all entries in the order of writing.

        Each value was stored twice, and one suffices: the ring may have lost the other, or its id is damaged. Two that
        differ give no value. A wide value needs both halves.
        """
        found = np.full((len(entries), self.max_tags), NO_TAG)
        if not self.max_tags:
            return found
        starts = np.flatnonzero(~is_end & (self.counts[scope] > 0))
        count = self.counts[scope[starts]]
        tags = self.of_id[scope_ids(entries)]
        for place in range(self.max_tags):
            halves = np.full((RECORDS_OF_TAG, len(starts)), NO_TAG)
            for record in range(RECORDS_OF_TAG):
                before = RECORDS_OF_TAG * (count - place) - record
                at = np.maximum(starts - before, 0)
                is_of_tag = (before > 0) & (before <= starts) & (group[at] == group[starts])
                is_of_tag &= tags[at] == _number(scope[starts].astype(np.int64), place)
                halves[record] = np.where(is_of_tag, stored_values(entries[at]), NO_TAG)
            one, other = halves
            lacks_one, lacks_other = one == NO_TAG, other == NO_TAG
            either = np.where(lacks_one, other, one)
            same = np.where(lacks_one | lacks_other | (one == other), either, NO_TAG)
            joined = np.where(lacks_one | lacks_other, NO_TAG, (other << HALF_BITS) | (one & _LOWER_HALF))
            found[starts, place] = np.where(self.is_wide[scope[starts], place], joined, same)
        return found


def _number(scope: Numbers | int, place: int) -> Numbers | int:
    return scope * MAX_TAGS + place


NO_TAGS = TagIds.of({}, ScopeTable())


def tag_columns(tables: Iterable[ScopeTable]) -> dict[str, str]:
    """Return the column names of these tables' tags in exports, with the tags' names (not unique)."""
    return {f"tag_{tag.name}": tag.name for table in tables for scope in table.scopes for tag in scope.tags}


def tag_column(block: Rows, table: ScopeTable, name: str) -> Numbers:
    """Return the values of the tags with this name for a block of scopes; ``NO_TAG`` where there is none."""
    column = np.full(len(block), NO_TAG)
    for index, scope in enumerate(table.scopes):
        for place, tag in enumerate(scope.tags):
            if tag.name == name:
                rows = block["scope"] == index
                column[rows] = block["tags"][rows, place]
    return column


MAX_VALUES = 64  # of one tag


class TagValue(Struct, frozen=True):
    """Runs of a scope with one value of a tag.

    Times are None for a mark, which takes no time except its record's. ``times_others`` is the median over that of the
    scope's runs with any other value; None if there are no others, or if they take no time.
    """

    value: int
    count: int
    total_ns: int | None
    p50_ns: float | None
    times_others: float | None


class TagStatistics(Struct, frozen=True):
    """Values of one tag of a scope.

    ``values`` are at most ``MAX_VALUES`` of the ``distinct`` ones: those that take the most time or, for a mark, occur
    most often. ``unknown`` is the number of the scope's runs whose value the ring lost.
    """

    name: str
    values: tuple[TagValue, ...]
    distinct: int
    unknown: int


class TagSums:
    """Accumulator of the values of a launch's tags from its blocks of scopes."""

    def __init__(self, table: ScopeTable) -> None:
        self._table = table
        tagged = {index: len(scope.tags) for index, scope in enumerate(table.scopes) if scope.tags}
        self._values = {index: [np.empty((0, tags), np.int64)] for index, tags in tagged.items()}
        self._durations = {index: [np.empty(0, np.int64)] for index in tagged}

    def add(self, block: Rows) -> None:
        """Add a block of scopes."""
        for index, durations in self._durations.items():
            rows = block["scope"] == index
            durations.append(block["duration_ns"][rows])
            self._values[index].append(block["tags"][rows, : len(self._table.scopes[index].tags)])

    def of(self, scope: int) -> tuple[TagStatistics, ...]:
        """Return the statistics of the tags of a scope of the table, in their order."""
        if scope not in self._durations:
            return ()
        info, durations = self._table.scopes[scope], np.concatenate(self._durations[scope])
        values = np.concatenate(self._values[scope])
        is_mark = info.kind == ScopeKind.INSTANT
        return tuple(
            _statistics(tag, values[:, place], durations, is_mark=is_mark) for place, tag in enumerate(info.tags)
        )


def _statistics(tag: TagRecord, values: Numbers, durations: Numbers, *, is_mark: bool) -> TagStatistics:
    is_known = values != NO_TAG
    values, durations = values[is_known], durations[is_known]
    distinct, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    totals = np.bincount(which, durations, len(distinct)).astype(np.int64)
    weights = counts if is_mark else totals
    found = []
    for at in np.argsort(-weights, kind="stable")[:MAX_VALUES].tolist():
        value, count, total_ns = int(distinct[at]), int(counts[at]), int(totals[at])
        if is_mark:
            found.append(TagValue(value, count, None, None, None))
            continue
        others = durations[which != at]
        p50_ns, usual_ns = float(np.median(durations[which == at])), float(np.median(others)) if others.size else 0.0
        found.append(TagValue(value, count, total_ns, p50_ns, p50_ns / usual_ns if usual_ns else None))
    return TagStatistics(tag.name, tuple(found), len(distinct), int(np.count_nonzero(~is_known)))
