"""Tables of scopes as Apache Arrow has them. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kprof_inject.export.tables.optional import optional_module
from kprof_inject.export.tables.scope_rows import COLUMN_TYPES, ScopeRows


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
