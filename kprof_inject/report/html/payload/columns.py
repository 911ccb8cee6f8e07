"""Columns of whole numbers as bytes that compress well; ``assets/codec.js`` reads them.

A table is its number of rows (u32) and then its columns. A column is one byte and then some planes of a byte for each
row, the lowest byte of all values first: high bytes that hardly change stand together and take next to no room. The
byte before them says how many planes there are, with the bit 0x80 if values are zigzag coded (0, -1, 1, -2 ...), for
some are negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kprof_inject.errors import KprofError

Column = NDArray[np.integer]

_ZIGZAG = 0x80
# What a double holds exactly, as JavaScript's numbers are.
_EXACT = 1 << 53


def table_bytes(columns: Sequence[Column]) -> Iterator[bytes]:
    """One table. All columns have the same number of rows. Raises ``KprofError`` for a number beyond ±2 ** 52."""
    rows = len(columns[0])
    yield rows.to_bytes(4, "little")
    for column in columns:
        yield from _column_bytes(column.astype(np.int64, copy=False), rows)


def differences(column: Column, first: int = 0) -> NDArray[np.int64]:
    """Each value less the one before it."""
    values = column.astype(np.int64)
    steps = values.copy()
    steps[1:] -= values[:-1]
    steps[:1] -= first
    return steps


def differences_by_kind(column: Column, kind: Column) -> NDArray[np.int64]:
    """Each value less the one before it in a row of the same ``kind``; the first of a kind less 0."""
    order = np.argsort(kind, kind="stable")
    sorted_kind, values = kind[order], column[order].astype(np.int64)
    follows = np.flatnonzero(sorted_kind[1:] == sorted_kind[:-1]) + 1
    steps = values.copy()
    steps[follows] -= values[follows - 1]
    result = np.empty_like(steps)
    result[order] = steps
    return result


def _column_bytes(values: NDArray[np.int64], rows: int) -> Iterator[bytes]:
    is_signed = bool(values.min(initial=0) < 0)
    if is_signed:
        values = (values << 1) ^ (values >> 63)
    largest = int(values.max(initial=0))
    if largest >= _EXACT:
        raise KprofError(
            f"a time of {largest} ns does not fit into a page", hint="write a trace instead: kprof-inject trace"
        )
    planes = -(-largest.bit_length() // 8)
    yield bytes([planes | _ZIGZAG if is_signed else planes])
    lowest_first = np.ascontiguousarray(values, dtype="<i8").view(np.uint8).reshape(rows, 8)
    for plane in range(planes):
        yield np.ascontiguousarray(lowest_first[:, plane]).tobytes()
