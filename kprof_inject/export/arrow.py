"""Tables of scopes for pandas, and for all that read Apache Arrow: Polars, DuckDB and others.

They have a row for each scope that ran, and the columns of ``scope_rows``. All of it is in memory at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kprof_inject.errors import KprofError
from kprof_inject.export.scope_rows import COLUMN_TYPES, ScopeRows, scope_rows
from kprof_inject.timeline.timeline import Timeline

if TYPE_CHECKING:
    import pandas
    import pyarrow


def optional_module(name: str, package: str) -> Any:
    """The module. Raises ``KprofError`` if the ``package`` that it comes with is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise KprofError(f"this needs {package}, which is not installed", hint=f"pip install {package}") from None


def arrow_schema(rows: ScopeRows) -> Any:
    """The ``pyarrow.Schema`` of the rows: whole numbers, and dictionaries for texts."""
    arrow = optional_module("pyarrow", "pyarrow")
    numbers = {name: arrow.from_numpy_dtype(kind) for name, kind in COLUMN_TYPES.items()}
    texts = {name: arrow.dictionary(numbers[name], arrow.string()) for name in rows.texts}
    return arrow.schema((numbers | texts).items())


def arrow_batches(rows: ScopeRows) -> Iterator[Any]:
    """The rows as ``pyarrow.RecordBatch`` of that schema; all of them share the dictionaries."""
    arrow = optional_module("pyarrow", "pyarrow")
    schema = arrow_schema(rows)
    dictionaries = {name: arrow.array(texts, arrow.string()) for name, texts in rows.texts.items()}
    for part in rows.parts():
        yield arrow.record_batch(
            [
                arrow.DictionaryArray.from_arrays(part[name], dictionaries[name])
                if name in dictionaries
                else arrow.array(part[name])
                for name in COLUMN_TYPES
            ],
            schema=schema,
        )


def to_arrow(timelines: Sequence[Timeline]) -> pyarrow.Table:
    """All scopes of these launches; texts are dictionaries. Raises ``KprofError`` without pyarrow, and for a timeline
    that is in no list."""
    rows = _rows_of(timelines)
    arrow = optional_module("pyarrow", "pyarrow")
    return arrow.Table.from_batches(arrow_batches(rows), arrow_schema(rows))


def to_pandas(timelines: Sequence[Timeline]) -> pandas.DataFrame:
    """All scopes of these launches; texts are categories. Raises ``KprofError`` without pandas, and for a timeline that
    is in no list. It needs no pyarrow."""
    pandas = optional_module("pandas", "pandas")
    rows = _rows_of(timelines)
    parts = list(rows.parts())
    columns = {
        name: np.concatenate([np.empty(0, kind), *(part[name] for part in parts)])
        for name, kind in COLUMN_TYPES.items()
    }
    categories = {
        name: pandas.Categorical.from_codes(columns[name], categories=texts) for name, texts in rows.texts.items()
    }
    return pandas.DataFrame(columns | categories)


def _rows_of(timelines: Sequence[Timeline]) -> ScopeRows:
    if isinstance(timelines, Timeline):
        raise KprofError("this takes a list of timelines, and got a single one", hint="write [timeline]")
    return scope_rows(timelines)
