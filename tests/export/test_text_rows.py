"""Rows of text, against joining them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.export import text_rows as module
from kprof_inject.export.text_rows import THOUSANDTHS, Field, NumberField, TextField, text_rows

Row = tuple[int, int, bool, int]
"""A kind, a number, whether it is shown, and thousandths."""

ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(-(10**6), 10**13), st.booleans(), st.integers(0, 10**7)))
TEXTS = [b"", b"one", "größer".encode()]


def joined(row: Row) -> bytes:
    kind, number, is_shown, thousandths = row
    shown = b" n=%d" % number if is_shown else b""
    return b"<%b%b|%d.%03d>\n" % (TEXTS[kind], shown, thousandths // 1000, thousandths % 1000)


@given(ROWS, st.sampled_from([1, 3, 1 << 11]))
def test_a_row_is_its_fields_one_after_the_other(rows: list[Row], chunk_rows: int) -> None:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    fields: list[Field] = [
        TextField([b"<"]),
        TextField(TEXTS),
        NumberField(b" n=", columns[1], shown=columns[2] > 0),
        NumberField(b"|", columns[3], THOUSANDTHS),
        TextField([b">\n"]),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_ROWS", chunk_rows)
        chunks = list(text_rows(fields, columns[0]))
    assert b"".join(chunks) == b"".join(map(joined, rows))
    assert len(chunks) == -(-len(rows) // chunk_rows)


def test_chunks_are_made_as_they_are_asked_for() -> None:
    numbers = np.arange(1 << 20)
    first = next(text_rows([NumberField(b" ", numbers)], np.zeros_like(numbers)))
    assert first.startswith(b" 0 1 2 3") and len(first) < 20_000
