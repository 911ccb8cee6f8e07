"""Interned strings of a Perfetto trace: each is written once, with a number that stands for it from then on, until the
state of their sequence is cleared."""

from __future__ import annotations

from enum import IntEnum

from kprof_inject.export.packets.fields import field

_IID, _TEXT = 1, 2


class Table(IntEnum):
    """What a string is used for. The values are the fields of ``InternedData``."""

    CATEGORIES = 1
    NAMES = 2
    ARG_NAMES = 3
    ARG_TEXTS = 29


class Interned:
    """The strings so far, of what shares their numbers."""

    def __init__(self) -> None:
        self._iids: dict[Table, dict[str, int]] = {table: {} for table in Table}
        self._unwritten = bytearray()

    def iid(self, table: Table, text: str) -> int:
        """The number of a string, from 1 up."""
        iids = self._iids[table]
        if text not in iids:
            iids[text] = len(iids) + 1
            self._unwritten += field(table, field(_IID, iids[text]) + field(_TEXT, text))
        return iids[text]

    def take_unwritten(self) -> bytes:
        """``InternedData`` of the strings that are new since this was last called; empty if there are none."""
        unwritten = bytes(self._unwritten)
        self._unwritten.clear()
        return unwritten
