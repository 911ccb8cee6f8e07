"""Comma-separated values: a header, then a line for each scope that ran.

Format: RFC 4180, in UTF-8, with only a line feed at the end of a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.scope_rows import COLUMN_TYPES, Description, FlightColumns, describe
from kprof_inject.export.text_rows import Field, NumberField, TextField, text_rows
from kprof_inject.forks import JobRunner, in_turn
from kprof_inject.timeline.columns import NO_TAG, SCOPE_COLUMNS
from kprof_inject.timeline.tag_entries import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline

_SPECIAL = frozenset('",\r\n')


def csv_table(timelines: Sequence[Timeline], run: JobRunner = in_turn) -> Iterator[bytes]:
    """Yield the file's bytes in chunks; the lines of each launch are one of ``run``'s jobs."""
    tags = tag_columns(timeline.table for timeline in timelines)
    yield (",".join((*COLUMN_TYPES, *tags)) + "\n").encode()
    yield from run([partial(_lines, timeline, tuple(tags.values())) for timeline in timelines])


def _lines(timeline: Timeline, tags: Sequence[str]) -> Iterator[bytes]:
    beginnings = TextField([_beginning(description) for description in describe(timeline)])
    flights = FlightColumns.of(timeline)
    for block in timeline.blocks():
        columns = [block[name].astype(np.int64) for name in SCOPE_COLUMNS.names or ()]
        numbers = [NumberField(b",", column) for column in (*columns, *flights.of_block(block).values())]
        values = (tag_column(block, timeline.table, name) for name in tags)
        cells = [field for column in values for field in _optional(column)]
        yield from text_rows([beginnings, *numbers, *cells, TextField([b"\n"])], block["scope"].astype(np.int64))


def _optional(tags: NDArray[np.int64]) -> tuple[Field, Field]:
    """Return a cell for each value, empty for ``NO_TAG``."""
    is_known = tags != NO_TAG
    return TextField([b","]), NumberField(b"", np.where(is_known, tags, 0), shown=is_known)


def _beginning(description: Description) -> bytes:
    """Return the beginning of all lines of a scope."""
    return ",".join([*map(_cell, description.texts), *map(str, description.numbers)]).encode()


def _cell(text: str) -> str:
    # Many readers end a text at a zero byte, and ``text_rows`` removes these.
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return '"' + text.replace('"', '""') + '"' if _SPECIAL & set(text) else text
