"""Rows of text from columns: many lines of one form, without a loop over them.

A chunk of rows is one array of bytes. A field has the same place in all rows, as wide as its longest text; unused bytes
are 0, and are removed at the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.errors import printable

# Arrays of this size stay in the processor's cache from the first field to the last.
_CHUNK_ROWS = 1 << 11

_Bytes = NDArray[np.uint8]

# Integers are written four digits at a time, from tables.
_DIGITS = 4
_GROUP = 10**_DIGITS
# Offsets in the table of four digits: all digits; a number's first digits, without leading zeros; and a number's only
# digits, where 0 is written as a zero.
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
    """Return the number of bytes that ``write_numbers`` needs for any of these."""
    smallest, largest = int(values.min(initial=0)), int(values.max(initial=0))
    groups = -(-len(str(max(largest, -smallest))) // _DIGITS)
    return groups * _DIGITS + (smallest < 0)


def write_numbers(rows: NDArray[np.uint8], at: int, width: int, values: NDArray[np.int64]) -> None:
    """Write each number into its row of bytes, from column ``at``; unused bytes of the ``width`` become 0.

    There is at least one row, and the array is contiguous.
    """
    if width % _DIGITS:
        rows[:, at] = np.where(values < 0, ord("-"), 0)
        values = np.abs(values)
        at += 1
    digits_offset = _ONLY
    for column in range(at + width - width % _DIGITS - _DIGITS, at, -_DIGITS):
        more = values // _GROUP
        group = values - more * _GROUP
        group += (more == 0) * digits_offset
        _four_bytes(rows, column)[:] = _GROUPS[group]
        values, digits_offset = more, _FIRST
    # These are the first digits.
    _four_bytes(rows, at)[:] = _GROUPS[values + digits_offset]


def thousandths_width(values: NDArray[np.int64]) -> int:
    """Return the number of bytes that ``write_thousandths`` needs for any of these."""
    return number_width(values // 1000) + _DIGITS


def write_thousandths(rows: NDArray[np.uint8], at: int, width: int, values: NDArray[np.int64]) -> None:
    """Write a thousandth of each number, as ``write_numbers`` does, with exactly three decimals; none is negative."""
    whole = values // 1000
    write_numbers(rows, at, width - _DIGITS, whole)
    _four_bytes(rows, at + width - _DIGITS)[:] = _THOUSANDTHS[values - whole * 1000]


def _four_bytes(rows: NDArray[np.uint8], column: int) -> NDArray[np.uint32]:
    """Return a view of four bytes of each row, from a column on, as one number."""
    return np.ndarray(len(rows), np.uint32, rows, column, rows.strides[:1])


def json_text(value: Any) -> bytes:
    """Return a value as JSON that Perfetto's tokenizer reads back.

    It only decodes escapes in strings with a quote, and a string that ends in a backslash fails the whole load. So
    quotes are the only characters that are escaped.
    """
    return json.dumps(_readable(value), separators=(",", ":"), ensure_ascii=False).encode()


def json_inside(text: str) -> bytes:
    """Return a text as it is written between the quotes of a JSON string."""
    return json_text(text)[1:-1]


def _readable(value: Any) -> Any:
    match value:
        case str():
            return printable(value).replace("\\", "/")
        case dict():
            return {key: _readable(item) for key, item in value.items()}
        case list():
            return [_readable(item) for item in value]
    return value


class Form(Struct, frozen=True):
    """A way to write numbers: the bytes that a column of them needs, and a function that fills them in each row."""

    width: Callable[[NDArray[np.int64]], int]
    write: Callable[[_Bytes, int, int, NDArray[np.int64]], None]


WHOLE = Form(number_width, write_numbers)
THOUSANDTHS = Form(thousandths_width, write_thousandths)
"""For numbers that are not negative."""


class TextField(Struct, frozen=True):
    """A text that depends on the row's kind: ``texts[kind]``, without zero bytes.

    It is written in rows that are ``shown`` (None: in all).
    """

    texts: Sequence[bytes]
    shown: NDArray[np.bool_] | None = None

    def width(self) -> int:
        """Return the bytes that the field needs in each row."""
        return max(map(len, self.texts), default=0)

    def form(self, width: int) -> _Bytes:
        """Return the initial bytes of the field, for each kind of row."""
        padded = b"".join(text.ljust(width, b"\0") for text in self.texts)
        return np.frombuffer(padded, np.uint8).reshape(len(self.texts), width)

    def write(self, rows: _Bytes, at: int, width: int, part: slice) -> None:
        """Remove the text, which the form contains, from rows where it is not shown."""
        if self.shown is not None:
            rows[~self.shown[part], at : at + width] = 0


class NumberField(Struct, frozen=True):
    """A number in each row, after a ``label``; both only in rows that are ``shown`` (None: in all)."""

    label: bytes
    values: NDArray[np.int64]
    number: Form = WHOLE
    shown: NDArray[np.bool_] | None = None

    def width(self) -> int:
        """Return the bytes that the field needs in each row."""
        return len(self.label) + self.number.width(self.values)

    def form(self, width: int) -> _Bytes:
        """Return the initial bytes of the field, for all rows."""
        return np.frombuffer(self.label.ljust(width, b"\0"), np.uint8).reshape(1, width)

    def write(self, rows: _Bytes, at: int, width: int, part: slice) -> None:
        """Write a part of the column's rows from byte ``at`` on, where the form already is."""
        label = len(self.label)
        self.number.write(rows, at + label, width - label, self.values[part])
        if self.shown is not None:
            rows[~self.shown[part], at : at + width] = 0


class PickedField(Struct, frozen=True):
    """Text in each row, picked by ``index``, after a ``label``; both only in rows that are ``shown``.

    ``shown`` None means all rows. No text has zero bytes.
    """

    label: bytes
    texts: Sequence[bytes]
    index: NDArray[np.int64]
    shown: NDArray[np.bool_] | None = None

    def width(self) -> int:
        """Return the bytes that the field needs in each row."""
        return len(self.label) + max(map(len, self.texts), default=0)

    def form(self, width: int) -> _Bytes:
        """Return the initial bytes of the field, for all rows."""
        return np.frombuffer(self.label.ljust(width, b"\0"), np.uint8).reshape(1, width)

    def write(self, rows: _Bytes, at: int, width: int, part: slice) -> None:
        """Write a part of the column's rows from byte ``at`` on, where the form already is."""
        label = len(self.label)
        texts = b"".join(self.texts[number].ljust(width - label, b"\0") for number in self.index[part].tolist())
        rows[:, at + label : at + width] = np.frombuffer(texts, np.uint8).reshape(len(rows), width - label)
        if self.shown is not None:
            rows[~self.shown[part], at : at + width] = 0


Field = TextField | NumberField | PickedField


def text_rows(fields: Sequence[Field], kind: NDArray[np.int64]) -> Iterator[bytes]:
    """Yield rows with these fields in sequence, in chunks; ``kind`` has the kind of each row.

    A ``TextField`` has a text for each kind, or one for all.
    """
    ends = np.cumsum([field.width() for field in fields]).tolist()
    places = list(zip(fields, pairwise([0, *ends]), strict=True))
    texts = [field.form(end - at) for field, (at, end) in places]
    kinds = max(len(text) for text in texts)
    forms = np.hstack([np.broadcast_to(text, (kinds, text.shape[1])) for text in texts])
    for first in range(0, len(kind), _CHUNK_ROWS):
        part = slice(first, first + _CHUNK_ROWS)
        rows = forms[kind[part]]
        for field, (at, end) in places:
            field.write(rows, at, end - at, part)
        yield rows.tobytes().translate(None, b"\0")
