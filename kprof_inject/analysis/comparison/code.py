"""Comparison of a kernel's code, build and arguments on both sides, with the time of each loop and source line."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from kprof_inject.analysis.comparison import causes
from kprof_inject.analysis.comparison.matching import code_of
from kprof_inject.analysis.comparison.runs import KernelRuns, LaunchFigures, differences, typical_value
from kprof_inject.analysis.comparison.verdicts import KernelDiff, ScopeChange
from kprof_inject.analysis.findings.loops import LoopFigures
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.limits.stalls import Share, Stalls
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.structure.features import CodeOf
from kprof_inject.analysis.structure.structural_changes import StructuralChange, differing_lines, structural_changes
from kprof_inject.analysis.unjudged import Unevaluated, evaluating
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable, distinct_names
from kprof_inject.capture.source_text import (
    SourceLine,
    SourceText,
    file_and_line,
    lines_of,
    shown_line,
    sources_of,
    ttgir_of,
    without_folders,
)
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.quantities import listed
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import argument_names, argument_types
from kprof_inject.workspace import saved_sources


class CodePart(Struct, frozen=True):
    """Part of the kernel: a loop, or one of the two parts that are no loops.

    A loop has its ``index`` in B's scope table, or in A's if B has no matching loop. Two parts may have the same name.
    """

    name: str
    index: int | None = None
    is_of_a: bool = False


WHOLE = CodePart("the whole kernel")
OUTSIDE = CodePart("outside of loops")


class ChangedPart(Struct, frozen=True):
    """Loop of B, the code outside of loops, or the kernel as a whole, with all changes in it.

    ``explained`` is its part of the launch's change. A change to the kernel as a whole acts everywhere, so it explains
    the time of unchanged code. ``loops`` has the figures of a loop on both sides in A and in B.
    """

    part: CodePart
    changes: list[StructuralChange]
    scopes: tuple[ScopeChange, ...]
    explained: float | None
    cta_change_ns: float | None  # change of its scopes' time in a CTA, if the launch changed
    loops: tuple[LoopFigures, LoopFigures] | None
    is_certain: bool  # true if any of its scopes certainly changed as the launch did

    @property
    def loop(self) -> ScopeChange | None:
        """The own scope of a loop on both sides."""
        index = None if self.part.is_of_a else self.part.index
        return next((scope for scope in self.scopes if scope.match.b == index), None)


class Structure(Struct, frozen=True):
    """Differences of the code between both sides.

    ``differing_lines`` counts the TTGIR's differing lines, whether or not a change was found in them.
    ``everywhere`` has changes of the kernel as a whole, with causes of their own, that also act on parts with changes:
    times cannot separate the two. ``only_part`` is the part with all differences, if a single one has them: they cause
    the launch's change, wherever its time shows.
    """

    parts: list[ChangedPart]
    differing_lines: int
    everywhere: list[StructuralChange]
    only_part: CodePart | None


@lru_cache(maxsize=16)  # each view of a comparison needs it
def structure_of(diff: KernelDiff) -> Structure | None:
    """Return the changes of the code, largest part of the change first, if both modules can be read and evaluated."""
    a, b = (_module(side.kernel) for side in (diff.a, diff.b))
    try:
        with evaluating():
            return _structure(diff, a, b) if a and b else None
    except Unevaluated:
        return None


def _module(kernel: Kernel) -> Module | None:
    try:
        text = ttgir_of(kernel)
        return parse(text, str(kernel.folder)) if text else None
    except KprofError:
        return None


def changes_between(a: Path, b: Path) -> tuple[list[StructuralChange], int]:
    """Return the changes from one ``.ttgir`` file to another and the number of differing lines.

    Raises ``KprofError`` if a file cannot be read or evaluated.
    """
    module_a, module_b = (parse(read_text(path), str(path)) for path in (a, b))
    with evaluating():
        changes = _changes(module_a, module_b, [saved_sources(path) for path in (a, b)])
        return changes, len(differing_lines(module_a, module_b))


def _changes(a: Module, b: Module, sources: Iterable[Mapping[str, str]]) -> list[StructuralChange]:
    def code_in(texts: Mapping[str, str]) -> CodeOf:
        text = SourceText(texts)
        return lambda point: code_of(text, f"{point.file}:{point.line}")

    return structural_changes(a, b, *map(code_in, sources))


def _structure(diff: KernelDiff, a: Module, b: Module) -> Structure:
    changes = _changes(a, b, [sources_of(side.kernel) for side in (diff.a, diff.b)])
    places, differing = _Places(diff, a, b), differing_lines(a, b)
    by_part: defaultdict[CodePart, list[StructuralChange]] = defaultdict(list)
    for change in (*_whole_changes(diff, a, b), *changes):
        by_part[places.part_of(change)].append(change)
    of_whole = by_part.get(WHOLE, [])
    acting = [change for change in of_whole if change.id not in _IDLE]
    of_own_cause = [change for change in of_whole if change.id not in _RESOURCES]
    parts, own_changes_ns = [], causes.own_cta_changes_ns(diff)
    for part, inside in by_part.items():
        # A change of the whole kernel acts on all code without changes of its own.
        scopes = places.scopes_of(part) if part != WHOLE else places.scopes_outside(by_part) if acting else ()
        explained, certain = places.explained(scopes), any(causes.is_certain(diff, scope) for scope in scopes)
        own_ns = _sum([own_changes_ns.get(scope.match) for scope in scopes]) if explained is not None else None
        parts.append(ChangedPart(part, inside, scopes, explained, own_ns, places.loops(part), certain))
    parts.sort(key=lambda part: -(part.explained or 0.0))
    has_others = any(part.explained is not None for part in parts if part.part != WHOLE)
    differ = places.parts_of_lines(differing) | by_part.keys() - {WHOLE}
    if of_own_cause or (of_whole and not differ):
        differ.add(WHOLE)
    # All other differences, such as of the grid, are more than a change of the code.
    covered = {*_SEEN, *_OF_RECORDS, *_BUILD}
    is_of_code = all(one.what in covered or one.is_option for one in differences(diff.a, diff.b))
    only = next(iter(differ)) if is_of_code and len(differ) == 1 else None
    return Structure(parts, len(differing), of_own_cause if has_others else [], only)


class _Places:
    def __init__(self, diff: KernelDiff, a: Module, b: Module) -> None:
        self._diff = diff
        self._modules = a, b
        self._tables = diff.a.kernel.scopes, diff.b.kernel.scopes
        self._scope_maps = ScopeMap(a, self._tables[0]), ScopeMap(b, self._tables[1])
        names_a, names_b = (distinct_names(table.scopes) for table in self._tables)
        of_b = [CodePart(name, index) for index, name in enumerate(names_b)]
        # A matched loop of A is the part of its partner in B.
        matched = {match.a: of_b[match.b] for match in diff.matching.matches}
        of_a = [matched.get(index, CodePart(name, index, is_of_a=True)) for index, name in enumerate(names_a)]
        self._parts = of_a, of_b
        table = self._tables[1]
        self._part_of_scope = [
            next((of_b[around] for around in (index, *table.around(index)) if _is_loop(table, around)), OUTSIDE)
            for index in range(len(table.scopes))
        ]

    def part_of(self, change: StructuralChange) -> CodePart:
        # A loop's own operations decide, not those peeled off it. Of several loops it is the one that explains most:
        # one may only cover the case that another has nothing to do.
        for side, operations in ((1, change.operations_b), (0, change.operations_a)):
            parts = [self._part_of_line(side, self._scope_maps[side].lines_of(one)[0]) for one in operations]
            loops = [part for part in parts if part != OUTSIDE]
            if loops:
                return max(loops, key=lambda part: abs(self.explained(self.scopes_of(part)) or 0.0))
        return OUTSIDE if change.operations_a or change.operations_b else WHOLE

    def parts_of_lines(self, differing: Sequence[tuple[int | None, int | None]]) -> set[CodePart]:
        found = set()
        for side, (scope_map, module) in enumerate(zip(self._scope_maps, self._modules, strict=True)):
            functions = [scope_map.lines_of(operation) for operation in module.walk() if operation.name == FUNCTION]
            for line in (pair[side] for pair in differing):
                if line is not None:
                    is_inside = any(first <= line <= last for first, last in functions)
                    found.add(self._part_of_line(side, line) if is_inside else WHOLE)
        return found

    def _part_of_line(self, side: int, line: int) -> CodePart:
        covering = reversed(self._scope_maps[side].covering((line, line)))
        loop = next((index for index in covering if _is_loop(self._tables[side], index)), None)
        return OUTSIDE if loop is None else self._parts[side][loop]

    def scopes_of(self, part: CodePart) -> tuple[ScopeChange, ...]:
        return tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.match.b] == part)

    def scopes_outside(self, parts: Container[CodePart]) -> tuple[ScopeChange, ...]:
        return tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.match.b] not in parts)

    def explained(self, scopes: Sequence[ScopeChange]) -> float | None:
        return _sum([causes.explained_by(self._diff, scope) for scope in scopes])

    def loops(self, part: CodePart) -> tuple[LoopFigures, LoopFigures] | None:
        match = next((one for one in self._diff.matching.matches if part == self._parts[1][one.b]), None)
        return (self._diff.a.loop(match.a), self._diff.b.loop(match.b)) if match else None


def _is_loop(table: ScopeTable, index: int) -> bool:
    # Iterations whose loop was not recorded represent it.
    scope = table.scopes[index]
    if scope.kind != ScopeKind.ITERATION:
        return scope.kind == ScopeKind.LOOP
    return scope.parent < 0 or table.scopes[scope.parent].kind != ScopeKind.LOOP


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


# Resources of a build, the Triton that compiled it, and the device that runs it, with their messages.
_BUILD = {
    **dict.fromkeys(("registers", "spills", "shared bytes", "CTAs per SM", "device"), "{0}"),
    "triton_version": "lowered by Triton {0.a} → {0.b}",
}
# Consequences of the code and its compiler. More registers or shared memory slow unchanged code only through fewer CTAs
# on an SM.
_RESOURCES = frozenset({"registers", "spills", "shared-bytes", "CTAs-per-SM"})
_IDLE = frozenset({"registers", "shared-bytes"})
# Settings that the module itself shows, and settings that only affect records.
_SEEN = frozenset({"kernel", "target", "num_warps", "num_ctas", "num_stages", "maxnreg"})
_OF_RECORDS = frozenset({"records", "recorded warps"})
_INTEGER = re.compile(r"i\d+")
_MAX_VALUES = 4


def _whole_changes(diff: KernelDiff, a: Module, b: Module) -> Iterator[StructuralChange]:
    for difference in differences(diff.a, diff.b):
        what = difference.what
        if what in _BUILD:
            yield StructuralChange(what.replace(" ", "-"), _BUILD[what].format(difference))
        elif difference.is_option:
            yield StructuralChange("option", f"option {difference}")
    before, after = _arguments(diff.a, a), _arguments(diff.b, b)
    for name, values in after.items():
        if before.get(name, values) != values:
            was, now = (listed(list(map(str, sorted(side))), _MAX_VALUES) for side in (before[name], values))
            yield StructuralChange("argument", f"argument {name} {was} → {now}")


def _arguments(runs: KernelRuns, module: Module) -> Mapping[str, set[int]]:
    function = entry_function(module)
    if function is None:
        return {}
    names, types = argument_names(module, function), argument_types(function)
    found: defaultdict[str, set[int]] = defaultdict(set)
    for timeline in runs.timelines:
        values: Sequence[int | None] = timeline.launch.arguments
        if len(values) == len(names) == len(types):
            for name, type_, value in zip(names, types, values, strict=True):
                if value is not None and _INTEGER.fullmatch(type_):
                    found[name.lstrip("%")].add(value)
    return found


def elsewhere_cta_ns(structure: Structure, diff: KernelDiff) -> float | None:
    """Return the change of a CTA's time outside of the parts."""
    net_ns = causes.net_cta_change_ns(diff)
    parts_ns = [part.cta_change_ns for part in structure.parts if part.scopes]
    if net_ns is None or not parts_ns or None in parts_ns:
        return None
    return net_ns - sum(filter(None, parts_ns))


def largest_cause(diff: KernelDiff) -> tuple[ScopeChange | None, ChangedPart | None, float]:
    """Return the scope, the changed part of the code or both that explain most of the launch's change, and how much."""
    structure, scope = structure_of(diff), causes.largest_scope(diff)
    parts = structure.parts if structure else []
    by_scope = (causes.explained_by(diff, scope) or 0.0) if scope else 0.0
    part = next((part for part in parts if scope in part.scopes), None)
    largest, least = parts[0] if parts else None, max(by_scope, causes.MIN_EXPLAINED)
    if largest is not None and largest is not part and (largest.explained or 0.0) >= least:
        part, scope = largest, None
    if part is not None and (scope is None or part.loop is not None):
        return part.loop, part, part.explained or 0.0
    return scope, part, by_scope


_SEVERAL_LINES = re.compile(r"\d-\d+\)$")

_Time = tuple[float, float | None]  # at a source line on one side, and half of its 95 % interval by sampling
_Times = Mapping[SourceLine | None, _Time]


class LineChange(Struct, frozen=True):
    """Average time of a warp in a CTA at a source line that A or B may lack; ``text`` is B's, else A's.

    ``error_ns`` is half of the change's 95 % interval by sampling.
    """

    a: SourceLine | None
    b: SourceLine | None
    text: str
    a_ns: float
    b_ns: float
    error_ns: float | None

    @property
    def change_ns(self) -> float:
        """Increase of its time from A to B."""
        return self.b_ns - self.a_ns

    @property
    def is_noise(self) -> bool:
        """True if the change is within the sampling error."""
        return abs(self.change_ns) <= (self.error_ns or 0.0)


class LineChanges(Struct, frozen=True):
    """Changes of all lines with a time, largest first: from A's and B's ``samples`` if both have some, else scopes."""

    samples: tuple[int, int]
    lines: list[LineChange]


@lru_cache(maxsize=16)  # each view of a comparison needs it
def line_changes(diff: KernelDiff) -> LineChanges | None:
    """Return the changes of time by source line, if samples or scopes show any."""
    stalls, sources = (diff.a.stalls, diff.b.stalls), [sources_of(side.kernel) for side in (diff.a, diff.b)]
    # A line without samples takes no time; that of one without scopes is unknown.
    absent: _Time | None = None
    if stalls[0] and stalls[1]:
        cta_ns, absent = diff.sides.both(lambda launch: launch.net_cta_ns), (0.0, 0.0)
        times = _sampled(stalls[0], cta_ns.a or 0.0), _sampled(stalls[1], cta_ns.b or 0.0)
    else:
        times = _recorded(diff.a, diff.sides.a), _recorded(diff.b, diff.sides.b)
    lines = []
    for line_a, line_b in _line_pairs(times, sources):
        before, after = times[0].get(line_a, absent), times[1].get(line_b, absent)
        if before is not None and after is not None:
            path, number = line_b or line_a or ("", 0)
            text = shown_line(SourceText(sources[line_b is not None]).line(f"{path}:{number}")).strip()
            error_ns = None if before[1] is None or after[1] is None else math.hypot(before[1], after[1])
            lines.append(LineChange(line_a, line_b, text, before[0], after[0], error_ns))
    lines.sort(key=lambda line: -abs(line.change_ns))
    samples_a, samples_b = (found.samples if found else 0 for found in stalls)
    return LineChanges((samples_a, samples_b), lines) if lines else None


def _sampled(stalls: Stalls, cta_ns: float) -> _Times:
    shares = {line: Share.of(count, stalls.samples) for line, count in stalls.by_source.items() if count}
    return {line: (share.value * cta_ns, share.error * cta_ns) for line, share in shares.items()}


def _recorded(runs: KernelRuns, launches: tuple[LaunchFigures, ...]) -> _Times:
    table = runs.kernel.scopes
    found: defaultdict[SourceLine | None, float] = defaultdict(float)
    for index, scope in enumerate(table.scopes):
        line = _line_of(scope)
        is_counted = any(_line_of(table.scopes[outer]) == line for outer in table.around(index))
        figures = [launch.scopes[index] for launch in launches]
        cta_ns = typical_value(figures, lambda scope: scope.cta_ns)
        if line and not is_counted and all(one.is_whole for one in figures) and cta_ns is not None:
            found[line] += cta_ns
    return {line: (ns, None) for line, ns in found.items()}


def _line_of(scope: Scope) -> SourceLine | None:
    is_of_one_line = scope.kind == ScopeKind.LINES and not _SEVERAL_LINES.search(scope.label or scope.name)
    return file_and_line(scope.source) if scope.kind == ScopeKind.OPERATION or is_of_one_line else None


def _line_pairs(
    times: tuple[_Times, _Times], sources: Sequence[Mapping[str, str]]
) -> Iterator[tuple[SourceLine | None, SourceLine | None]]:
    b_of: dict[SourceLine | None, SourceLine] = {}
    for path_a, path_b in _files(times, sources):
        if path_a in sources[0] and path_b in sources[1]:
            texts = lines_of(sources[0][path_a]), lines_of(sources[1][path_b])
            for tag, a_begin, a_end, b_begin, b_end in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
                for at_a, at_b in zip(range(a_begin, a_end), range(b_begin, b_end), strict=False):
                    line_a, line_b = (path_a, at_a + 1), (path_b, at_b + 1)
                    # An edited line is paired if both sides have a time there.
                    if tag == "equal" or (line_a in times[0] and line_b in times[1]):
                        b_of[line_a] = line_b
        else:
            numbers = [line[1] for line in (*times[0], *times[1]) if line and line[0] in (path_a, path_b)]
            b_of |= {(path_a, number): (path_b, number) for number in numbers}
    yield from ((line_a, b_of.get(line_a)) for line_a in times[0])
    a_of = {line_b: line_a for line_a, line_b in b_of.items()}
    yield from ((a_of.get(line_b), line_b) for line_b in times[1] if line_b and a_of.get(line_b) not in times[0])


def _files(times: tuple[_Times, _Times], sources: Sequence[Mapping[str, str]]) -> set[tuple[str, str]]:
    # Files are paired by name; if one file is left on each side, these two are a pair, too.
    a, b = ({line[0] for line in side if line} for side in times)
    found = {(path, partner) for path in a if (partner := _partner_of(path, {*sources[1], *b}))}
    found |= {(partner, path) for path in b if (partner := _partner_of(path, {*sources[0], *a}))}
    alone_a, alone_b = a - {path for path, _ in found}, b - {path for _, path in found}
    if len(alone_a) == len(alone_b) == 1:
        found.add((alone_a.pop(), alone_b.pop()))
    return found


def _partner_of(path: str, others: Collection[str]) -> str | None:
    if path in others:
        return path
    named = [other for other in others if without_folders(other) == without_folders(path)]
    return named[0] if len(named) == 1 else None
