"""Protobuf fields: single ones as bytes, and columns of them.

A field is its key, number and wire type, and its value; a message within a message is its length and its fields
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.packets.varints import ByteColumn, constant, strings, varints

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_LENGTHS_STEP = 64


def varint(value: int) -> bytes:
    """One number; a negative one as protobuf has its ``int64``."""
    value &= (1 << 64) - 1
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def field(number: int, value: int | float | str | bytes) -> bytes:
    """One field: a varint, a double, or a text, message or other string of bytes."""
    match value:
        case int():
            return varint_key(number) + varint(value)
        case float():
            return varint(number << 3 | _FIXED64) + struct.pack("<d", value)
        case str():
            return field(number, value.encode(errors="replace"))
        case bytes():
            return varint(number << 3 | _BYTES) + varint(len(value)) + value


def varint_key(number: int) -> bytes:
    return varint(number << 3 | _VARINT)


def fixed64_key(number: int) -> bytes:
    return varint(number << 3 | _FIXED64)


def varint_fields(number: int, values: NDArray[np.int64]) -> list[ByteColumn]:
    """A field with a varint in each row."""
    return [constant(varint_key(number)), varints(values)]


def message_fields(number: int, columns: Sequence[ByteColumn], first: bytes = b"") -> list[ByteColumn]:
    """A field with a message, or a text, in each row: what is ``first`` in all, and then what the columns hold."""
    lengths = np.zeros(1, dtype=np.int64)
    for column in columns:
        lengths = lengths + column.lengths
    longest = int(lengths.max(initial=0)) | _LENGTHS_STEP - 1
    return [_message_heads(number, first, longest).at(lengths), *columns]


@lru_cache
def _message_heads(number: int, first: bytes, longest: int) -> ByteColumn:
    """The key and length of a message and what is first in it, by the length of the rest."""
    key = varint(number << 3 | _BYTES)
    return strings([key + varint(len(first) + rest) + first for rest in range(longest + 1)])
