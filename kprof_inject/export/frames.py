"""Tables of scopes for pandas, and for all that read Apache Arrow: Polars, DuckDB and others.

A row for each scope that ran; ``scope_rows`` has the columns. All of it is in memory at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kprof_inject.errors import KprofError
from kprof_inject.export.tables.arrow import arrow_batches, arrow_schema
from kprof_inject.export.tables.optional import optional_module
from kprof_inject.export.tables.scope_rows import COLUMN_TYPES, ScopeRows, scope_rows
from kprof_inject.timeline.timeline import Timeline

if TYPE_CHECKING:
    import pandas
    import pyarrow


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
