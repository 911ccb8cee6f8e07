"""The values of tags, out of a ring's entries: they stand right before the start of their scope."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import scope_ids, stored_values
from kprof_inject.capture.schema import MAX_TAGS, RECORDS_OF_TAG, SCOPE_IDS
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.columns import NO_TAG


@dataclass(frozen=True, slots=True)
class TagIds:
    """Which ids are those of tags; several may mean one tag."""

    of_id: NDArray[np.int64]
    """For each id the tag, as ``_number`` has it, or -1."""
    counts: NDArray[np.int64]
    """How many tags each scope of the table has; at the end 0, for what is no scope."""

    @classmethod
    def of(cls, names: Mapping[int, str], table: ScopeTable) -> TagIds:
        """``names`` are those of the records with each id."""
        numbers = {
            tag.record: _number(index, place)
            for index, scope in enumerate(table.scopes)
            for place, tag in enumerate(scope.tags)
        }
        of_id = np.full(SCOPE_IDS, -1)
        for scope_id, name in names.items():
            of_id[scope_id] = numbers.get(name, -1)
        counts = [len(scope.tags) for scope in table.scopes]
        # The records around the kernel's body have none either, if they are no scope's.
        return cls(of_id, np.array([*counts, 0, 0]))

    @property
    def most(self) -> int:
        return int(self.counts.max())

    def entries_of(self, entries: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which entries are a tag's."""
        of_tags: NDArray[np.bool_] = self.of_id[scope_ids(entries)] >= 0
        return of_tags

    def values(
        self,
        entries: NDArray[np.uint64],
        group: NDArray[np.int64],
        scope: NDArray[np.int16],
        is_end: NDArray[np.bool_],
    ) -> NDArray[np.int64]:
        """The values that belong to each entry: shape (entry, most), ``NO_TAG`` where there is none. The entries are
        all that the rings have, in the order of writing.

        Each value was stored twice, and one is enough: the ring may have lost the other, or its id is damaged. Two that
        differ tell nothing."""
        found = np.full((len(entries), self.most), NO_TAG)
        if not self.most:
            return found
        starts = np.flatnonzero(~is_end & (self.counts[scope] > 0))
        count = self.counts[scope[starts]]
        tags = self.of_id[scope_ids(entries)]
        for place in range(self.most):
            for record in range(RECORDS_OF_TAG):
                before = RECORDS_OF_TAG * (count - place) - record
                at = np.maximum(starts - before, 0)
                is_mine = (before > 0) & (before <= starts) & (group[at] == group[starts])
                is_mine &= tags[at] == _number(scope[starts].astype(np.int64), place)
                mine, stored = starts[is_mine], stored_values(entries[at[is_mine]])
                other = found[mine, place]
                found[mine, place] = np.where((other == NO_TAG) | (other == stored), stored, NO_TAG)
        return found


def _number(scope: NDArray[np.int64] | int, place: int) -> NDArray[np.int64] | int:
    return scope * MAX_TAGS + place


NO_TAGS = TagIds.of({}, ScopeTable(()))


def tag_columns(tables: Iterable[ScopeTable]) -> dict[str, str]:
    """What the tags of these tables are called in exports, each with its name: those of several scopes may bear one."""
    return {f"tag_{tag.name}": tag.name for table in tables for scope in table.scopes for tag in scope.tags}


def tag_column(block: NDArray[np.void], table: ScopeTable, name: str) -> NDArray[np.int64]:
    """The values of the tags with this name, of a block of scopes of this table; ``NO_TAG`` where there is none."""
    column = np.full(len(block), NO_TAG)
    for index, scope in enumerate(table.scopes):
        for place, tag in enumerate(scope.tags):
            if tag.name == name:
                mine = block["scope"] == index
                column[mine] = block["tags"][mine, place]
    return column
