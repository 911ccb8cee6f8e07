"""Columns of byte strings and of protobuf fields, for writers of many messages of one form at once.

A field is its key (number and wire type) and its value; a message within a message is its length and its fields.
Varints have seven bits a byte, the lowest first, the top bit on all but the last
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.timeline.columns import Mask, Numbers, Reals, Rows

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_LENGTHS_STEP = 64
_DECIMAL_DIGITS = 20


class ByteColumn(Struct, frozen=True):
    """A byte string for each row: the first ``lengths`` bytes of its item. A single row applies to all rows."""

    items: Rows
    lengths: Numbers

    def only(self, rows: Mask) -> ByteColumn:
        """Return the column with empty strings in all other rows."""
        return ByteColumn(self.items, np.where(rows, self.lengths, 0))

    def at(self, rows: Numbers) -> ByteColumn:
        """Return the strings of these rows."""
        return ByteColumn(self.items.take(rows), self.lengths.take(rows))


def strings(values: Sequence[bytes]) -> ByteColumn:
    """Return a column of these strings."""
    width = max((len(value) for value in values), default=0) or 1
    items = np.frombuffer(b"".join(value.ljust(width, b"\0") for value in values), dtype=f"V{width}")
    return ByteColumn(items, np.array([len(value) for value in values], dtype=np.int64))


@lru_cache
def constant(value: bytes) -> ByteColumn:
    """Return a column with the same string in every row."""
    return strings([value])


def decimals(values: Numbers) -> ByteColumn:
    """Return integers as decimal text."""
    text = values.astype(f"S{_DECIMAL_DIGITS}")
    return ByteColumn(text.view(f"V{_DECIMAL_DIGITS}"), np.char.str_len(text).astype(np.int64))


def fixed64(values: Numbers) -> ByteColumn:
    """Return integers as eight bytes, little-endian."""
    return ByteColumn(values.astype("<u8").view("V8"), np.full(len(values), 8, dtype=np.int64))


def doubles(values: Reals) -> ByteColumn:
    """Return floating-point numbers as eight bytes."""
    return fixed64(values.astype("<f8").view("<i8"))


def varints(values: Numbers) -> ByteColumn:
    """Return integers as varints of the minimum length; a negative one takes ten bytes, as protobuf's ``int64``."""
    words = values.astype(np.uint64)
    count = max(-(-int(words.max(initial=0)).bit_length() // 7), 1)
    data = np.empty((len(words), count), dtype=np.uint8)
    lengths = np.ones(len(words), dtype=np.int64)
    for place in range(count):
        rest = words >> np.uint64(7 * place)
        goes_on = rest > 0x7F
        data[:, place] = rest.astype(np.uint8) & 0x7F | goes_on.view(np.uint8) << 7
        lengths += goes_on
    return ByteColumn(data.reshape(-1).view(f"V{count}"), lengths)


def varint(value: int) -> bytes:
    """Return one integer as a varint; a negative one as protobuf's ``int64``."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """Return one field: a varint, a double, or a text, message or other string of bytes."""
    if isinstance(value, int):
        return varint(number << 3 | _VARINT) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | _FIXED64) + struct.pack("<d", value)
    data = value.encode(errors="replace") if isinstance(value, str) else value
    return varint(number << 3 | _BYTES) + varint(len(data)) + data


def varint_key(number: int) -> bytes:
    """Return the key of a field with a varint."""
    return varint(number << 3 | _VARINT)


def fixed64_key(number: int) -> bytes:
    """Return the key of a field with eight bytes."""
    return varint(number << 3 | _FIXED64)


def varint_fields(number: int, values: Numbers) -> list[ByteColumn]:
    """Return the columns of a field with a varint in each row."""
    return [constant(varint_key(number)), varints(values)]


def message_fields(number: int, columns: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """Return the columns of a field with a message, or a text: ``first`` in each row, then these columns."""
    lengths: Numbers = sum((column.lengths for column in columns), start=np.zeros(1, dtype=np.int64))
    longest = int(lengths.max(initial=0)) | _LENGTHS_STEP - 1
    return [_message_heads(number, first, longest).at(lengths), *columns]


@lru_cache
def _message_heads(number: int, first: bytes, longest: int) -> ByteColumn:
    key = varint(number << 3 | _BYTES)
    return strings([key + varint(len(first) + rest) + first for rest in range(longest + 1)])


def concatenated(columns: Sequence[ByteColumn], count: int) -> bytes:
    """Return ``count`` rows, each with the strings of all columns."""
    return merged([(columns, np.arange(count, dtype=np.int64))])


def merged(parts: Sequence[tuple[Sequence[ByteColumn], Numbers]]) -> bytes:
    """Return the rows of all parts, each with the strings of all its columns, by their positions: 0, 1, 2..."""
    lengths = np.zeros(sum(len(places) for _, places in parts), dtype=np.int64)
    for columns, places in parts:
        lengths[places] = sum(column.lengths for column in columns)
    longest = int(lengths.max(initial=0))
    # Whole items are written, and the next one overwrites the bytes after a string; the last item needs room for these.
    stride = longest + max(column.items.itemsize for columns, _ in parts for column in columns)
    data = np.empty(len(lengths) * stride, dtype=np.uint8)
    for columns, places in parts:
        ends = places * stride
        for column in columns:
            # A view of all runs of as many bytes as an item has, indexed by their first byte.
            width = column.items.itemsize
            runs: NDArray[Any] = np.ndarray((max(len(data) - width + 1, 0),), f"V{width}", data, strides=(1,))
            runs[ends] = column.items
            ends += column.lengths
    narrow = np.min_scalar_type(longest)
    is_used = np.arange(longest, dtype=narrow) < lengths.astype(narrow)[:, None]
    return data.reshape(-1, stride)[:, :longest][is_used].tobytes()
