"""Comparison of a kernel's compiled code on both sides, joined with the time that each part of it takes.

It also covers what changed for the kernel as a whole: its resources, its build, its device and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from functools import cached_property, lru_cache, partial
from pathlib import Path

from msgspec import Struct

from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.loop_metrics import LoopFigures, loop_figures
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.structure.code_lines import DifferingLines, differing_lines, records_differ
from kprof_inject.analysis.structure.structural_changes import StructuralChange, structural_changes
from kprof_inject.analysis.unjudged import Unevaluated, evaluating
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, distinct_names
from kprof_inject.capture.source_text import SourceText, sources_of, ttgir_of
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.quantities import listed
from kprof_inject.report.diff.kernel_diff import KernelDiff, ScopeChange
from kprof_inject.report.diff.runs import SETTINGS, KernelRuns
from kprof_inject.report.diff.scope_matching import code_of
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.locations import SourcePoint
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

    def __str__(self) -> str:
        """Return its name."""
        return self.name


WHOLE = CodePart("the whole kernel")
OUTSIDE = CodePart("outside of loops")


class ChangedPart(Struct, frozen=True):
    """Loop of B, the code outside of loops, or the kernel as a whole, with all changes in it.

    ``explained`` is its part of the launch's change; None if the launch did not change or the part is unknown. A change
    to the kernel as a whole acts everywhere, so it explains the time of unchanged code. ``loops`` has the figures of
    the loop in A and in B; None for a part that is no loop, or is on one side alone.
    """

    part: CodePart
    changes: tuple[StructuralChange, ...]
    scopes: tuple[ScopeChange, ...]
    explained: float | None
    loops: tuple[LoopFigures, LoopFigures] | None = None

    @property
    def cta_change_ns(self) -> float | None:
        """Change of its scopes' time in a CTA; None if the launch did not change or it is unknown."""
        return None if self.explained is None else _sum([scope.own_cta_change_ns for scope in self.scopes])


class Structure(Struct, frozen=True):
    """Differences of the code between both sides.

    ``unexplained`` is the part of the launch's change in unchanged code; None if the launch did not change or it is
    unknown. ``differing_lines`` counts the TTGIR's differing lines, whether or not a change was found in them.
    ``everywhere`` has changes of the kernel as a whole, with causes of their own, that also act on parts with changes:
    times cannot separate the two. ``only_part`` is the part with all differences, which thus cause the launch's change,
    wherever its time shows; None if several parts differ, or a difference could act elsewhere.
    """

    parts: tuple[ChangedPart, ...]
    unexplained: float | None
    differing_lines: int
    everywhere: tuple[StructuralChange, ...] = ()
    only_part: CodePart | None = None


class ModuleChanges(Struct, frozen=True):
    """Changes from one ``.ttgir`` file to another, and whether anything else differs."""

    changes: tuple[StructuralChange, ...]
    differing_lines: int
    records_differ: bool


@lru_cache(maxsize=16)  # each view of a comparison needs it
def structure_of(diff: KernelDiff) -> Structure | None:
    """Return the changes of the code, largest part of the change first.

    None if a side has no module, or one that cannot be read or evaluated.
    """
    modules = [_module(side.kernel) for side in (diff.a, diff.b)]
    if modules[0] is None or modules[1] is None:
        return None
    try:
        with evaluating():
            return _structure(diff, modules[0], modules[1])
    except Unevaluated:
        return None


def _structure(diff: KernelDiff, a: Module, b: Module) -> Structure:
    texts = [SourceText(sources_of(side.kernel)) for side in (diff.a, diff.b)]
    changes = structural_changes(a, b, *(partial(_code_at, text) for text in texts))
    places = _Places(diff, a, b)
    by_part: dict[CodePart, list[StructuralChange]] = {}
    for change in (*whole_changes(diff, a, b), *changes):
        by_part.setdefault(places.part_of(change), []).append(change)
    of_whole = by_part.get(WHOLE, [])
    acting = [change for change in of_whole if acts_everywhere(change)]
    parts = sorted(_parts(places, by_part, bool(acting)), key=lambda part: -(part.explained or 0.0))
    unexplained = places.unexplained([part.explained for part in parts])
    has_others = any(part.explained is not None for part in parts if part.part != WHOLE)
    differing = differing_lines(a, b)
    differing_parts = places.parts_of_lines(differing) | by_part.keys() - {WHOLE}
    only = _only(differing_parts, of_whole) if is_same_work(diff) else None
    everywhere = tuple(filter(is_cause, acting)) if has_others else ()
    return Structure(tuple(parts), unexplained, differing.count, everywhere, only)


def _parts(
    places: _Places, by_part: Mapping[CodePart, Sequence[StructuralChange]], whole_acts: bool
) -> Iterator[ChangedPart]:
    for part, found in by_part.items():
        if part != WHOLE:
            yield ChangedPart(part, tuple(found), *places.weight(part), places.loops(part))
        else:
            yield ChangedPart(part, tuple(found), *(places.rest(by_part) if whole_acts else ((), None)))


def _only(parts: Set[CodePart], of_whole: Sequence[StructuralChange]) -> CodePart | None:
    """Return the only part with differences; ``parts`` have differing lines or changes of their own."""
    acts = any(map(is_cause, of_whole)) or (of_whole and not parts)
    places = {*parts, WHOLE} if acts else parts
    return next(iter(places)) if len(places) == 1 else None


def _median_launch(timelines: Sequence[Timeline]) -> Timeline:
    return sorted(timelines, key=lambda timeline: timeline.last_ns - timeline.first_ns)[len(timelines) // 2]


def _module(kernel: Kernel) -> Module | None:
    try:
        text = ttgir_of(kernel)
        return parse(text, str(kernel.folder)) if text else None
    except KprofError:
        return None


def _code_at(text: SourceText, point: SourcePoint) -> str:
    return code_of(text, f"{point.file}:{point.line}")


def changes_between(a: Path, b: Path) -> ModuleChanges:
    """Compare two ``.ttgir`` files; raise ``KprofError`` if a file cannot be read or evaluated."""
    modules = [parse(read_text(path), str(path)) for path in (a, b)]
    texts = [SourceText(saved_sources(path)) for path in (a, b)]
    with evaluating():
        changes = structural_changes(modules[0], modules[1], *(partial(_code_at, text) for text in texts))
        return ModuleChanges(
            tuple(changes), differing_lines(modules[0], modules[1]).count, records_differ(modules[0], modules[1])
        )


class _Places:
    """Parts of the kernel by operation, from the recorded scopes."""

    def __init__(self, diff: KernelDiff, a: Module, b: Module) -> None:
        self._diff = diff
        self._modules = a, b
        self._tables = diff.a.kernel.scopes, diff.b.kernel.scopes
        self._scope_maps = ScopeMap(a, self._tables[0]), ScopeMap(b, self._tables[1])
        names_a, names_b = (distinct_names(table.scopes) for table in self._tables)
        of_b = [CodePart(name, index) for index, name in enumerate(names_b)]
        # A matched loop of A is the part of its partner in B.
        matched = {change.index_a: of_b[change.index_b] for change in diff.every_scope}
        of_a = [matched.get(index, CodePart(name, index, is_of_a=True)) for index, name in enumerate(names_a)]
        self._parts = of_a, of_b
        table = self._tables[1]
        loops = [_loop_of(table, index) for index in range(len(table.scopes))]
        self._part_of_scope = [of_b[loop] if loop is not None else OUTSIDE for loop in loops]

    def part_of(self, change: StructuralChange) -> CodePart:
        """Return the innermost recorded loop around a change.

        A loop's own operations decide, not those peeled off it. Of several loops it is the one that explains most: one
        may only cover the case that another has nothing to do.
        """
        for side, operations in ((1, change.operations_b), (0, change.operations_a)):
            parts = [self._part_of_line(side, self._scope_maps[side].lines_of(one)[0]) for one in operations]
            loops = [part for part in parts if part != OUTSIDE]
            if loops:
                return max(loops, key=lambda part: abs(self.weight(part)[1] or 0.0))
        return OUTSIDE if change.operations_a or change.operations_b else WHOLE

    def parts_of_lines(self, differing: DifferingLines) -> set[CodePart]:
        """Return the parts with differing lines.

        Lines outside of functions belong to the kernel as a whole.
        """
        found = set()
        for side, lines in enumerate((differing.lines_a, differing.lines_b)):
            lines_of = self._scope_maps[side].lines_of
            functions = [lines_of(operation) for operation in self._modules[side].walk() if operation.name == FUNCTION]
            for line in lines:
                is_inside = any(first <= line <= last for first, last in functions)
                found.add(self._part_of_line(side, line) if is_inside else WHOLE)
        return found

    def _part_of_line(self, side: int, line: int) -> CodePart:
        table = self._tables[side]
        loop = self._scope_maps[side].innermost_at(line, lambda index: _is_loop(table, index))
        return OUTSIDE if loop is None else self._parts[side][loop]

    def weight(self, part: CodePart) -> tuple[tuple[ScopeChange, ...], float | None]:
        """Return the changes of a part's scopes, and the part of the launch's change that they explain."""
        scopes = tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.index_b] == part)
        return scopes, _sum([scope.explained for scope in scopes])

    def loops(self, part: CodePart) -> tuple[LoopFigures, LoopFigures] | None:
        """Return the figures of a loop on both sides; None for a part that is no matched loop."""
        for scope in self._diff.every_scope:
            if part == self._parts[1][scope.index_b]:
                a, b = self._launches
                return loop_figures(a, scope.index_a), loop_figures(b, scope.index_b)
        return None

    @cached_property
    def _launches(self) -> tuple[LaunchAnalysis, LaunchAnalysis]:
        a, b = (LaunchAnalysis.of(_median_launch(side.timelines)) for side in (self._diff.a, self._diff.b))
        return a, b

    def rest(self, parts: Container[CodePart]) -> tuple[tuple[ScopeChange, ...], float | None]:
        """Return the same for the scopes outside of these parts."""
        scopes = tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.index_b] not in parts)
        return scopes, _sum([scope.explained for scope in scopes])

    def unexplained(self, weights: Sequence[float | None]) -> float | None:
        """Return the part of the launch's change that is in other parts, or in no scope."""
        known = _sum([scope.explained for scope in self._diff.every_scope])
        return None if known is None else 1 - sum(weight or 0.0 for weight in weights)


def _is_loop(table: ScopeTable, index: int) -> bool:
    """Return whether a scope represents a loop: a loop, or iterations whose loop was not recorded."""
    scope = table.scopes[index]
    if scope.kind != ScopeKind.ITERATION:
        return scope.kind == ScopeKind.LOOP
    return scope.parent < 0 or table.scopes[scope.parent].kind != ScopeKind.LOOP


def _loop_of(table: ScopeTable, index: int) -> int | None:
    """Return the innermost loop around a scope, or the scope itself if it is one."""
    return next((scope for scope in (index, *table.around(index)) if _is_loop(table, scope)), None)


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


# Resources of a build, the Triton that compiled it, and the device that runs it.
_BUILD = {
    **dict.fromkeys(("registers", "spills", "shared bytes", "CTAs per SM", "device"), "{0}"),
    "triton_version": "lowered by Triton {0.a} → {0.b}",
}
"""Message template for each property that differs."""
# Consequences of the code and its compiler. More registers or shared memory slow unchanged code only through fewer CTAs
# on an SM.
_RESOURCES = frozenset({"registers", "spills", "shared-bytes", "CTAs-per-SM"})
_IDLE = frozenset({"registers", "shared-bytes"})
# Settings that the module itself shows, and settings that only affect records.
_SEEN = frozenset({"kernel", "target", "num_warps", "num_ctas", "num_stages", "maxnreg", "warp size"})
_OF_RECORDS = frozenset({"records", "recorded warps"})
_INTEGER = re.compile(r"i\d+")


def whole_changes(diff: KernelDiff, a: Module, b: Module) -> Iterator[StructuralChange]:
    """Yield changes that a comparison of the modules cannot find: of builds, options and arguments."""
    for difference in diff.differences:
        what = difference.what
        if what in _BUILD:
            yield StructuralChange(what.replace(" ", "-"), _BUILD[what].format(difference))
        elif what not in SETTINGS:
            yield StructuralChange("option", f"option {difference}")
    before, after = _arguments(diff.a, a), _arguments(diff.b, b)
    for name, values in after.items():
        if before.get(name, values) != values:
            yield StructuralChange("argument", f"argument {name} {_listed(before[name])} → {_listed(values)}")


def acts_everywhere(change: StructuralChange) -> bool:
    """Return whether a change of the kernel as a whole acts on unchanged code."""
    return change.id not in _IDLE


def is_cause(change: StructuralChange) -> bool:
    """Return whether a change is a cause of its own, not a consequence of changed code."""
    return change.id not in _RESOURCES


def is_same_work(diff: KernelDiff) -> bool:
    """Return whether all differences are among the changes; a different grid, for one, is not."""
    covered = _SEEN | _OF_RECORDS | _BUILD.keys()
    return all(difference.what in covered or difference.what not in SETTINGS for difference in diff.differences)


def _arguments(runs: KernelRuns, module: Module) -> dict[str, tuple[int, ...]]:
    """Return the integers that a side's launches passed for each argument, where known."""
    function = entry_function(module)
    if function is None:
        return {}
    names, types = argument_names(module, function), argument_types(function)
    found: dict[str, set[int]] = {}
    for timeline in runs.timelines:
        values: Sequence[int | None] = timeline.launch.arguments
        if len(values) == len(names) == len(types):
            for name, type_, value in zip(names, types, values, strict=True):
                if value is not None and _INTEGER.fullmatch(type_):
                    found.setdefault(name.lstrip("%"), set()).add(value)
    return {name: tuple(sorted(values)) for name, values in found.items()}


_MAX_VALUES = 4


def _listed(values: Sequence[int]) -> str:
    return listed(list(map(str, values)), _MAX_VALUES)
