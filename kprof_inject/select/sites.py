"""A site: one place in a module that a selector found and that a scope can bracket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.nodes import Operation


@dataclass(frozen=True, slots=True)
class InsertPoint:
    """Where a record goes: at ``offset``, between ``indent`` and ``after``. It gets a line of its own; where several
    operations share a line, it is put between them, and ``indent`` or ``after`` is the one blank that parts them."""

    offset: int
    indent: str
    after: str


@dataclass(frozen=True, slots=True)
class Site:
    """One place to bracket."""

    kind: str
    """A ``ScopeKind``."""

    label: str
    """What the place is called within its function: ``loop[0.1]``."""

    function: str
    start: InsertPoint
    ends: tuple[InsertPoint, ...]
    """Where the code that it brackets ends. One of them is passed on each way out."""

    fills_block: bool
    """The scope spans its whole block, so that it encloses every other one that begins or ends at the same place."""

    source: SourcePoint | None
    """The line that the code was written on."""

    called_from: Chain
    """The calls that inlined it, innermost first."""

    block: str
    """What block it stands in (see ``block_kind``)."""

    operations: int
    """How many of those that it was selected for it spans."""

    other_operations: int = 0
    """How many others stand between them."""

    exit: InsertPoint | None = None
    """Of an iteration that the next one's start ends: behind the loop, where the last one ends. No record stands at
    ``ends`` then."""

    between: tuple[int, int] = (0, 0)
    """Of such an iteration: from where to where that stands in the text which runs between it and the next one."""

    name: str = field(default="", compare=False)
    """The user's, if the source gives one."""

    @property
    def is_instant(self) -> bool:
        return self.kind == ScopeKind.INSTANT

    @property
    def end_records(self) -> tuple[InsertPoint, ...]:
        """Where its end records stand."""
        return self.ends if self.exit is None else (self.exit,)

    @property
    def last_end_offset(self) -> int:
        return max(end.offset for end in self.ends)


@dataclass(frozen=True, slots=True)
class Missed:
    """An operation that a selector found and that none of its sites spans, and why."""

    operation: Operation
    reason: str


@dataclass(frozen=True, slots=True)
class Dropped:
    """A marker of which nothing is left in the module: what it is called and where it stands, and what is not there."""

    marker: str
    what: str

    def __str__(self) -> str:
        return f"the compiler left no {self.what} of {self.marker}"


@dataclass(frozen=True, slots=True)
class Found:
    """What one selector found: sites in the order of the text, and what they leave out.

    ``covered`` are the offsets of the operations that it found and that its sites span."""

    sites: tuple[Site, ...] = ()
    missed: tuple[Missed, ...] = ()
    covered: frozenset[int] = frozenset()
    dropped: tuple[Dropped, ...] = ()

    @classmethod
    def first_of(cls, attempts: Iterable[Found]) -> Found:
        """The first that found something, whether or not a record can stand there; nothing if none did."""
        return next((found for found in attempts if found.sites or found.missed), cls())

    @classmethod
    def together(cls, parts: list[Found]) -> Found:
        """All of them; what one of them covers is not missed by another."""
        covered = frozenset[int]().union(*(part.covered for part in parts))
        missed = {miss.operation.start: miss for part in parts for miss in part.missed}
        return cls(
            tuple(site for part in parts for site in part.sites),
            tuple(miss for offset, miss in missed.items() if offset not in covered),
            covered,
            tuple(dropped for part in parts for dropped in part.dropped),
        )
