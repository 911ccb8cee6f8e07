"""Scope table as the decoder and the reports read it: the meaning of each record name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import PurePath

from msgspec import Struct

from kprof_inject.capture.schema import Partition, PointRecord, ScopeTableRecord, TagRecord


class ScopeKind(StrEnum):
    """Kind of a scope; a capture may have others, unknown to this version."""

    FUNCTION = "func"
    """Kernel's whole body, or the call of a helper."""
    LOOP = "loop"
    ITERATION = "iter"
    SPIN = "spin"
    """Loop or operation that does nothing but wait until another CTA, GPU or the host changes memory."""
    OPERATION = "op"
    LINES = "line"
    PART = "part"
    """Consecutive operations of one kind."""
    PARTITION = "partition"
    MARKER = "marker"
    """Operations that a marker comment brackets."""
    INSTANT = "mark"
    """Point in time: nothing is between its start and its end."""
    UNKNOWN = "scope"
    """Scope that stock Proton recorded, whose buffer does not have the kind."""


class ScopeInfo(Struct, frozen=True):
    """Scope of a scope table.

    ``source`` is ``file:line`` (empty if unknown), ``called_from`` the call lines that inlined it. ``parent`` is the
    index of the scope around it, or -1. ``label`` is its default name if the user gives none: for an operation, the
    operation's name; empty if unknown. ``partition`` is the index in the table of the partition whose warps run it;
    None if there are no partitions, or if several run it. ``lines`` are its first and last line of the TTGIR, from 1;
    None if unknown. ``ended_by_next`` is true for an iteration of which only the start is recorded: the next one's
    start, or the end record after the loop, also ends it. ``tags`` are the values that the user has
    recorded where it begins, in the order of their records.
    """

    record: str
    name: str
    kind: str
    source: str
    called_from: tuple[str, ...]
    parent: int
    label: str = ""
    partition: int | None = None
    lines: tuple[int, int] | None = None
    ended_by_next: bool = False
    tags: tuple[TagRecord, ...] = ()

    def is_at_site_of(self, other: ScopeInfo) -> bool:
        """Return whether a scope of another table of the same kernel records the same site.

        Each table has its own names and records, so these only decide if lines are unknown.
        """
        if self.kind != other.kind or (self.label and other.label and self.label != other.label):
            return False
        if self.lines is None or other.lines is None:
            return self.record == other.record
        return self.lines == other.lines


class ScopeTable(Struct, frozen=True):
    """Scopes of one kernel, outer before inner, in the order of the text.

    A scope's key is its index, because several may have one name. A scope and its parent are in the same partition.
    ``partitions`` begin with the default one; there are none unless the kernel is warp specialized, or if an older
    version made the table. ``body_record`` is the name of records around the kernel's whole body that belong to no
    scope: they were not selected, but the clock is fitted to them. It is empty if there are none.
    """

    scopes: tuple[ScopeInfo, ...]
    partitions: tuple[Partition, ...] = ()
    body_record: str = ""

    def __repr__(self) -> str:
        """Return the names, in one line."""
        return f"<ScopeTable: {', '.join(scope.name for scope in self.scopes)}>"

    @property
    def body(self) -> int | None:
        """Index of the scope around the kernel's whole body, if that is recorded.

        Scopes around calls of helpers are of the same kind, and labelled with the helper's name and a line.
        """
        bodies = (
            index
            for index, scope in enumerate(self.scopes)
            if scope.kind == ScopeKind.FUNCTION and "@" not in (scope.label or scope.name)
        )
        return next(bodies, None)

    def around(self, index: int) -> Iterator[int]:
        """Yield the scopes around this one, the innermost first."""
        while (index := self.scopes[index].parent) >= 0:
            yield index

    def at_site_of(self, scope: ScopeInfo) -> int | None:
        """Return the index of the scope at the site of ``scope``, which is from another table of the same kernel.

        None if there is not exactly one.
        """
        found = [index for index, own in enumerate(self.scopes) if own.is_at_site_of(scope)]
        return found[0] if len(found) == 1 else None

    @property
    def max_tags(self) -> int:
        """Maximum number of values that a scope records."""
        return max((len(scope.tags) for scope in self.scopes), default=0)

    @property
    def spans_body(self) -> bool:
        """True if records surround the kernel's whole body, of a scope or on their own."""
        return self.body is not None or bool(self.body_record)

    @classmethod
    def of(cls, record: ScopeTableRecord) -> ScopeTable:
        """Convert the table of a capture or a plan."""
        return cls(
            tuple(
                ScopeInfo(
                    record=scope.record,
                    name=scope.name,
                    kind=scope.kind,
                    source=_line(scope.source),
                    called_from=tuple(map(_line, scope.called_from)),
                    parent=scope.parent,
                    label=scope.label,
                    partition=scope.partition,
                    lines=scope.lines,
                    ended_by_next=scope.ended_by_next,
                    tags=scope.tags,
                )
                for scope in record.scopes
            ),
            record.partitions,
            record.body_record,
        )


# Properties by which readers distinguish scopes of one name, the best known first. Each scope shows the first that no
# other of its name shares.
_DISTINGUISHING: tuple[Callable[[ScopeInfo], str], ...] = (
    lambda scope: scope.label,
    lambda scope: PurePath(scope.source).name,
    lambda scope: f"{scope.label}, {PurePath(scope.source).name}",
    lambda scope: f"TTGIR line {'-'.join(map(str, dict.fromkeys(scope.lines)))}" if scope.lines else "",
)


def distinct_names(scopes: Sequence[ScopeInfo], *, with_source: bool = False) -> list[str]:
    """Return a name for each scope of a table; equal names get a distinguishing property, as in ``work (loop[0])``.

    Scopes that one selector made have the numbers of their records, as in ``tt.load #1``. With ``with_source``, the
    source line is shown next to the name, and need not be repeated.
    """
    numbered = _numbered(scopes)
    groups: dict[tuple[str, str], list[int]] = {}
    for index, scope in enumerate(scopes):
        if index not in numbered:
            groups.setdefault((scope.name, scope.source if with_source else ""), []).append(index)
    names = [numbered.get(index, scope.name) for index, scope in enumerate(scopes)]
    for indices in groups.values():
        if len(indices) > 1:
            for index, difference in zip(indices, _differences([scopes[index] for index in indices]), strict=True):
                names[index] = f"{names[index]} ({difference})"
    return names


def _numbered(scopes: Sequence[ScopeInfo]) -> dict[int, str]:
    """Return, by index, the scopes of one name whose records all have numbers, with these."""
    alike: dict[str, dict[int, str]] = {}
    for index, scope in enumerate(scopes):
        name, _, number = scope.record.rpartition("#")
        alike.setdefault(scope.name, {})[index] = number if name == scope.name else ""
    return {
        index: f"{name} #{number}"
        for name, numbers in alike.items()
        if len(numbers) > 1 and len({number for number in numbers.values() if number.isdigit()}) == len(numbers)
        for index, number in numbers.items()
    }


def _differences(alike: Sequence[ScopeInfo]) -> list[str]:
    found = [""] * len(alike)
    for describe in _DISTINGUISHING:
        texts = [describe(scope) for scope in alike]
        counts = Counter(texts)
        for index, text in enumerate(texts):
            if not found[index] and counts[text] == 1:
                found[index] = text
    return [difference or f"{number} of {len(alike)}" for number, difference in enumerate(found, 1)]


def _line(point: PointRecord | None) -> str:
    return f"{point.file}:{point.line}" if point else ""
