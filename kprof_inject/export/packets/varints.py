"""Columns of byte strings, for writers of many messages of one form at once: varints, numbers, texts.

Varints are those of protobuf: seven bits a byte, the lowest first, the top bit on all but the last
(https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD_BITS = 56
_DECIMAL_DIGITS = 20

# What moves the groups of 28, 14 and 7 bits of a word apart: which stay, which move, by how many bits.
_SPREADS = [
    tuple(np.uint64(part) for part in spread)
    for spread in (
        (0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4),
        (0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2),
        (0x007F007F007F007F, 0x3F803F803F803F80, 1),
    )
]


@dataclass(frozen=True, slots=True)
class ByteColumn:
    """A byte string for each row: the first ``lengths`` bytes of its item. A column of one row stands for all rows."""

    items: NDArray[np.void]
    lengths: NDArray[np.int64]

    def only(self, rows: NDArray[np.bool_]) -> ByteColumn:
        """The same with nothing in all other rows."""
        return ByteColumn(self.items, np.where(rows, self.lengths, 0))

    def at(self, rows: NDArray[np.int64]) -> ByteColumn:
        """The strings of these rows."""
        return ByteColumn(self.items.take(rows), self.lengths.take(rows))


def strings(values: Sequence[bytes]) -> ByteColumn:
    """One of these in each row."""
    width = max((len(value) for value in values), default=0) or 1
    items = np.frombuffer(b"".join(value.ljust(width, b"\0") for value in values), dtype=f"V{width}")
    return ByteColumn(items, np.array([len(value) for value in values], dtype=np.int64))


def constant(value: bytes) -> ByteColumn:
    """The same in every row."""
    return strings([value])


def decimals(values: NDArray[np.int64]) -> ByteColumn:
    """Whole numbers as decimal text."""
    text = values.astype(f"S{_DECIMAL_DIGITS}")
    return ByteColumn(text.view(f"V{_DECIMAL_DIGITS}"), np.char.str_len(text).astype(np.int64))


def fixed64(values: NDArray[np.int64]) -> ByteColumn:
    """Whole numbers in eight bytes, the lowest first."""
    return _column(values.astype("<u8"), np.full(len(values), 8, dtype=np.int64))


def varints(values: NDArray[np.int64]) -> ByteColumn:
    """Whole numbers as varints of the fewest bytes, a negative one in ten as protobuf has its ``int64``."""
    words = values.astype(np.uint64)
    bits = int(words.max(initial=0)).bit_length()
    lengths = np.ones(len(words), dtype=np.int64)
    for more in range(7, bits, 7):
        lengths += words >= np.uint64(1 << more)
    if bits <= _WORD_BITS:
        return _column(_spread(words, bits) | _CONTINUES[lengths, 0], lengths)
    low, high = words & np.uint64((1 << _WORD_BITS) - 1), words >> np.uint64(_WORD_BITS)
    pairs = np.stack((_spread(low, _WORD_BITS), _spread(high, 64 - _WORD_BITS)), axis=1)
    return _column(pairs | _CONTINUES[lengths], lengths)


def _spread(words: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    """Seven bits in each byte. No word has more than ``bits``."""
    for (stays, moves, by), needed in zip(_SPREADS, (28, 14, 7), strict=True):
        if bits > needed:
            words = words & stays | (words & moves) << by
    return words


def _column(words: NDArray[Any], lengths: NDArray[np.int64]) -> ByteColumn:
    """A column of items of one or more little-endian words each."""
    data = np.ascontiguousarray(words, dtype="<u8")
    width = 8 * (data.shape[1] if data.ndim > 1 else 1)
    return ByteColumn(data.reshape(-1).view(f"V{width}"), lengths)


def _continues() -> NDArray[np.uint64]:
    """By length: the top bits of all bytes of a varint but its last, in two words."""
    table = [[0x80 if byte < length - 1 else 0 for byte in range(16)] for length in range(11)]
    return np.array(table, dtype=np.uint8).view("<u8").astype(np.uint64)


_CONTINUES = _continues()
