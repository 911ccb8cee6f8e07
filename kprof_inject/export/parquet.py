"""Parquet files: a row for each scope that ran, for DuckDB, Polars, pandas and others. Needs pyarrow."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from kprof_inject.export.arrow import arrow_batches, arrow_schema, optional_module
from kprof_inject.export.drawing.launch_events import launch_facts
from kprof_inject.export.scope_rows import scope_rows
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

METADATA_KEY = "kprof_inject"

# At least so many, where there are: DuckDB writes row groups of this size itself, and gives each to one thread.
_GROUP_ROWS = 122_880


def parquet_table(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """The file's bytes, in chunks. Its metadata have a JSON object at ``METADATA_KEY``: the ``version`` that wrote it,
    and what is known of each of the ``launches``. Raises ``KprofError`` without pyarrow."""
    arrow, parquet = optional_module("pyarrow", "pyarrow"), optional_module("pyarrow.parquet", "pyarrow")
    rows = scope_rows(timelines)
    schema = arrow_schema(rows).with_metadata({METADATA_KEY: json.dumps(_metadata(timelines))})
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batches in _groups(arrow_batches(rows)):
            group = arrow.Table.from_batches(batches)
            writer.write_table(group, row_group_size=len(group))
            yield from sink.take()
    yield from sink.take()


class _Sink(io.RawIOBase):
    """A file that holds what was written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._chunks: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = bytes(data)
        self._chunks.append(chunk)
        self._position += len(chunk)
        return len(chunk)

    def tell(self) -> int:
        return self._position

    def take(self) -> list[bytes]:
        chunks, self._chunks = self._chunks, []
        return chunks


def _groups(batches: Iterable[Any]) -> Iterator[list[Any]]:
    """The batches of each row group: launches may be small."""
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= _GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _metadata(timelines: Sequence[Timeline]) -> dict[str, Any]:
    return {"version": __version__, "launches": [_facts(placed) for placed in place_launches(timelines)]}


def _facts(placed: PlacedLaunch) -> dict[str, Any]:
    launch = placed.timeline.launch
    cost = launch.kernel.record_cost
    return {
        **launch_facts(placed),
        # Where a capture is of one device alone, it goes without saying; the rows have it, and are found by it.
        **asdict(launch.place),
        "grid": launch.grid,
        "num_warps": launch.kernel.num_warps,
        "record_cost_cycles": cost and cost.cycles,
        "record_cost_error_cycles": cost and cost.error_cycles,
        "record_cost_source": cost and cost.source,
    }
