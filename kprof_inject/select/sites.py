"""A site: one place in a module that a selector found and that a scope can bracket."""

from __future__ import annotations

from dataclasses import dataclass

from kprof_inject.ttgir.locations import SourcePoint


@dataclass(frozen=True, slots=True)
class InsertPoint:
    """Where a record's line goes: before the line that begins at ``offset``, behind ``indent``."""

    offset: int
    indent: str


@dataclass(frozen=True, slots=True)
class Site:
    """One place to bracket.

    ``kind`` is the selector's word (``func``, ``loop``, ``iter``), ``label`` names the place within its
    function (``loop[0.1]``). One of ``ends`` is passed on each way out. ``fills_block`` says that the scope spans
    its whole block, so that it encloses every other scope that begins or ends at the same place.
    ``source`` is the line that the code was written on; ``called_from`` the calls that inlined it, innermost first.
    """

    kind: str
    label: str
    function: str
    start: InsertPoint
    ends: tuple[InsertPoint, ...]
    fills_block: bool
    source: SourcePoint | None
    called_from: tuple[SourcePoint, ...]

    @property
    def last_end_offset(self) -> int:
        return max(end.offset for end in self.ends)
