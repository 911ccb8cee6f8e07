"""Tables of scopes for readers of Apache Arrow (pandas, Polars, DuckDB and others), also as files. Needs pyarrow.

A table has a row for each scope that ran, with the columns of ``scope_rows``. A table for pandas or Arrow is in memory
as a whole; a Parquet file is written group by group.
"""

from __future__ import annotations

import importlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kprof_inject.capture.encoding import json_values
from kprof_inject.errors import KprofError
from kprof_inject.export.drawing.launch_events import launch_facts
from kprof_inject.export.scope_rows import ScopeRows, scope_rows
from kprof_inject.timeline.axis import PlacedLaunch, place_launches
from kprof_inject.timeline.columns import NO_TAG
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

if TYPE_CHECKING:
    import pandas
    import pyarrow


def optional_module(name: str, package: str) -> Any:
    """Import and return a module. Raises ``KprofError`` if the ``package`` that contains it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise KprofError(f"this needs {package}, which is not installed", hint=f"pip install {package}") from None


def arrow_schema(rows: ScopeRows) -> Any:
    """Return the ``pyarrow.Schema`` of the rows: integers, and dictionaries for texts."""
    arrow = optional_module("pyarrow", "pyarrow")
    numbers = {name: arrow.from_numpy_dtype(kind) for name, kind in rows.types.items()}
    texts = {name: arrow.dictionary(numbers[name], arrow.string()) for name in rows.texts}
    return arrow.schema((numbers | texts).items())


def arrow_batches(rows: ScopeRows) -> Iterator[Any]:
    """Yield the rows as ``pyarrow.RecordBatch`` of that schema; all of them share the dictionaries."""
    arrow = optional_module("pyarrow", "pyarrow")
    schema = arrow_schema(rows)
    dictionaries = {name: arrow.array(texts, arrow.string()) for name, texts in rows.texts.items()}
    for part in rows.parts():
        yield arrow.record_batch(
            [
                arrow.DictionaryArray.from_arrays(part[name], dictionaries[name])
                if name in dictionaries
                else arrow.array(part[name], mask=part[name] == NO_TAG if name in rows.tags else None)
                for name in rows.types
            ],
            schema=schema,
        )


def to_arrow(timelines: Sequence[Timeline]) -> pyarrow.Table:
    """Return a table of all scopes of these launches; texts are dictionaries.

    Raises ``KprofError`` without pyarrow, and for a timeline that is not in a list.
    """
    rows = _rows_of(timelines)
    arrow = optional_module("pyarrow", "pyarrow")
    return arrow.Table.from_batches(arrow_batches(rows), arrow_schema(rows))


def to_pandas(timelines: Sequence[Timeline]) -> pandas.DataFrame:
    """Return a data frame of all scopes of these launches; texts are categories. It needs no pyarrow.

    Raises ``KprofError`` without pandas, and for a timeline that is not in a list.
    """
    pandas = optional_module("pandas", "pandas")
    rows = _rows_of(timelines)
    parts = list(rows.parts())
    columns = {
        name: np.concatenate([np.empty(0, kind), *(part[name] for part in parts)]) for name, kind in rows.types.items()
    }
    tags = {name: pandas.arrays.IntegerArray(columns[name], columns[name] == NO_TAG) for name in rows.tags}
    categories = {
        name: pandas.Categorical.from_codes(columns[name], categories=texts) for name, texts in rows.texts.items()
    }
    return pandas.DataFrame(columns | categories | tags)


def _rows_of(timelines: Sequence[Timeline]) -> ScopeRows:
    if isinstance(timelines, Timeline):
        raise KprofError("expected a list of timelines, got a single one", hint="write [timeline]")
    return scope_rows(timelines)


METADATA_KEY = "kprof_inject"

# The minimum, where there are as many rows: DuckDB writes groups of this size itself, and gives each to one thread.
_MIN_GROUP_ROWS = 122_880


def parquet_table(timelines: Sequence[Timeline]) -> Iterator[bytes]:
    """Yield the file's bytes in chunks. Raises ``KprofError`` without pyarrow.

    The file's metadata have a JSON object at ``METADATA_KEY``: the ``version`` that wrote it, and the facts of each of
    the ``launches``.
    """
    arrow, parquet = optional_module("pyarrow", "pyarrow"), optional_module("pyarrow.parquet", "pyarrow")
    rows = scope_rows(timelines)
    metadata = {"version": __version__, "launches": list(map(_facts, place_launches(timelines)))}
    schema = arrow_schema(rows).with_metadata({METADATA_KEY: json.dumps(metadata)})
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batches in _groups(arrow_batches(rows)):
            group = arrow.Table.from_batches(batches)
            writer.write_table(group, row_group_size=len(group))
            yield from sink.take()
    yield from sink.take()


class _Sink(io.RawIOBase):
    """A file that holds the written bytes until they are taken."""

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
    """Yield the batches of each row group, which may have several because launches may be small."""
    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= _MIN_GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _facts(placed: PlacedLaunch) -> dict[str, Any]:
    launch = placed.timeline.launch
    cost = launch.kernel.record_cost
    return {
        **launch_facts(placed),
        # Elsewhere, a capture of a single device omits its place; here, rows and launches are matched by it.
        **json_values(launch.place),
        "grid": launch.grid,
        "num_warps": launch.kernel.num_warps,
        "record_cost_cycles": cost and cost.cycles,
        "record_cost_error_cycles": cost and cost.error_cycles,
    }
