"""Comparison of a kernel's compiled code on both sides, joined with the time that each part of it takes.

It also covers what changed for the kernel as a whole: its resources, its build, its device and its arguments.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path

from msgspec import Struct

from kprof_inject.analysis.comparison.causes import (
    MIN_EXPLAINED,
    explained_by,
    is_certain,
    largest_scope,
    net_cta_change_ns,
    own_cta_change_ns,
)
from kprof_inject.analysis.comparison.matching import code_of
from kprof_inject.analysis.comparison.runs import SETTINGS, KernelRuns, differences
from kprof_inject.analysis.comparison.verdicts import KernelDiff, ScopeChange
from kprof_inject.analysis.findings.loops import LoopFigures
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.structure.structural_changes import (
    LinePair,
    StructuralChange,
    differing_lines,
    structural_changes,
)
from kprof_inject.analysis.unjudged import Unevaluated, evaluating
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, distinct_names
from kprof_inject.capture.source_text import SourceText, sources_of, ttgir_of
from kprof_inject.errors import KprofError
from kprof_inject.files import read_text
from kprof_inject.quantities import listed
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
    scopes: tuple[ScopeChange, ...] = ()
    explained: float | None = None
    cta_change_ns: float | None = None
    """Change of its scopes' time in a CTA; None if the launch did not change or it is unknown."""
    loops: tuple[LoopFigures, LoopFigures] | None = None
    is_certain: bool = False
    """True if any of its scopes certainly changed as the launch did."""

    @property
    def loop(self) -> ScopeChange | None:
        """The loop's own scope; None for a part that is no loop, or is on one side alone."""
        is_of_b = self.part.index is not None and not self.part.is_of_a
        return next((scope for scope in self.scopes if is_of_b and scope.match.b == self.part.index), None)


class Structure(Struct, frozen=True):
    """Differences of the code between both sides.

    ``differing_lines`` counts the TTGIR's differing lines, whether or not a change was found in them.
    ``everywhere`` has changes of the kernel as a whole, with causes of their own, that also act on parts with changes:
    times cannot separate the two. ``only_part`` is the part with all differences, which thus cause the launch's change,
    wherever its time shows; None if several parts differ, or a difference could act elsewhere.
    """

    parts: tuple[ChangedPart, ...]
    differing_lines: int
    everywhere: tuple[StructuralChange, ...] = ()
    only_part: CodePart | None = None


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
    for change in (*_whole_changes(diff, a, b), *changes):
        by_part.setdefault(places.part_of(change), []).append(change)
    of_whole = by_part.get(WHOLE, [])
    acting = [change for change in of_whole if change.id not in _IDLE]
    found = []
    for part, changes_inside in by_part.items():
        # A change of the whole kernel acts on all code without changes of its own.
        scopes = places.scopes_of(part) if part != WHOLE else places.scopes_outside(by_part) if acting else ()
        explained = places.explained(scopes)
        own_ns = None if explained is None else _sum([own_cta_change_ns(diff, scope) for scope in scopes])
        certain = any(is_certain(diff, scope) for scope in scopes)
        loops = places.loops(part)
        found.append(ChangedPart(part, tuple(changes_inside), scopes, explained, own_ns, loops, certain))
    parts = tuple(sorted(found, key=lambda part: -(part.explained or 0.0)))
    has_others = any(part.explained is not None for part in parts if part.part != WHOLE)
    differing = differing_lines(a, b)
    only = None
    covered = _SEEN | _OF_RECORDS | _BUILD.keys()
    # All other differences, such as of the grid, are more than a change of the code.
    if all(difference.what in covered or difference.what not in SETTINGS for difference in differences(diff.a, diff.b)):
        differ = places.parts_of_lines(differing) | by_part.keys() - {WHOLE}
        if any(map(_is_cause, of_whole)) or (of_whole and not differ):
            differ = {*differ, WHOLE}
        only = next(iter(differ)) if len(differ) == 1 else None
    everywhere = tuple(filter(_is_cause, acting)) if has_others else ()
    return Structure(parts, len(differing), everywhere, only)


def _module(kernel: Kernel) -> Module | None:
    try:
        text = ttgir_of(kernel)
        return parse(text, str(kernel.folder)) if text else None
    except KprofError:
        return None


def _code_at(text: SourceText, point: SourcePoint) -> str:
    return code_of(text, f"{point.file}:{point.line}")


def changes_between(a: Path, b: Path) -> tuple[list[StructuralChange], int]:
    """Return the changes from one ``.ttgir`` file to another, and the number of differing lines.

    Raises ``KprofError`` if a file cannot be read or evaluated.
    """
    modules = [parse(read_text(path), str(path)) for path in (a, b)]
    texts = [SourceText(saved_sources(path)) for path in (a, b)]
    with evaluating():
        changes = structural_changes(modules[0], modules[1], *(partial(_code_at, text) for text in texts))
        return list(changes), len(differing_lines(*modules))


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
        """Return the innermost recorded loop around a change.

        A loop's own operations decide, not those peeled off it. Of several loops it is the one that explains most: one
        may only cover the case that another has nothing to do.
        """
        for side, operations in ((1, change.operations_b), (0, change.operations_a)):
            parts = [self._part_of_line(side, self._scope_maps[side].lines_of(one)[0]) for one in operations]
            loops = [part for part in parts if part != OUTSIDE]
            if loops:
                return max(loops, key=lambda part: abs(self.explained(self.scopes_of(part)) or 0.0))
        return OUTSIDE if change.operations_a or change.operations_b else WHOLE

    def parts_of_lines(self, differing: Sequence[LinePair]) -> set[CodePart]:
        """Return the parts with differing lines.

        Lines outside of functions belong to the kernel as a whole.
        """
        functions = [
            [scope_map.lines_of(operation) for operation in module.walk() if operation.name == FUNCTION]
            for scope_map, module in zip(self._scope_maps, self._modules, strict=True)
        ]
        found = set()
        for side, line in ((side, line) for pair in differing for side, line in enumerate(pair) if line is not None):
            is_inside = any(first <= line <= last for first, last in functions[side])
            found.add(self._part_of_line(side, line) if is_inside else WHOLE)
        return found

    def _part_of_line(self, side: int, line: int) -> CodePart:
        table = self._tables[side]
        loop = self._scope_maps[side].innermost_at(line, lambda index: _is_loop(table, index))
        return OUTSIDE if loop is None else self._parts[side][loop]

    def scopes_of(self, part: CodePart) -> tuple[ScopeChange, ...]:
        """Return the scopes of a part."""
        return tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.match.b] == part)

    def scopes_outside(self, parts: Container[CodePart]) -> tuple[ScopeChange, ...]:
        """Return the scopes of all other parts."""
        return tuple(scope for scope in self._diff.every_scope if self._part_of_scope[scope.match.b] not in parts)

    def explained(self, scopes: Sequence[ScopeChange]) -> float | None:
        """Return the part of the launch's change that these scopes explain."""
        return _sum([explained_by(self._diff, scope) for scope in scopes])

    def loops(self, part: CodePart) -> tuple[LoopFigures, LoopFigures] | None:
        """Return the figures of a loop on both sides; None for a part that is no matched loop."""
        match = next((one for one in self._diff.matching.matches if part == self._parts[1][one.b]), None)
        return (self._diff.a.loop(match.a), self._diff.b.loop(match.b)) if match else None


def _is_loop(table: ScopeTable, index: int) -> bool:
    """Return True if a scope represents a loop: a loop, or iterations whose loop was not recorded."""
    scope = table.scopes[index]
    if scope.kind != ScopeKind.ITERATION:
        return scope.kind == ScopeKind.LOOP
    return scope.parent < 0 or table.scopes[scope.parent].kind != ScopeKind.LOOP


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
_SEEN = frozenset({"kernel", "target", "num_warps", "num_ctas", "num_stages", "maxnreg"})
_OF_RECORDS = frozenset({"records", "recorded warps"})
_INTEGER = re.compile(r"i\d+")


def _whole_changes(diff: KernelDiff, a: Module, b: Module) -> Iterator[StructuralChange]:
    """Yield changes that a comparison of the modules cannot find: of builds, options and arguments."""
    for difference in differences(diff.a, diff.b):
        what = difference.what
        if what in _BUILD:
            yield StructuralChange(what.replace(" ", "-"), _BUILD[what].format(difference))
        elif what not in SETTINGS:
            yield StructuralChange("option", f"option {difference}")
    before, after = _arguments(diff.a, a), _arguments(diff.b, b)
    for name, values in after.items():
        if before.get(name, values) != values:
            was, now = (listed(list(map(str, side)), _MAX_VALUES) for side in (before[name], values))
            yield StructuralChange("argument", f"argument {name} {was} → {now}")


def _is_cause(change: StructuralChange) -> bool:
    return change.id not in _RESOURCES


def _arguments(runs: KernelRuns, module: Module) -> dict[str, tuple[int, ...]]:
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


def elsewhere_cta_ns(structure: Structure, diff: KernelDiff) -> float | None:
    """Return the change of a CTA's time outside of the parts."""
    net_ns = net_cta_change_ns(diff)
    parts_ns = [part.cta_change_ns for part in structure.parts if part.scopes]
    known_ns = [part_ns for part_ns in parts_ns if part_ns is not None]
    if net_ns is None or not known_ns or len(known_ns) < len(parts_ns):
        return None
    return net_ns - sum(known_ns)


def largest_cause(diff: KernelDiff) -> tuple[ScopeChange | None, ChangedPart | None, float]:
    """Return the largest cause of the launch's change, and how much it explains.

    It is a scope, the changed part of the code that it is in, or both; neither if nothing explains much of the change.
    """
    structure, scope = structure_of(diff), largest_scope(diff)
    parts = structure.parts if structure else ()
    by_scope = (explained_by(diff, scope) or 0.0) if scope else 0.0
    part = next((part for part in parts if scope in part.scopes), None)
    largest = parts[0] if parts else None
    if largest is not None and largest is not part and (largest.explained or 0.0) >= max(by_scope, MIN_EXPLAINED):
        part, scope = largest, None
    if part is not None and (scope is None or part.loop is not None):
        return part.loop, part, part.explained or 0.0
    return scope, part, by_scope
