"""Tables of scopes, for all formats: a row for each scope that ran, of all launches.

The first columns describe the scope and its launch; those of ``SCOPE_COLUMNS`` follow, then those of its asynchronous
work, then a column for each tag of the launches. Times are not rebased: they are on the globaltimer of the launch's
device.

The simplest of the formats is here: comma-separated values (RFC 4180), in UTF-8, with only a line feed at the end of a
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
from msgspec import Raw, Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import IN_FLIGHT_COLUMNS
from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.files import csv_cell
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.columns import NO_TAG, SCOPE_COLUMNS
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.tag_entries import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline

IN_FLIGHT = ("in_flight_ns", "blocked_ns", "depth_in_flight", "bytes_in_flight")
"""The values of ``IN_FLIGHT_COLUMNS`` for scopes that start asynchronous work; -1 for all others."""


class FlightColumns(Struct, frozen=True):
    """The asynchronous work of a launch, by the record of the scope that started it."""

    keys: NDArray[np.int64]
    groups: NDArray[np.void]

    @classmethod
    def of(cls, timeline: Timeline) -> FlightColumns:
        """Analyse the asynchronous work of a launch."""
        found = recorded_in_flight(timeline)
        groups = found.groups if found else np.empty(0, IN_FLIGHT_COLUMNS)
        keys = _keys(groups, "record")
        order = np.argsort(keys, kind="stable")
        return cls(keys[order], groups[order])

    def of_block(self, block: NDArray[np.void]) -> dict[str, NDArray[np.int64]]:
        """Return the columns for a block of scopes."""
        found = {name: np.full(len(block), _NOTHING) for name in IN_FLIGHT}
        if not self.keys.size:
            return found
        keys = _keys(block, "start_record")
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        has_work = self.keys[place] == keys
        groups = self.groups[place[has_work]]
        values = (groups["end_ns"] - groups["start_ns"], groups["blocked_ns"], groups["depth"], groups["bytes"])
        for name, column in zip(IN_FLIGHT, values, strict=True):
            found[name][has_work] = column
        return found


_NOTHING = -1
# More than the warps of a CTA, and than the records of a warp.
_WARPS, _RECORDS = 1 << 7, 1 << 32


def _keys(rows: NDArray[np.void], record: str) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (rows["cta"].astype(np.int64) * _WARPS + rows["warp"]) * _RECORDS + rows[record]
    return keys


TEXT_DESCRIPTIONS = ("kernel", "variant", "host", "name", "kind", "partition", "source", "called_from")
"""Texts about the launch and, from ``name`` on, about the scope."""

NUMBER_DESCRIPTIONS = ("pid", "rank", "device")
"""Numbers about the launch; ``rank`` is -1 if it has none."""

COLUMN_TYPES: dict[str, np.dtype[np.signedinteger]] = {
    **dict.fromkeys(TEXT_DESCRIPTIONS, np.dtype(np.int32)),
    **dict.fromkeys(NUMBER_DESCRIPTIONS, np.dtype(np.int64)),
    **{name: SCOPE_COLUMNS[name] for name in SCOPE_COLUMNS.names or ()},
    **dict.fromkeys(IN_FLIGHT, np.dtype(np.int64)),
}
"""The columns of all tables, in order. A text is stored as its index in ``ScopeRows.texts``, with this type."""

TAG_TYPE = np.dtype(np.int64)
"""The type of a tag's column, which is empty for ``NO_TAG``."""


_NO_RANK = -1


class Description(Struct, frozen=True):
    """The values that are the same in all rows of a scope in a launch's table, in the order of ``*_DESCRIPTIONS``."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]


def describe(timeline: Timeline) -> list[Description]:
    """Return the description of each scope of the launch's table; all texts can be encoded in UTF-8."""
    launch, place = timeline.launch, timeline.launch.place
    partitions = partition_names(timeline.table)
    launch_texts = (launch.kernel.name, launch.kernel.variant, place.host)
    numbers = (place.pid, _NO_RANK if place.rank is None else place.rank, place.device)
    return [
        Description(
            tuple(
                text.encode(errors="replace").decode()
                for text in (
                    *launch_texts,
                    scope.name,
                    scope.kind,
                    partitions.get(index, ""),
                    scope.source,
                    " < ".join(scope.called_from),
                )
            ),
            numbers,
        )
        for index, scope in enumerate(timeline.table.scopes)
    ]


class ScopeRows(Struct, frozen=True):
    """The rows of all launches.

    ``texts`` has the possible values of each column of texts, ``tags`` the tag's name for each column of tags.
    """

    timelines: Sequence[Timeline]
    texts: dict[str, tuple[str, ...]]
    tags: dict[str, str]

    @property
    def types(self) -> dict[str, np.dtype[np.signedinteger]]:
        """The types of the columns, in order."""
        return COLUMN_TYPES | dict.fromkeys(self.tags, TAG_TYPE)

    def parts(self) -> Iterator[dict[str, NDArray[np.signedinteger]]]:
        """Yield the columns in parts of at least one row; a text is given as its index in ``texts``."""
        indices = {name: {text: index for index, text in enumerate(texts)} for name, texts in self.texts.items()}
        for timeline in self.timelines:
            descriptions = describe(timeline)
            by_scope = {
                name: np.array(
                    [indices[name][description.texts[column]] for description in descriptions], dtype=COLUMN_TYPES[name]
                )
                for column, name in enumerate(TEXT_DESCRIPTIONS)
            } | {
                name: np.array([description.numbers[column] for description in descriptions], dtype=COLUMN_TYPES[name])
                for column, name in enumerate(NUMBER_DESCRIPTIONS)
            }
            flights = FlightColumns.of(timeline)
            for block in timeline.blocks():
                if len(block):
                    in_flight = flights.of_block(block)
                    yield {
                        name: by_scope[name][block["scope"]] if name in by_scope else _column(name, in_flight, block)
                        for name in COLUMN_TYPES
                    } | {column: tag_column(block, timeline.table, name) for column, name in self.tags.items()}


def scope_rows(timelines: Sequence[Timeline]) -> ScopeRows:
    """Return the rows of these launches."""
    found: dict[str, dict[str, None]] = {name: {} for name in TEXT_DESCRIPTIONS}
    for timeline in timelines:
        for description in describe(timeline):
            for name, text in zip(TEXT_DESCRIPTIONS, description.texts, strict=True):
                found[name][text] = None
    return ScopeRows(
        timelines,
        {name: tuple(texts) for name, texts in found.items()},
        tag_columns(timeline.table for timeline in timelines),
    )


def _column(
    name: str, in_flight: Mapping[str, NDArray[np.int64]], block: NDArray[np.void]
) -> NDArray[np.signedinteger]:
    return in_flight[name] if name in in_flight else block[name]


def csv_table(timelines: Sequence[Timeline], run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield the bytes of a file of comma-separated values, in chunks; the lines of each launch are one of its jobs."""
    tags = tag_columns(timeline.table for timeline in timelines)
    yield (",".join((*COLUMN_TYPES, *tags)) + "\n").encode()
    yield from run([partial(_lines, timeline, tuple(tags.values())) for timeline in timelines])


_CHUNK_ROWS = 1 << 12


def _lines(timeline: Timeline, tags: Sequence[str]) -> Iterator[bytes]:
    described = ([*map(csv_cell, one.texts), *map(str, one.numbers)] for one in describe(timeline))
    beginnings = [Raw(",".join(cells).encode()) for cells in described]
    flights = FlightColumns.of(timeline)
    # A row is an array of JSON without its brackets.
    encode = msgspec.json.Encoder().encode
    for block in timeline.blocks():
        in_flight = flights.of_block(block)
        columns = [*(block[name] for name in SCOPE_COLUMNS.names or ()), *in_flight.values()]
        tagged = [tag_column(block, timeline.table, name) for name in tags]
        for first in range(0, len(block), _CHUNK_ROWS):
            part = slice(first, first + _CHUNK_ROWS)
            own = [beginnings[scope] for scope in block["scope"][part].tolist()]
            cells = ([_NONE if value == NO_TAG else value for value in tag[part].tolist()] for tag in tagged)
            rows = zip(own, *(column[part].tolist() for column in columns), *cells, strict=True)
            yield b"".join([encode(row)[1:-1] + b"\n" for row in rows])


# An empty cell.
_NONE = Raw(b"")
