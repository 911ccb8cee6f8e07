"""Tables of scopes, whatever their format: a row for each scope that ran, of all launches.

First stand the columns that describe the scope and its launch, then those of ``SCOPE_COLUMNS``, then what was in flight
by it, then a column for each tag that a launch has. Times are not rebased: they are on the globaltimer of the launch's
device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.flight_columns import IN_FLIGHT, FlightColumns
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.partitions import partition_names
from kprof_inject.timeline.tag_entries import tag_column, tag_columns
from kprof_inject.timeline.timeline import Timeline

TEXT_DESCRIPTIONS = ("kernel", "variant", "host", "name", "kind", "partition", "source", "called_from")
"""Of the launch, and from ``name`` on of the scope."""

NUMBER_DESCRIPTIONS = ("pid", "rank", "device")
"""Of the launch; ``rank`` is -1 where there is none."""

COLUMN_TYPES: dict[str, np.dtype[np.signedinteger]] = {
    **dict.fromkeys(TEXT_DESCRIPTIONS, np.dtype(np.int32)),
    **dict.fromkeys(NUMBER_DESCRIPTIONS, np.dtype(np.int64)),
    **{name: SCOPE_COLUMNS[name] for name in SCOPE_COLUMNS.names or ()},
    **dict.fromkeys(IN_FLIGHT, np.dtype(np.int64)),
}
"""The columns that all tables have, in their order. A text has the type of its place in ``ScopeRows.texts``."""

TAG_TYPE = np.dtype(np.int64)
"""Of a tag's column, which is empty where it is ``NO_TAG``."""


_NO_RANK = -1


@dataclass(frozen=True, slots=True)
class Description:
    """What is the same in all rows of one scope of a launch's table, as ``*_DESCRIPTIONS`` name it."""

    texts: tuple[str, ...]
    numbers: tuple[int, ...]


def describe(timeline: Timeline) -> list[Description]:
    """The description of each scope of the launch's table. All texts can be encoded."""
    launch, place = timeline.launch, timeline.launch.place
    partitions = partition_names(timeline.table)
    of_launch = (launch.kernel.name, launch.kernel.variant, place.host)
    numbers = (place.pid, _NO_RANK if place.rank is None else place.rank, place.device)
    return [
        Description(
            tuple(
                text.encode(errors="replace").decode()
                for text in (
                    *of_launch,
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


@dataclass(frozen=True, slots=True)
class ScopeRows:
    """All rows. ``texts`` has for each column of texts those that it can have, ``tags`` for each tag's
    column its name."""

    timelines: Sequence[Timeline]
    texts: dict[str, tuple[str, ...]]
    tags: dict[str, str]

    @property
    def types(self) -> dict[str, np.dtype[np.signedinteger]]:
        """All columns in their order."""
        return COLUMN_TYPES | dict.fromkeys(self.tags, TAG_TYPE)

    def parts(self) -> Iterator[dict[str, NDArray[np.signedinteger]]]:
        """All columns, in parts of at least one row; a text stands there as its place in ``texts``."""
        places = {name: {text: place for place, text in enumerate(texts)} for name, texts in self.texts.items()}
        for timeline in self.timelines:
            descriptions = describe(timeline)
            of_scope = {
                name: np.array([places[name][each.texts[at]] for each in descriptions], dtype=COLUMN_TYPES[name])
                for at, name in enumerate(TEXT_DESCRIPTIONS)
            } | {
                name: np.array([each.numbers[at] for each in descriptions], dtype=COLUMN_TYPES[name])
                for at, name in enumerate(NUMBER_DESCRIPTIONS)
            }
            flights = FlightColumns.of(timeline)
            for block in timeline.blocks():
                if len(block):
                    in_flight = flights.of_block(block)
                    yield {
                        name: of_scope[name][block["scope"]] if name in of_scope else _column(name, in_flight, block)
                        for name in COLUMN_TYPES
                    } | {column: tag_column(block, timeline.table, name) for column, name in self.tags.items()}


def scope_rows(timelines: Sequence[Timeline]) -> ScopeRows:
    found: dict[str, dict[str, None]] = {name: {} for name in TEXT_DESCRIPTIONS}
    for timeline in timelines:
        for description in describe(timeline):
            for name, text in zip(TEXT_DESCRIPTIONS, description.texts, strict=True):
                found[name][text] = None
    return ScopeRows(
        timelines, {name: tuple(texts) for name, texts in found.items()}, tag_columns(one.table for one in timelines)
    )


def _column(
    name: str, in_flight: Mapping[str, NDArray[np.int64]], block: NDArray[np.void]
) -> NDArray[np.signedinteger]:
    return in_flight[name] if name in in_flight else block[name]
