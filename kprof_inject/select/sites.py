"""Sites: places in a module that a selector found and that a scope can bracket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.nodes import Operation


class InsertPoint(Struct, frozen=True):
    """The place of a record: at ``offset``, between ``indent`` and ``after``.

    The record gets a line of its own. Where several operations share a line, it goes between them, and ``indent`` or
    ``after`` is the blank that separates them.
    """

    offset: int
    indent: str
    after: str


@dataclass(frozen=True, slots=True)
class Site:
    """A place to bracket."""

    kind: str  # a ScopeKind
    label: str  # the name of the place within its function: loop[0.1]
    function: str
    start: InsertPoint
    ends: tuple[InsertPoint, ...]  # each way out of the bracketed code passes one of them
    fills_block: bool  # spans its whole block, so that it encloses every other site that begins or ends there
    source: SourcePoint | None  # the line that the code was written on
    called_from: Chain  # the calls that inlined it, innermost first
    block: str  # the kind of block that holds it (see block_kind)
    operations: int  # the number of operations it spans that the selector meant
    other_operations: int = 0  # the number of other operations between them
    # For an iteration that the next one's start ends: the point after the loop, where the last iteration ends. There
    # are no records at the ends then, and the text at these offsets runs between it and the next iteration.
    exit: InsertPoint | None = None
    between: tuple[int, int] = (0, 0)
    name: str = field(default="", compare=False)  # the user's name for it, if the source has one

    @property
    def end_records(self) -> tuple[InsertPoint, ...]:
        """The places of its end records."""
        return self.ends if self.exit is None else (self.exit,)

    @property
    def last_end_offset(self) -> int:
        """The offset of the last of its ends."""
        return max(end.offset for end in self.ends)


class Missed(Struct, frozen=True):
    """An operation that a selector found and that none of its sites spans, with the reason."""

    operation: Operation
    reason: str


class Dropped(Struct, frozen=True):
    """A marker without any code left in the module: its name and place, and the kind of code that was removed."""

    marker: str
    what: str

    def __str__(self) -> str:
        return f"the compiler removed every {self.what} of marker {self.marker}"


class Found(Struct, frozen=True):
    """The result of one selector: sites in the order of the text, and the operations they leave out."""

    sites: tuple[Site, ...] = ()
    missed: tuple[Missed, ...] = ()
    covered: frozenset[int] = frozenset()  # the offsets of the operations that it found and that its sites span
    dropped: tuple[Dropped, ...] = ()

    @classmethod
    def first_of(cls, attempts: Iterable[Found]) -> Found:
        """Return the first that found something, even where no record is allowed; an empty one if none did."""
        return next((found for found in attempts if found.sites or found.missed), cls())

    @classmethod
    def merge(cls, parts: list[Found]) -> Found:
        """Merge several results; an operation that one of them covers is not missed by the others."""
        covered = frozenset[int]().union(*(part.covered for part in parts))
        missed = {miss.operation.start: miss for part in parts for miss in part.missed}
        return cls(
            tuple(site for part in parts for site in part.sites),
            tuple(miss for offset, miss in missed.items() if offset not in covered),
            covered,
            tuple(dropped for part in parts for dropped in part.dropped),
        )
