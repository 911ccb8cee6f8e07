"""The scope table as the decoder and the reports read it: what each record name means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

from kprof_inject.capture.schema import PointRecord, ScopeTableRecord


class ScopeKind(StrEnum):
    """What a scope stands around. A capture may hold other kinds, which nobody here knows."""

    FUNCTION = "func"
    """The kernel's whole body, or the call of a helper."""
    LOOP = "loop"
    ITERATION = "iter"
    OPERATION = "op"
    LINES = "line"
    PART = "part"
    """Operations of one kind that follow each other."""
    PARTITION = "partition"
    MARKER = "marker"
    """What a marker comment brackets."""
    INSTANT = "mark"
    """A point in time: nothing stands between its start and its end."""
    UNKNOWN = "scope"
    """Whatever stock Proton recorded: its buffer does not tell."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a warp-specialised kernel: what it is called, how many warps run it (None if unknown), and which
    function its region was written as (Gluon takes one for each; empty if unknown)."""

    name: str
    warps: int | None
    function: str = ""


@dataclass(frozen=True, slots=True)
class TagInfo:
    """A value that is recorded with a scope: what it is called, the name of its records, what the module calls it."""

    name: str
    record: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """One scope. ``source`` is ``file:line`` (empty if unknown), ``called_from`` the call lines that inlined it.

    ``parent`` is the index of the scope around it, or -1. ``label`` is what it is called if the user does not name it:
    of an operation, the operation's name; empty if that is unknown. ``partition`` is the index in the table of the
    partition whose warps run it; None if there are no partitions, or if several run it. ``lines`` are the first and the
    last line of the TTGIR that it goes around, from 1; None if they are unknown. ``ended_by_next``: of an iteration,
    only the start is recorded, and the next one's start or the end behind the loop is its end, too. ``tags`` are the
    values that are recorded where it begins, in the order of their records."""

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
    tags: tuple[TagInfo, ...] = ()

    def is_at_site_of(self, other: ScopeInfo) -> bool:
        """Whether a scope of another table of the same kernel records the same thing. Each table has its own names and
        records, so they only decide where lines are unknown."""
        if self.kind != other.kind or (self.label and other.label and self.label != other.label):
            return False
        if self.lines is None or other.lines is None:
            return self.record == other.record
        return self.lines == other.lines


@dataclass(frozen=True, slots=True)
class ScopeTable:
    """The scopes of one kernel, outer before inner, in the order of the text. A scope's key is its index: several may
    have one name. A scope and that around it are of the
    same partition. ``partitions`` begin with the default one; there are none unless the kernel is warp specialised, or
    if an older version made the table. ``body_record`` is the name of records around the kernel's whole body that are
    no scope's: nobody selected it, and the clock is fitted to them. Empty without any."""

    scopes: tuple[ScopeInfo, ...]
    partitions: tuple[Partition, ...] = ()
    body_record: str = ""

    @property
    def body(self) -> int | None:
        """The index of the scope around the kernel's whole body, if that is recorded. Those around calls of helpers
        are of the same kind, and labelled with the helper's name and a line."""
        bodies = (
            index
            for index, scope in enumerate(self.scopes)
            if scope.kind == ScopeKind.FUNCTION and "@" not in (scope.label or scope.name)
        )
        return next(bodies, None)

    def around(self, index: int) -> Iterator[int]:
        """The scopes that one stands in, the innermost first."""
        while (index := self.scopes[index].parent) >= 0:
            yield index

    def at_site_of(self, scope: ScopeInfo) -> int | None:
        """The index of the scope that records what ``scope`` of another table of the same kernel does; None if there is
        not exactly one."""
        found = [index for index, one in enumerate(self.scopes) if one.is_at_site_of(scope)]
        return found[0] if len(found) == 1 else None

    @property
    def max_tags(self) -> int:
        """Of one scope."""
        return max((len(scope.tags) for scope in self.scopes), default=0)

    @property
    def spans_body(self) -> bool:
        """Whether records stand around the kernel's whole body, of a scope or by themselves."""
        return self.body is not None or bool(self.body_record)

    @classmethod
    def of(cls, record: ScopeTableRecord) -> ScopeTable:
        """The table that a capture or a plan holds."""
        return cls(
            tuple(
                ScopeInfo(
                    scope.record,
                    scope.name,
                    scope.kind,
                    _line(scope.source),
                    tuple(map(_line, scope.called_from)),
                    scope.parent,
                    scope.label,
                    scope.partition,
                    scope.lines,
                    scope.ended_by_next,
                    tuple(TagInfo(tag.name, tag.record, tag.value) for tag in scope.tags),
                )
                for scope in record.scopes
            ),
            tuple(Partition(one.name, one.warps, one.function) for one in record.partitions),
            record.body_record,
        )


# What readers know best first. Each scope shows the first of these that no other of its name has.
_TELLS_APART: tuple[Callable[[ScopeInfo], str], ...] = (
    lambda scope: scope.label,
    lambda scope: PurePath(scope.source).name,
    lambda scope: f"{scope.label}, {PurePath(scope.source).name}",
    lambda scope: f"TTGIR line {'-'.join(map(str, dict.fromkeys(scope.lines)))}" if scope.lines else "",
)


def distinct_names(scopes: Sequence[ScopeInfo], *, with_source: bool = False) -> list[str]:
    """Return what to call each scope of a table: its name, and where others have that name what tells it from them, as
    in ``work (loop[0])``. ``with_source``: the source line is shown next to it, and need not be repeated."""
    groups: dict[tuple[str, str], list[int]] = {}
    for index, scope in enumerate(scopes):
        groups.setdefault((scope.name, scope.source if with_source else ""), []).append(index)
    names = [scope.name for scope in scopes]
    for indices in groups.values():
        if len(indices) > 1:
            for index, difference in zip(indices, _differences([scopes[index] for index in indices]), strict=True):
                names[index] = f"{names[index]} ({difference})"
    return names


def _differences(alike: Sequence[ScopeInfo]) -> list[str]:
    found = [""] * len(alike)
    for tells in _TELLS_APART:
        told = [tells(scope) for scope in alike]
        counts = Counter(told)
        found = [before or (its if counts[its] == 1 else "") for before, its in zip(found, told, strict=True)]
    return [difference or f"{number} of {len(alike)}" for number, difference in enumerate(found, 1)]


def _line(point: PointRecord | None) -> str:
    return f"{point.file}:{point.line}" if point else ""
