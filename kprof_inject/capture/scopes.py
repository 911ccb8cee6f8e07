"""Scopes of a kernel, and the table that says which records are whose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated

from msgspec import Meta, Struct, field

from kprof_inject.capture.schema import MAX_TAGS, SCOPE_IDS, Count, LineNumber, Name, Text, WarpCount


class ScopeKind(StrEnum):
    """Kind of a scope; a capture may have others, unknown to this version."""

    FUNCTION = "func"  # kernel's whole body, or the call of a helper
    LOOP = "loop"
    ITERATION = "iter"
    SPIN = "spin"  # loop or operation that does nothing but wait until another CTA, GPU or the host changes memory
    OPERATION = "op"
    LINES = "line"
    PART = "part"  # consecutive operations of one kind
    PARTITION = "partition"
    MARKER = "marker"  # operations that a marker comment brackets
    INSTANT = "mark"  # point in time: nothing is between its start and its end
    UNKNOWN = "scope"  # scope that stock Proton recorded, whose buffer does not have the kind


class PointRecord(Struct, frozen=True):
    """Place in a source file."""

    file: Name
    line: Annotated[int, Meta(ge=0, lt=1 << 31)]
    column: Annotated[int, Meta(ge=0, lt=1 << 31)] = 0


class TagRecord(Struct, frozen=True):
    """Value that is recorded where a scope begins; it ``is_wide`` if it has 64 bits, not 32."""

    name: Name
    record: Name
    value: Name = ""
    is_wide: bool = False


class Scope(Struct, frozen=True, kw_only=True):
    """Scope of a scope table.

    ``label`` is its default name: for an operation, the operation's name. ``calls`` are the calls that inlined it,
    innermost first. ``parent`` is the index of the scope around it, or -1. ``partition`` is the index of the only
    partition whose warps run it. ``lines`` are its first and last line in the TTGIR without records. ``ended_by_next``
    is true for an iteration of which only the start is recorded: the next one's start, or the end record after the
    loop, also ends it.
    """

    record: Name
    name: Name
    kind: Name
    label: Name = ""
    selector: Name = ""
    function: Name = ""
    place: PointRecord | None = field(default=None, name="source")
    calls: tuple[PointRecord | None, ...] = field(default=(), name="called_from")
    parent: Annotated[int, Meta(ge=-1, lt=SCOPE_IDS)] = -1
    partition: Annotated[int, Meta(ge=0, lt=SCOPE_IDS)] | None = None
    crosses: tuple[Annotated[int, Meta(ge=0, lt=SCOPE_IDS)], ...] = ()
    block: Name = ""
    operations: Count = 0
    other_operations: Count = 0
    lines: tuple[LineNumber, LineNumber] | None = None
    ended_by_next: bool = False
    tags: Annotated[tuple[TagRecord, ...], Meta(max_length=MAX_TAGS)] = ()

    def __post_init__(self) -> None:
        if self.lines and self.lines[0] > self.lines[1]:
            raise ValueError("expected ascending lines")

    @property
    def source(self) -> str:
        """Source line as ``file:line``; empty if unknown."""
        return _line(self.place)

    @property
    def called_from(self) -> tuple[str, ...]:
        """Lines of ``calls``."""
        return tuple(map(_line, self.calls))


def _line(point: PointRecord | None) -> str:
    return f"{point.file}:{point.line}" if point else ""


class Partition(Struct, frozen=True):
    """Partition of a warp-specialized kernel; ``function`` is the one that its region was written as (Gluon's)."""

    name: Name
    warps: WarpCount | None
    function: Name = ""


class RelaunchRecord(Struct, frozen=True, kw_only=True):
    """Facts that decide whether a kernel can be launched again from the memory that it began with.

    ``refusal`` is the reason against it, in words that follow *it*. It ``waits`` if it may loop until others change
    memory.
    """

    refusal: Text = ""
    waits: bool = False


class ScopeTable(Struct, frozen=True, kw_only=True):
    """Scopes of one kernel, outer before inner, in the order of the text: the meaning of each record name.

    A scope's key is its index, because several may have one name. A scope and its parent are in the same partition.
    ``partitions`` begin with the default one, if the kernel is warp specialized. ``body_record`` names records around
    the kernel's whole body that were not selected, but the clock is fitted to them.
    """

    kernel: Name = ""
    partitions: Annotated[tuple[Partition, ...], Meta(max_length=SCOPE_IDS)] = ()
    scopes: Annotated[tuple[Scope, ...], Meta(max_length=SCOPE_IDS)] = ()
    most_records: Count | None = None
    body_record: Name = ""
    relaunch: RelaunchRecord | None = None

    def __post_init__(self) -> None:
        for index, scope in enumerate(self.scopes):
            if scope.parent >= index:
                raise ValueError(f"expected a parent of scope {index} before it, got {scope.parent}")
            if scope.partition is not None and scope.partition >= len(self.partitions):
                raise ValueError(
                    f"expected a partition of scope {index} below {len(self.partitions)}, got {scope.partition}"
                )
        records = [scope.record for scope in self.scopes]
        records += [tag.record for scope in self.scopes for tag in scope.tags]
        if len({self.body_record, *records}) <= len(records):
            raise ValueError("expected a separate record for each scope and each tag")

    def __repr__(self) -> str:
        return f"<ScopeTable: {', '.join(scope.name for scope in self.scopes)}>"

    @property
    def body(self) -> int | None:
        """Index of the scope around the kernel's whole body, if that is recorded."""
        # Calls of helpers are of the same kind, and labelled with the helper's name and a line.
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

    def at_site_of(self, scope: Scope) -> int | None:
        """Return the index of the only scope at the site of ``scope``, which is from another table of the kernel."""
        found = []
        for index, own in enumerate(self.scopes):
            if own.kind != scope.kind or (own.label and scope.label and own.label != scope.label):
                continue
            # Each table has its own names and records, so these only decide if lines are unknown.
            has_lines = own.lines is not None and scope.lines is not None
            is_same = own.lines == scope.lines if has_lines else own.record == scope.record
            if is_same:
                found.append(index)
        return found[0] if len(found) == 1 else None

    @property
    def max_tags(self) -> int:
        """Maximum number of values that a scope records."""
        return max((len(scope.tags) for scope in self.scopes), default=0)

    @property
    def spans_body(self) -> bool:
        """True if records surround the kernel's whole body, of a scope or on their own."""
        return self.body is not None or bool(self.body_record)


# Properties by which readers distinguish scopes of one name, the best known first. Each scope shows the first that no
# other of its name shares.
_DISTINGUISHING: tuple[Callable[[Scope], str], ...] = (
    lambda scope: scope.label,
    lambda scope: PurePath(scope.source).name,
    lambda scope: f"{scope.label}, {PurePath(scope.source).name}",
    lambda scope: f"TTGIR line {'-'.join(map(str, dict.fromkeys(scope.lines)))}" if scope.lines else "",
)


def distinct_names(scopes: Sequence[Scope], *, with_source: bool = False) -> list[str]:
    """Return a name for each scope of a table; equal names get a distinguishing property, as in ``work (loop[0])``.

    Scopes that one selector made have the numbers of their records, as in ``tt.load #1``. With ``with_source``, the
    source line is shown next to the name.
    """
    alike: dict[str, dict[int, str]] = {}
    for index, scope in enumerate(scopes):
        name, _, number = scope.record.rpartition("#")
        alike.setdefault(scope.name, {})[index] = number if name == scope.name else ""
    numbered = {
        index: f"{name} #{number}"
        for name, numbers in alike.items()
        if len(numbers) > 1 and len({number for number in numbers.values() if number.isdigit()}) == len(numbers)
        for index, number in numbers.items()
    }
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


def _differences(alike: Sequence[Scope]) -> list[str]:
    found = [""] * len(alike)
    for describe in _DISTINGUISHING:
        texts = [describe(scope) for scope in alike]
        counts = Counter(texts)
        for index, text in enumerate(texts):
            if not found[index] and counts[text] == 1:
                found[index] = text
    return [difference or f"{number} of {len(alike)}" for number, difference in enumerate(found, 1)]
