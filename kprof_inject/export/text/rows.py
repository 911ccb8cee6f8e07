"""Rows of text from columns: many lines of one form, without a loop over them.

A chunk of rows is one array of bytes. A field has the same place in all rows, as wide as its longest text; what a row
does not need of it is 0, and is taken out at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kprof_inject.export.text.digits import number_width, thousandths_width, write_numbers, write_thousandths

# The array of so many rows stays in the processor's cache from the first field to the last.
_CHUNK_ROWS = 1 << 11

_Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Form:
    """How numbers are written: how many bytes a column of them takes, and what fills these bytes in each row."""

    width: Callable[[NDArray[np.int64]], int]
    write: Callable[[_Bytes, int, int, NDArray[np.int64]], None]


WHOLE = Form(number_width, write_numbers)
THOUSANDTHS = Form(thousandths_width, write_thousandths)
"""For numbers that are not negative."""


@dataclass(frozen=True, slots=True)
class Same:
    """A text that is the same in all rows of a kind: ``texts[kind]``, without zero bytes."""

    texts: Sequence[bytes]

    def width(self) -> int:
        return max(map(len, self.texts), default=0)

    def form(self, width: int) -> _Bytes:
        padded = b"".join(text.ljust(width, b"\0") for text in self.texts)
        return np.frombuffer(padded, np.uint8).reshape(len(self.texts), width)

    def write(self, rows: _Bytes, at: int, width: int, part: slice) -> None:
        """Nothing: it is in the form."""


@dataclass(frozen=True, slots=True)
class Column:
    """A number in each row, behind a ``label``; both only in rows that are ``shown`` (None: in all)."""

    label: bytes
    values: NDArray[np.int64]
    number: Form = WHOLE
    shown: NDArray[np.bool_] | None = None

    def width(self) -> int:
        return len(self.label) + self.number.width(self.values)

    def form(self, width: int) -> _Bytes:
        return np.frombuffer(self.label.ljust(width, b"\0"), np.uint8).reshape(1, width)

    def write(self, rows: _Bytes, at: int, width: int, part: slice) -> None:
        """Write this part of the column into the columns from ``at`` on, where the form already is."""
        label = len(self.label)
        self.number.write(rows, at + label, width - label, self.values[part])
        if self.shown is not None:
            rows[~self.shown[part], at : at + width] = 0


Field = Same | Column


def text_rows(fields: Sequence[Field], kind: NDArray[np.int64]) -> Iterator[bytes]:
    """These fields one after the other, in as many rows as ``kind`` has, in chunks. ``kind`` is the kind of each row; a
    ``Same`` has a text for each kind, or one for all."""
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
