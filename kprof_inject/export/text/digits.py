"""Whole numbers as decimal text, by column: four digits at a time, from tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_DIGITS = 4
_GROUP = 10**_DIGITS
# Where the table has the ways to write four digits: all of them; a number's first ones, without leading zeros; and the
# same of a number that has no more, where 0 is a zero.
_FIRST, _ONLY = _GROUP, 2 * _GROUP


def _groups() -> NDArray[np.uint32]:
    digits = np.array([list(f"{value:0{_DIGITS}}".encode()) for value in range(_GROUP)], dtype=np.uint8)
    first = np.where(np.logical_and.accumulate(digits == ord("0"), axis=1), 0, digits).astype(np.uint8)
    only = first.copy()
    only[0, -1] = ord("0")
    return np.concatenate((digits, first, only)).view(np.uint32).reshape(-1)


_GROUPS = _groups()
_THOUSANDTHS = np.frombuffer("".join(f".{value:03}" for value in range(1000)).encode(), dtype=np.uint32)


def number_width(values: NDArray[np.int64]) -> int:
    """How many bytes ``write_numbers`` needs for any of these."""
    smallest, largest = int(values.min(initial=0)), int(values.max(initial=0))
    groups = -(-len(str(max(largest, -smallest))) // _DIGITS)
    return groups * _DIGITS + (smallest < 0)


def write_numbers(rows: NDArray[np.uint8], at: int, width: int, values: NDArray[np.int64]) -> None:
    """Write each number into its row of bytes, from column ``at``; of the ``width``, what it does not need becomes 0.
    There is a row, and the array is contiguous."""
    if width % _DIGITS:
        rows[:, at] = np.where(values < 0, ord("-"), 0)
        values = np.abs(values)
        at += 1
    way = _ONLY
    for column in range(at + width - width % _DIGITS - _DIGITS, at, -_DIGITS):
        more = values // _GROUP
        group = values - more * _GROUP
        group += (more == 0) * way
        _four_bytes(rows, column)[:] = _GROUPS[group]
        values, way = more, _FIRST
    # No more digits stand before these.
    _four_bytes(rows, at)[:] = _GROUPS[values + way]


def thousandths_width(values: NDArray[np.int64]) -> int:
    """How many bytes ``write_thousandths`` needs for any of these."""
    return number_width(values // 1000) + _DIGITS


def write_thousandths(rows: NDArray[np.uint8], at: int, width: int, values: NDArray[np.int64]) -> None:
    """As ``write_numbers``, a thousandth of each, with exactly three decimals. No value is negative."""
    whole = values // 1000
    write_numbers(rows, at, width - _DIGITS, whole)
    _four_bytes(rows, at + width - _DIGITS)[:] = _THOUSANDTHS[values - whole * 1000]


def _four_bytes(rows: NDArray[np.uint8], column: int) -> NDArray[np.uint32]:
    """The four bytes from a column on, of each row as one."""
    return np.ndarray(len(rows), np.uint32, rows, column, rows.strides[:1])
