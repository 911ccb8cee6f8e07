"""Rows of bytes: columns put side by side, and rows put one behind the other in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.packets.varints import ByteColumn


@dataclass(frozen=True, slots=True)
class Rows:
    """A byte string for each row, every ``stride`` bytes of ``data``, ``lengths`` long."""

    data: NDArray[np.uint8]
    stride: int
    lengths: NDArray[np.int64]


def side_by_side(columns: Sequence[ByteColumn], count: int) -> Rows:
    """``count`` rows, each of which has the strings of all columns one behind the other."""
    # An item is written whole, and what is behind its string is overwritten by the next: the last needs room for that.
    room = max(column.items.itemsize for column in columns)
    stride = sum(int(column.lengths.max(initial=0)) for column in columns) + room
    data = np.empty(count * stride, dtype=np.uint8)
    begins = np.arange(count, dtype=np.int64) * stride
    ends = begins.copy()
    for column in columns:
        _at_any_byte(data, column.items.itemsize)[ends] = column.items
        ends += column.lengths
    return Rows(data, stride, ends - begins)


def one_behind_the_other(rows: Rows) -> bytes:
    """All rows in their order."""
    return merged([(rows, np.arange(len(rows.lengths)))])


def merged(parts: Sequence[tuple[Rows, NDArray[np.int64]]]) -> bytes:
    """Rows with the place that each has among those of all parts: 0, 1, 2..."""
    lengths = np.zeros(sum(len(places) for _, places in parts), dtype=np.int64)
    for rows, places in parts:
        lengths[places] = rows.lengths
    ends = np.cumsum(lengths)
    data = np.empty(int(lengths.sum()), dtype=np.uint8)
    for rows, places in parts:
        _copy(rows, data, (ends - lengths)[places])
    return data.tobytes()


def _copy(rows: Rows, data: NDArray[np.uint8], begins: NDArray[np.int64]) -> None:
    """Put each row where it begins: all of one length at once."""
    for length, which in _by_length(rows.lengths):
        _at_any_byte(data, length)[begins[which]] = _at_any_byte(rows.data, length)[which * rows.stride]


def _by_length(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each length but 0, with the rows that have it. Their number is small, as rows are alike."""
    # numpy sorts 16 bits and fewer by counting.
    order = np.argsort(lengths.astype(np.min_scalar_type(int(lengths.max(initial=0)))), kind="stable")
    found, first = np.unique(lengths[order], return_index=True)
    for length, which in zip(found.tolist(), np.split(order, first[1:]), strict=False):
        if length:
            yield length, which


def _at_any_byte(data: NDArray[np.uint8], width: int) -> NDArray[Any]:
    """All runs of ``width`` bytes, by the byte where they begin."""
    return np.ndarray((max(len(data) - width + 1, 0),), dtype=f"V{width}", buffer=data, strides=(1,))
