"""Matching of A's kernels and scopes with B's: editing a kernel moves its lines, which are in the scopes' names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.comparison.runs import KernelRuns, config_of, distinct_runs
from kprof_inject.analysis.structure.structural_changes import Matched, match_by_keys
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import Scope, distinct_names
from kprof_inject.capture.source_text import SourceText, sources_of
from kprof_inject.errors import KprofError, printable
from kprof_inject.quantities import counted, listed
from kprof_inject.timeline.choice import matches_scope
from kprof_inject.timeline.partitions import partition_names

_MAX_NAMES = 12

# Most specific key first. A program launches a kernel's variants in the same order, however the kernel was edited.
_KEYS: tuple[Callable[[KernelRuns], Hashable], ...] = (
    lambda runs: (runs.rank, runs.name, runs.kernel.variant, runs.grid),
    lambda runs: (runs.rank, runs.name, config_of(runs.kernel), runs.grid),
    lambda runs: (runs.rank, runs.name, runs.grid),
    lambda runs: (runs.rank, runs.name, config_of(runs.kernel)),
    lambda runs: (runs.rank, runs.name),
)


def pair_runs(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> Matched[KernelRuns]:
    """Pair the kernels of A and B, in A's order; raise ``KprofError``, with both sides' names, if there is no pair."""
    found = match_by_keys(a, b, _KEYS)
    if not found.pairs and len(a) == len(b) == 1 and not (a[0].name and b[0].name):
        # A Proton buffer has no kernel name, so the two that the user gives are taken for the same kernel.
        return Matched([(a[0], b[0])], [], [])
    if not found.pairs:
        raise _nothing_in_common(a, b)
    order = {id(runs): number for number, runs in enumerate(a)}
    return replace(found, pairs=sorted(found.pairs, key=lambda pair: order[id(pair[0])]))


def require_names(renamed: Mapping[str, str], a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> None:
    """Raise ``KprofError`` if A has no kernel or variant with one of the old names, or B none with a new name."""
    for side, names, runs in (("A", renamed, a), ("B", renamed.values(), b)):
        known = {name for launches in runs for name in (launches.kernel.name, launches.kernel.variant)}
        for name in names:
            if name not in known:
                there = _shortened(distinct_runs(runs))
                hint = f"give the names in A and in B, --renamed OLD=NEW; {side} has {there}"
                raise KprofError(f"--renamed: {side} has no kernel {printable(name)}", hint=hint)


def _nothing_in_common(a: Sequence[KernelRuns], b: Sequence[KernelRuns]) -> KprofError:
    shared = {runs.name for runs in a} & {runs.name for runs in b} - {""}
    if not shared:
        in_a, in_b = (_shortened([runs.kernel.name for runs in side]) for side in (a, b))
        hint = "compare captures of the same kernel; if its name has changed: --renamed OLD=NEW"
        return KprofError(f"A and B have no kernel in common: A has {in_a}; B has {in_b}", hint=hint)
    name = min(shared)
    left_a, left_b = ([runs for runs in side if runs.name == name] for side in (a, b))
    called = distinct_runs([*left_a, *left_b])
    what = f"cannot pair the variants of {printable(name)}, {len(left_a)} in A and {len(left_b)} in B: "
    what += f"A has {_shortened(called[: len(left_a)])}; B has {_shortened(called[len(left_a) :])}"
    old, new = left_a[0].kernel.variant, left_b[0].kernel.variant
    hint = f"pair them by name: --renamed {printable(old)}={printable(new)}"
    return KprofError(what, hint=hint if old != new else "select launches of one grid on each side with --launch")


def _shortened(words: Sequence[str]) -> str:
    return listed(list(dict.fromkeys(map(printable, words))), _MAX_NAMES)


_LINE_NUMBER = re.compile(r"(?<=[@(:\-])\d+")  # ``loop@57``, ``line(57-63)``, ``op@file.py:57``
_LOOP_NUMBERS = re.compile(r"\[[\d.]+\]")  # numbers in a loop's label: ``loop[0.1]``
NOWHERE = -1


class ScopeIdentity(Struct, frozen=True):
    """A scope, with the other properties that identify it."""

    info: Scope
    lines: tuple[str, ...] = ()
    """Text of its source line and of the calls that inlined it; empty if any text is unknown."""
    partition: str = ""
    distinct_name: str = ""  # name, with the site if other scopes of its side have the same name
    title: str = ""  # distinct name for use next to its source line
    # What ``match_scopes`` sets to compare the scopes of both sides.
    index: int = 0
    is_only: bool = True  # true if no other scope of its side and kind has its name
    is_only_in_parent: bool = True
    place: Hashable = None  # partner of its parent, or its partition if it has no parent

    @property
    def steady_name(self) -> str:
        """Name without line numbers."""
        return _LINE_NUMBER.sub("", self.info.name)

    @property
    def steady_label(self) -> str:
        """Default name, without the user's, without line numbers; empty if unknown."""
        return _LINE_NUMBER.sub("", self.info.label)

    @property
    def sort(self) -> str:
        """Label without any numbers, independent of its position."""
        return _LOOP_NUMBERS.sub("", self.steady_label)


class ScopeMatch(Struct, frozen=True):
    """Scope ``a`` of A matched with scope ``b`` of B; ``note`` says what differs, empty if nothing does."""

    a: int
    b: int
    note: str = ""


class Unmatched(Struct, frozen=True):
    """Scope of one side without a partner: its index there, and the reason."""

    index: int
    scope: ScopeIdentity
    why: str


class ScopeMatching(Struct, frozen=True):
    """Scopes ``a`` and ``b`` of both sides: matches and B's unmatched ones in B's order, A's unmatched ones in A's."""

    a: Sequence[ScopeIdentity]
    b: Sequence[ScopeIdentity]
    matches: tuple[ScopeMatch, ...]
    only_a: tuple[Unmatched, ...]
    only_b: tuple[Unmatched, ...]


def identities(kernel: Kernel) -> tuple[ScopeIdentity, ...]:
    """Return the identities of a kernel's scopes, in the order of its scope table."""
    text, partitions = SourceText(sources_of(kernel)), partition_names(kernel.scopes)
    scopes = kernel.scopes.scopes
    names, titles = distinct_names(scopes), distinct_names(scopes, with_source=True)
    found = []
    for index, scope in enumerate(scopes):
        lines = tuple(code_of(text, place) for place in (scope.source, *scope.called_from))
        partition = partitions.get(index, "")
        found.append(ScopeIdentity(scope, lines if all(lines) else (), partition, names[index], titles[index]))
    return tuple(found)


def code_of(text: SourceText, place: str) -> str:
    """Return a line's code without its comment, or the comment if there is no code; empty if unknown."""
    line = text.line(place)
    return " ".join((line.partition("#")[0].strip() or line).split())


_Key = Callable[[ScopeIdentity], Hashable]  # returns None if the key does not apply to a scope

# Keys of scopes with matched parents, or outermost in the same partition; most reliable first.
_WITHIN_PARENT: tuple[_Key, ...] = (
    lambda scope: (scope.place, scope.info.kind, scope.info.name, scope.info.label, scope.lines),
    lambda scope: (scope.place, scope.info.kind, scope.info.name, scope.sort, scope.lines),
    lambda scope: (scope.place, scope.info.kind, scope.steady_name, scope.sort, scope.lines),
    lambda scope: (scope.place, scope.info.kind, scope.lines) if scope.lines else None,
    lambda scope: (scope.place, scope.info.kind, scope.steady_name, scope.steady_label),
    lambda scope: (scope.place, scope.info.kind, scope.steady_name, scope.sort) if scope.is_only_in_parent else None,
    lambda scope: (scope.place, scope.info.kind, scope.steady_name) if scope.is_only else None,
)
# Keys of scopes anywhere in the kernel; most reliable first.
_ANYWHERE: tuple[_Key, ...] = (
    lambda scope: (scope.info.kind, scope.steady_name, scope.info.label, scope.lines) if scope.lines else None,
    lambda scope: (scope.info.kind, scope.steady_name, scope.sort, scope.lines) if scope.lines else None,
    lambda scope: (scope.info.kind, scope.steady_name, scope.steady_label),
    lambda scope: (scope.info.kind, scope.steady_name) if scope.is_only else None,
)


def match_scopes(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity]) -> ScopeMatching:
    """Match scopes from the outermost inwards, in order if both sides have equally many with equal keys."""
    in_a, in_b = _comparable(a, b)
    found: dict[int, int] = {}
    while True:
        partners = {index_b: index_a for index_a, index_b in found.items()}
        left_a = [scope for scope in in_a if scope.index not in found]
        left_b = [scope for scope in in_b if scope.index not in partners]
        placed_a, placed_b = _placed(left_a, in_a, found), _placed(left_b, in_b, {at: at for at in partners})
        pairs = match_by_keys(placed_a, placed_b, _WITHIN_PARENT).pairs
        pairs = pairs or match_by_keys(left_a, left_b, _ANYWHERE).pairs
        if not pairs:
            break
        found |= {one.index: other.index for one, other in pairs}
    return ScopeMatching(
        a,
        b,
        tuple(ScopeMatch(partners[at], at, _note(a, b, partners[at], at, found)) for at in sorted(partners)),
        tuple(Unmatched(at, a[at], _why(a[at], a, b, "B")) for at in range(len(a)) if at not in found),
        tuple(Unmatched(at, b[at], _why(b[at], b, a, "A")) for at in range(len(b)) if at not in partners),
    )


def _comparable(*sides: Sequence[ScopeIdentity]) -> list[list[ScopeIdentity]]:
    """Set whether names are unique; clear partitions if only one side has them, such as a specialized kernel."""
    has_partitions = all(any(scope.partition for scope in side) for side in sides)
    found = []
    for side in sides:
        names = [(scope.info.kind, scope.steady_name) for scope in side]
        partitions = [scope.partition if has_partitions else "" for scope in side]
        parents = [scope.info.parent for scope in side]
        everywhere, in_parent = Counter(names), Counter(zip(parents, partitions, names, strict=True))
        scopes = []
        for index, (scope, partition, name) in enumerate(zip(side, partitions, names, strict=True)):
            is_only, is_only_inside = everywhere[name] == 1, in_parent[parents[index], partition, name] == 1
            scope = replace(scope, index=index, partition=partition, is_only=is_only, is_only_in_parent=is_only_inside)
            scopes.append(scope)
        found.append(scopes)
    return found


def _placed(
    left: Sequence[ScopeIdentity], side: Sequence[ScopeIdentity], partners: Mapping[int, int]
) -> list[ScopeIdentity]:
    found = []
    for scope in left:
        parent = scope.info.parent
        if parent == NOWHERE:
            found.append(replace(scope, place=scope.partition))
        elif parent in partners and side[parent].partition == scope.partition:
            found.append(replace(scope, place=partners[parent]))
    return found


def is_named(a: ScopeIdentity, b: ScopeIdentity, glob: str) -> bool:
    """Return True if the glob matches the name of a matched scope on either side."""
    return any(matches_scope(side.info.name, glob) for side in (a, b))


def require_scope(glob: str, compared: Sequence[ScopeMatching]) -> None:
    """Raise ``KprofError``, with the scopes on both sides, if the glob matches no match of any kernel."""
    matched = [(one.a[match.a], one.b[match.b]) for one in compared for match in one.matches]
    if any(is_named(a, b, glob) for a, b in matched):
        return
    both = dict.fromkeys(b.info.name for _, b in matched)
    alone = [
        f"only {side} has {item.scope.distinct_name}"
        for one in compared
        for side, unmatched in (("A", one.only_a), ("B", one.only_b))
        for item in unmatched
        if matches_scope(item.scope.info.name, glob)
    ]
    there = f"both have {', '.join(both)}" if both else "A and B have no scope in common"
    hint = printable("; ".join([*dict.fromkeys(alone), there]))
    raise KprofError(f"--scope {glob} matches no scope that is in both A and B", hint=hint)


def _note(a: Sequence[ScopeIdentity], b: Sequence[ScopeIdentity], at_a: int, at_b: int, found: dict[int, int]) -> str:
    before, after = a[at_a], b[at_b]
    notes = []
    if before.info.name != after.info.name:
        notes.append(f"called {before.info.name} in A")
    if before.lines and after.lines and before.lines != after.lines:
        notes.append("its source line changed")
    moved = found.get(before.info.parent, NOWHERE) != after.info.parent
    if moved or (before.partition and after.partition and before.partition != after.partition):
        notes.append(f"inside {_place(a, before)} in A, inside {_place(b, after)} in B")
    return "; ".join(notes)


def _place(scopes: Sequence[ScopeIdentity], scope: ScopeIdentity) -> str:
    if scope.info.parent < 0:
        return scope.partition or "no other scope"
    around = scopes[scope.info.parent].distinct_name
    return f"{around} of {scope.partition}" if scope.partition else around


def _why(
    scope: ScopeIdentity, own_side: Sequence[ScopeIdentity], other_side: Sequence[ScopeIdentity], side: str
) -> str:
    name, kind = scope.steady_name, scope.info.kind
    here, there = ([one.info.kind for one in scopes if one.steady_name == name] for scopes in (own_side, other_side))
    counts = here.count(kind), there.count(kind)
    if counts[0] == counts[1]:
        return f"{side} has {counted(counts[0], 'scope')} of this name, none at this site"
    if counts[1]:
        in_a, in_b = counts if side == "B" else counts[::-1]
        return f"not paired: {in_a} in A, {in_b} in B"
    if there:
        return f"in {side} this name has kind {there[0]}, not {kind}"
    none = f"{side} has no scope of this name"
    return f"{none}, and none of kind {kind} on a line {scope.lines[0]!r}" if scope.lines else none
