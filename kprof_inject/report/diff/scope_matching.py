"""Which kernel of A is which of B, and which of their scopes: lines move when a kernel is edited, and with them what
scopes are called."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import distinct_names
from kprof_inject.capture.source_text import SourceText, sources_of, without_folders
from kprof_inject.errors import KprofError, printable
from kprof_inject.quantities import counted, listed
from kprof_inject.report.diff.runs import KernelRuns, config_of, distinct_runs
from kprof_inject.timeline.partitions import partition_names

_MOST_NAMES = 12

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Pairing:
    """The pairs in A's order, and what has no partner."""

    pairs: tuple[tuple[KernelRuns, KernelRuns], ...]
    only_a: tuple[KernelRuns, ...]
    only_b: tuple[KernelRuns, ...]


# From the nearest on. A program launches the variants of a kernel in the same order, whatever was edited in it.
_KEYS: tuple[Callable[[KernelRuns], Hashable], ...] = (
    lambda runs: (runs.name, runs.kernel.variant, runs.grid),
    lambda runs: (runs.name, config_of(runs.kernel), runs.grid),
    lambda runs: (runs.name, runs.grid),
    lambda runs: (runs.name, config_of(runs.kernel)),
    lambda runs: runs.name,
)


def pair_runs(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> Pairing:
    """Raises ``KprofError`` if no kernel of A is one of B, and says which there are."""
    pairs: list[tuple[KernelRuns, KernelRuns]] = []
    left_a, left_b = list(a), list(b)
    for key in _KEYS:
        pairs += _alike(left_a, left_b, key, key)
        taken = {id(runs) for pair in pairs for runs in pair}
        left_a, left_b = ([runs for runs in left if id(runs) not in taken] for left in (left_a, left_b))
    if not pairs and len(a) == len(b) == 1 and not (a[0].name and b[0].name):
        # A Proton buffer tells no name: what the user gives is the same kernel.
        return Pairing(((a[0], b[0]),), (), ())
    if not pairs:
        raise _nothing_in_common(a, b)
    order = {id(runs): number for number, runs in enumerate(a)}
    return Pairing(tuple(sorted(pairs, key=lambda pair: order[id(pair[0])])), tuple(left_a), tuple(left_b))


def require_names(renamed: Mapping[str, str], a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> None:
    """Raise ``KprofError`` if a kernel or a variant is said to have another name, and A has none that is called the old
    one, or B none that is called the new one."""
    for side, names, runs in (("A", renamed, a), ("B", renamed.values(), b)):
        known = {name for one in runs for name in (one.kernel.name, one.kernel.variant)}
        for name in names:
            if name not in known:
                raise KprofError(
                    f"--renamed: {side} has no kernel {printable(name)}",
                    hint=f"write OLD=NEW, the names in A and in B; {side} has {_shortened(distinct_runs(runs))}",
                )


def _nothing_in_common(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> KprofError:
    shared = {one.name for one in a} & {one.name for one in b} - {""}
    if not shared:
        return KprofError(
            f"A and B have no kernel in common: A has {_shortened([one.kernel.name for one in a])}; "
            f"B has {_shortened([one.kernel.name for one in b])}",
            hint="compare captures of the same kernel; if its name has changed: --renamed OLD=NEW",
        )
    name = min(shared)
    left_a, left_b = ([one for one in side if one.name == name] for side in (a, b))
    called = distinct_runs([*left_a, *left_b])
    old, new = left_a[0].kernel.variant, left_b[0].kernel.variant
    return KprofError(
        f"A has {len(left_a)} and B {counted(len(left_b), 'variant')} of {printable(name)}, and they cannot be paired: "
        f"A has {_shortened(called[: len(left_a)])}; B has {_shortened(called[len(left_a) :])}",
        hint=f"pair them by name: --renamed {printable(old)}={printable(new)}"
        if old != new
        else "select launches of one grid on each side with --launch",
    )


def _alike(
    a: Sequence[_T], b: Sequence[_T], key_a: Callable[[_T], Hashable], key_b: Callable[[_T], Hashable]
) -> Iterator[tuple[_T, _T]]:
    """Those of which the keys are equal, in their order, where both sides have as many; None is no key."""
    groups_a, groups_b = _grouped(a, key_a), _grouped(b, key_b)
    for value, mine in groups_a.items():
        if len(mine) == len(groups_b.get(value, ())):
            yield from zip(mine, groups_b[value], strict=True)


def _grouped(found: Sequence[_T], key: Callable[[_T], Hashable]) -> dict[Hashable, list[_T]]:
    groups: dict[Hashable, list[_T]] = {}
    for one in found:
        if (value := key(one)) is not None:
            groups.setdefault(value, []).append(one)
    return groups


def _shortened(words: Sequence[str]) -> str:
    return listed(list(dict.fromkeys(map(printable, words))), _MOST_NAMES)


# A line's number in a scope's name: ``loop@57``, ``line(57-63)``, ``op@file.py:57``.
_LINE_NUMBER = re.compile(r"(?<=[@(:\-])\d+")
# The numbers in a label of a loop: ``loop[0.1]``.
_LOOP_NUMBERS = re.compile(r"\[[\d.]+\]")
NOWHERE = -1


@dataclass(frozen=True, slots=True)
class ScopeIdentity:
    """What tells a scope from others."""

    name: str
    kind: str
    source: str
    lines: tuple[str, ...]
    """The text of its source line and of the calls that inlined it; empty where a text is not known."""
    parent: int
    """The index of the scope around it, or ``NOWHERE``."""
    partition: str = ""
    """The name of the partition that runs it, empty if there are none."""
    label: str = ""
    """What it is called if the user does not name it; empty if that is unknown."""
    distinct_name: str = ""
    """Its name, and its site where others of its side have that name."""
    title: str = ""
    """The same next to its source line."""
    is_only: bool = True
    """True if no other scope of its side and kind has its name."""
    is_only_beside: bool = True
    """True if no other scope in the same parent does."""

    @property
    def steady_name(self) -> str:
        """The name without numbers of lines."""
        return _LINE_NUMBER.sub("", self.name)

    @property
    def steady_label(self) -> str:
        """The label without numbers of lines."""
        return _LINE_NUMBER.sub("", self.label)

    @property
    def sort(self) -> str:
        """The label without any numbers: what it is, wherever it stands."""
        return _LOOP_NUMBERS.sub("", self.steady_label)

    @property
    def short_source(self) -> str:
        return without_folders(self.source)


@dataclass(frozen=True, slots=True)
class ScopeMatch:
    """Scope ``a`` of A is scope ``b`` of B, though ``note`` is not the same of both; empty if all is."""

    a: int
    b: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A scope of one side, by its index there, and why it is none of the other's."""

    index: int
    scope: ScopeIdentity
    why: str


@dataclass(frozen=True, slots=True)
class ScopeMatching:
    """In the order of B's scopes; those of A alone in A's."""

    matches: tuple[ScopeMatch, ...]
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]


def identities(kernel: Kernel) -> tuple[ScopeIdentity, ...]:
    text, partitions = SourceText(sources_of(kernel)), partition_names(kernel.scopes)
    scopes = kernel.scopes.scopes
    names, titles = distinct_names(scopes), distinct_names(scopes, with_source=True)
    return tuple(
        ScopeIdentity(
            scope.name,
            scope.kind,
            scope.source,
            _known(tuple(code_of(text, place) for place in (scope.source, *scope.called_from))),
            scope.parent,
            partitions.get(index, ""),
            scope.label,
            names[index],
            titles[index],
        )
        for index, scope in enumerate(scopes)
    )


def _known(lines: tuple[str, ...]) -> tuple[str, ...]:
    return lines if all(lines) else ()


def code_of(text: SourceText, place: str) -> str:
    """What a line says, without its comment unless it is all there is; empty if it is not known."""
    line = text.line(place)
    return " ".join((line.partition("#")[0].strip() or line).split())


_Key = Callable[[ScopeIdentity], Hashable]
"""None where it says nothing."""

_BESIDE: tuple[_Key, ...] = (
    lambda scope: (scope.kind, scope.name, scope.label, scope.lines),
    lambda scope: (scope.kind, scope.name, scope.sort, scope.lines),
    lambda scope: (scope.kind, scope.steady_name, scope.sort, scope.lines),
    lambda scope: (scope.kind, scope.lines) if scope.lines else None,
    lambda scope: (scope.kind, scope.steady_name, scope.steady_label),
    lambda scope: (scope.kind, scope.steady_name, scope.sort) if scope.is_only_beside else None,
    lambda scope: (scope.kind, scope.steady_name) if scope.is_only else None,
)
"""From the surest on: what makes two scopes one whose parents are one, or that stand outermost in one partition."""

_ELSEWHERE: tuple[_Key, ...] = (
    lambda scope: (scope.kind, scope.steady_name, scope.label, scope.lines) if scope.lines else None,
    lambda scope: (scope.kind, scope.steady_name, scope.sort, scope.lines) if scope.lines else None,
    lambda scope: (scope.kind, scope.steady_name, scope.steady_label),
    lambda scope: (scope.kind, scope.steady_name) if scope.is_only else None,
)
"""And wherever they stand."""


def match_scopes(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity]) -> ScopeMatching:
    """From outside in. Of several scopes that are alike, the first is the first and so on, if there are as many on
    both sides. A name alone matches two scopes only if no others have it."""
    found: dict[int, int] = {}
    mine, theirs = map(_with_namesakes, _comparable(a, b))
    while True:
        before = len(found)
        _match_beside(mine, theirs, found)
        if len(found) == before:
            _match_elsewhere(mine, theirs, found)
        if len(found) == before:
            break
    partners = {theirs: mine for mine, theirs in found.items()}
    return ScopeMatching(
        tuple(ScopeMatch(partners[at], at, _note(a, b, partners[at], at, found)) for at in sorted(partners)),
        tuple(Unmatched(at, a[at], _why(a[at], a, b, "B")) for at in range(len(a)) if at not in found),
        tuple(Unmatched(at, b[at], _why(b[at], b, a, "A")) for at in range(len(b)) if at not in partners),
    )


def _comparable(*sides: Sequence[ScopeIdentity]) -> list[list[ScopeIdentity]]:
    """Where a side does not tell its partitions or labels, as older captures don't, those of the other one say
    nothing."""
    has_partitions, has_labels = (
        all(any(getattr(scope, field) for scope in side) for side in sides) for field in ("partition", "label")
    )
    return [
        [
            replace(
                scope,
                partition=scope.partition if has_partitions else "",
                label=scope.label if has_labels else "",
            )
            for scope in side
        ]
        for side in sides
    ]


def _with_namesakes(scopes: Sequence[ScopeIdentity]) -> list[ScopeIdentity]:
    """Say of each scope whether it is the only one of its name."""
    everywhere = Counter((scope.kind, scope.steady_name) for scope in scopes)
    beside = Counter((scope.parent, scope.partition, scope.kind, scope.steady_name) for scope in scopes)
    return [
        replace(
            scope,
            is_only=everywhere[scope.kind, scope.steady_name] == 1,
            is_only_beside=beside[scope.parent, scope.partition, scope.kind, scope.steady_name] == 1,
        )
        for scope in scopes
    ]


def _match_beside(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity], found: dict[int, int]) -> None:
    """Match what stands outermost in partitions of one name, or in scopes that are matched, and then what stands in
    that."""
    partitions = dict.fromkeys(scope.partition for scope in (*a, *b))
    waiting = [((NOWHERE, name), (NOWHERE, name)) for name in partitions]
    waiting += [((mine, a[mine].partition), (theirs, b[theirs].partition)) for mine, theirs in found.items()]
    while waiting:
        mine, theirs = waiting.pop()
        taken = set(found.values())
        inside_a = [at for at, scope in enumerate(a) if (scope.parent, scope.partition) == mine and at not in found]
        inside_b = [at for at, scope in enumerate(b) if (scope.parent, scope.partition) == theirs and at not in taken]
        fresh = list(_matched(inside_a, inside_b, a, b, _BESIDE))
        found.update(fresh)
        waiting += [((mine, a[mine].partition), (theirs, b[theirs].partition)) for mine, theirs in fresh]


def _match_elsewhere(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity], found: dict[int, int]) -> None:
    taken = set(found.values())
    left_a = [at for at in range(len(a)) if at not in found]
    left_b = [at for at in range(len(b)) if at not in taken]
    found.update(_matched(left_a, left_b, a, b, _ELSEWHERE))


def _matched(
    left_a: Sequence[int],
    left_b: Sequence[int],
    a: Sequence[ScopeIdentity],
    b: Sequence[ScopeIdentity],
    keys: Sequence[_Key],
) -> Iterator[tuple[int, int]]:
    for key in keys:
        alike = list(_alike(left_a, left_b, _of_scope(a, key), _of_scope(b, key)))
        yield from alike
        left_a = [at for at in left_a if at not in {mine for mine, _ in alike}]
        left_b = [at for at in left_b if at not in {theirs for _, theirs in alike}]


def _of_scope(scopes: Sequence[ScopeIdentity], key: _Key) -> Callable[[int], Hashable]:
    return lambda index: key(scopes[index])


def _note(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity], mine: int, theirs: int, found: dict[int, int]) -> str:
    before, after = a[mine], b[theirs]
    notes = []
    if before.name != after.name:
        notes.append(f"called {before.name} in A")
    if before.lines and after.lines and before.lines != after.lines:
        notes.append("its line has changed")
    moved = found.get(before.parent, NOWHERE) != after.parent
    if moved or (before.partition and after.partition and before.partition != after.partition):
        notes.append(f"in {_place(a, before)} in A, in {_place(b, after)} in B")
    return "; ".join(notes)


def _place(scopes: Sequence[ScopeIdentity], scope: ScopeIdentity) -> str:
    if scope.parent < 0:
        return scope.partition or "no other scope"
    around = scopes[scope.parent].distinct_name or scopes[scope.parent].name
    return f"{around} of {scope.partition}" if scope.partition else around


def _why(scope: ScopeIdentity, mine: Sequence[ScopeIdentity], others: Sequence[ScopeIdentity], side: str) -> str:
    alike = [other for other in others if other.steady_name == scope.steady_name]
    same_kind = [other for other in alike if other.kind == scope.kind]
    if same_kind:
        here = sum(other.steady_name == scope.steady_name and other.kind == scope.kind for other in mine)
        if here == len(same_kind):
            return f"{side} has {here} of this name, none of them at this site"
        return f"{side} has {len(same_kind)} of this name where here are {here}, so they cannot be paired"
    if alike:
        return f"in {side} this name is of kind {alike[0].kind}, not {scope.kind}"
    if scope.lines:
        return (
            f"{side} has no scope of this name, and none of kind {scope.kind} on a line that reads {scope.lines[0]!r}"
        )
    return f"{side} has no scope of this name"
