"""Selectors' kinds and markers' kinds, and the sites that each finds in a module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence, Set
from fnmatch import fnmatchcase
from typing import Any

from msgspec import Struct, structs

from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.select.functions import Function, Loop, block_kind
from kprof_inject.select.markers import INSTANT, ITERATION, LOOP, STATEMENTS, Marker
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.python_source import Sources, is_library
from kprof_inject.select.sites import Dropped, Found, Missed, Site
from kprof_inject.select.spans import Group, Spread, instants, segments_of, span
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.dialect import DOT_COMMIT, ENDS_OF_COPIES, TILE_REQUESTS, WARP_GROUP_DOT, traits_of
from kprof_inject.ttgir.locations import Chain, SourcePoint
from kprof_inject.ttgir.loops import is_asynchronous_dot
from kprof_inject.ttgir.nodes import Block, Operation
from kprof_inject.ttgir.polling import polls


class SourceLines(Struct, frozen=True):
    """``file.py:57-63``: source lines, including the rest of each statement or header that begins on them.

    Triton's location for a statement may be on any of its lines. A ``file`` that is not absolute may be the end of a
    path; empty means any file but Triton's own.
    """

    file: str
    first: int
    last: int

    def holds(self, point: SourcePoint, sources: Sources) -> bool:
        """Return whether a source position is on these lines."""
        if self.file:
            is_of_file = self.file == point.file or f"/{point.file}".endswith(f"/{self.file}")
        else:  # only the user's own lines, not lines with this number in the libraries they call
            is_of_file = not is_library(point.file)
        if point.line < self.first or not is_of_file:
            return False
        return point.line <= self.last or self.first <= sources.statement_line(point.file, point.line) <= self.last

    def readings(self, kernel_file: str) -> tuple[SourceLines, ...]:
        """Return the lines of the kernel's own file, then of any file: the first that find something count."""
        return (self,) if self.file else (structs.replace(self, file=kernel_file), self)

    def groups_in(self, function: Function, sources: Sources, kind: str, label: str) -> Iterator[Group]:
        """Yield the operations of these lines and of what they call, grouped by the calls that lead to the lines."""
        found: dict[Chain, tuple[str, dict[Operation, None]]] = {}
        for operation in function.operations:
            for chain in function.chains_of(operation):
                depth = next((d for d in reversed(range(len(chain))) if self.holds(chain[d], sources)), None)
                if depth is not None:
                    found.setdefault(chain[depth + 1 :], (chain[depth].file, {}))[1][operation] = None
        for path, (file, operations) in found.items():
            yield Group(function, kind, label, tuple(operations), SourcePoint(file, self.first, 0), path)


LoopFilter = tuple[int, ...] | SourceLines | None
"""A selector's subscript, which chooses loops: ``[0.2]``, the third loop inside the first, or ``@57``; None for all."""


def _accepted_loops(function: Function, which: LoopFilter, sources: Sources) -> Iterator[Loop]:
    for loop in function.loops:
        if isinstance(which, SourceLines):
            is_accepted = any(which.holds(point, sources) for point in function.source_of(loop.operation)[:1])
        else:
            is_accepted = which in (None, loop.path)
        if is_accepted:
            yield loop


SiteOfLoop = Callable[[Function, Loop], Site]


def _loops_in(
    function: Function, which: LoopFilter, sources: Sources, site_of: SiteOfLoop, polls: bool | None = None
) -> Found:
    sites, missed = [], []
    for loop in _accepted_loops(function, which, sources):
        if polls not in (None, loop.polls):
            continue
        if refusal := function.refusal(loop.operation):
            missed.append(Missed(loop.operation, refusal))
        else:
            sites.append(site_of(function, loop))
    return function.findings(sites, missed)


def findings_of(marker: Marker, view: ModuleView, spread: Spread) -> Found:
    """Return the sites of a marker; ``dropped`` says if the compiler left nothing of the marked code."""
    found = Found.merge(list(_find(marker, view, spread)))
    if found.sites or found.missed:
        return found
    what = "loop" if marker.kind in (LOOP, ITERATION) else "operation"
    return structs.replace(found, dropped=(Dropped(f"{marker.name} ({marker.file}:{marker.line})", what),))


def _find(marker: Marker, view: ModuleView, spread: Spread) -> Iterator[Found]:
    if marker.kind == STATEMENTS:
        (lines,) = marker.statements
        for function in view.functions:
            groups = SourceLines(marker.file, *lines).groups_in(function, view.sources, ScopeKind.MARKER, marker.name)
            yield from (span(group, spread) for group in groups)
    elif marker.kind == INSTANT:
        yield from (instants(group, is_before=marker.is_before) for group in _nearest_groups(marker, view))
    else:
        site_of = Function.loop_site if marker.kind == LOOP else Function.iteration_site
        loop = SourceLines(marker.file, marker.loop_line, marker.loop_line)
        for function in view.functions:
            found = _loops_in(function, loop, view.sources, site_of)
            sites = (dataclasses.replace(site, name=marker.name) for site in found.sites)
            yield structs.replace(found, sites=tuple(sites))


def _nearest_groups(marker: Marker, view: ModuleView) -> Iterator[Group]:
    loop = SourceLines(marker.file, marker.loop_line, marker.loop_line)
    for function in view.functions:
        loops = {found.operation.start for found in _accepted_loops(function, loop, view.sources)}
        by_calls: dict[Chain, list[Group]] = {}
        for first, last in marker.statements:
            lines = SourceLines(marker.file, first, last)
            for group in lines.groups_in(function, view.sources, ScopeKind.INSTANT, marker.name):
                by_calls.setdefault(group.called_from, []).append(group)
        for groups in by_calls.values():
            yield _nearest(groups, loops)


def _nearest(groups: Sequence[Group], loops: Set[int]) -> Group:
    # The first group with a segment in one of the loops, else the first with any: code that the compiler has moved out
    # of its loop runs once, and not in each iteration.
    def rank(group: Group) -> tuple[bool, bool]:
        segments = segments_of(group)
        owners = (owner for segment in segments for owner in segment.operations[0].owners())
        return any(owner.start in loops for owner in owners), bool(segments)

    return max(groups, key=rank)


class SitePattern(Struct, frozen=True):
    """The SITE part of a selector: the function that finds its sites in a module, and what it looks for."""

    finder: Callable[..., Found]  # takes a module's view, the way to spread source lines and helpers, and ``arguments``
    arguments: tuple[Any, ...] = ()

    def find(self, view: ModuleView, spread: Spread) -> Found:
        """Return the sites in a module, in the order of the text."""
        return self.finder(view, spread, *self.arguments)


def find_kernel(view: ModuleView, _: Spread) -> Found:
    """Return the site of the kernel's body, for ``func``."""
    return Found.merge([f.findings([f.body_site()]) for f in view.functions if f.is_public])


def find_helper(view: ModuleView, spread: Spread, glob: str) -> Found:
    """Return a site for each call of a helper, for ``func(NAME)``, by blocks where inlined; or the kernel's body."""
    found = []
    for function in view.functions:
        names = view.helper_names[function.symbol], function.symbol
        if function.is_public and any(fnmatchcase(name, glob) for name in names):
            found.append(function.findings([function.body_site()]))
    for function, call in view.inlined_calls:
        if fnmatchcase(call.name, glob):
            label = f"{call.name}@{call.path[0].line}"
            group = Group(function, ScopeKind.FUNCTION, label, call.operations, call.source, call.path)
            found.append(span(group, spread))
    return Found.merge([*found, *(around for name, around in view.kept_calls if fnmatchcase(name, glob))])


def find_loops(
    view: ModuleView, _: Spread, site_of: SiteOfLoop, which: LoopFilter = None, polls: bool | None = None
) -> Found:
    """Return the sites of loops, for ``loop…`` and ``iter…``; with ``polls``, only of those that poll, or do not."""
    readings = which.readings(view.kernel_file) if isinstance(which, SourceLines) else (which,)
    return Found.first_of(
        Found.merge([_loops_in(function, reading, view.sources, site_of, polls) for function in view.functions])
        for reading in readings
    )


def find_spins(view: ModuleView, spread: Spread) -> Found:
    """Return a site around each loop and operation that does nothing but wait until memory changes, for ``spin``."""
    loops = find_loops(view, spread, Function.loop_site, polls=True)
    return Found.merge([loops, _operations_that(view, polls)])


def find_operations(view: ModuleView, _: Spread, glob: str) -> Found:
    """Return a site around each operation whose name matches, for ``op(GLOB)``."""
    return _operations_that(view, lambda operation: fnmatchcase(operation.name, glob))


def find_asynchronous(view: ModuleView, _: Spread) -> Found:
    """Return a site around each operation that starts asynchronous work, or waits for some, for ``async``."""

    def is_asynchronous(operation: Operation) -> bool:
        if operation.name == WARP_GROUP_DOT:  # the only operation that may be either
            return is_asynchronous_dot(operation)
        return operation.traits.starts_async or operation.traits.waits_for_async

    return _operations_that(view, is_asynchronous)


def _operations_that(view: ModuleView, matches: Callable[[Operation], bool]) -> Found:
    sites: list[Site] = []
    missed: list[Missed] = []
    covered: set[int] = set()
    for function in view.functions:
        for operation in filter(matches, function.operations):
            if refusal := function.refusal(operation):
                missed.append(Missed(operation, refusal))
            else:
                sites.append(function.operation_site(operation))
                covered.add(operation.start)
    return Found(tuple(sites), tuple(missed), frozenset(covered))


def find_lines(view: ModuleView, spread: Spread, which: SourceLines) -> Found:
    """Return the sites of the operations that come from these source lines, for ``line(…)``, by blocks."""
    lines = str(which.first) if which.first == which.last else f"{which.first}-{which.last}"
    label = f"line({which.file}:{lines})" if which.file else f"line({lines})"
    return Found.first_of(
        Found.merge(
            [
                span(group, spread)
                for function in view.functions
                for group in reading.groups_in(function, view.sources, ScopeKind.LINES, label)
            ]
        )
        for reading in which.readings(view.kernel_file)
    )


def find_partitions(view: ModuleView, _: Spread, glob: str, written_as: str = "*") -> Found:
    """Return a site for each ``ttg.warp_specialize`` region whose word matches, and the function it was written as."""
    found = []
    for function in view.functions:
        sites = [
            function.region_site(ScopeKind.PARTITION, label, operation, region, "partition")
            for label, operation, region in function.partitions()
            if fnmatchcase(label, glob) and fnmatchcase(view.partitions.functions[region.blocks[0].start], written_as)
        ]
        found.append(function.findings(sites))
    return Found.merge(found)


def find_marked(view: ModuleView, spread: Spread, glob: str) -> Found:
    """Return the sites of the marker comments whose names match, for ``marker…``."""
    return Found.merge([findings_of(marker, view, spread) for marker in view.markers if fnmatchcase(marker.name, glob)])


COPIES, LOADS, STORES, WAIT, DOT, ARRIVE = "copies", "loads", "stores", "wait", "dot", "arrive"
PROLOGUE, EPILOGUE = "prologue", "epilogue"


def part_of(operation_name: str) -> str:
    """Return the kind of part for operations of this name; empty for arithmetic, addresses and layouts."""
    traits = traits_of(operation_name)
    if traits.is_dot:
        return DOT
    if traits.is_wait:
        return WAIT
    if traits.combines_elements or traits.is_transcendental:
        return operation_name.rpartition(".")[2]
    if traits.is_foreign:
        return "asm"
    if traits.writes_global:
        return STORES
    if traits.is_arrival:
        return ARRIVE
    if traits.starts_async and operation_name not in (DOT_COMMIT, *TILE_REQUESTS):
        return COPIES
    return LOADS if traits.reads_global else ""


def find_parts(view: ModuleView, _: Spread) -> Found:
    """Return the parts of a kernel that its operations distinguish, for ``parts``; causal profiling delays them.

    They are issues of copies, waits, dots, reductions and the like in its innermost loops, or in a function without
    loops, and the code before and after its loops.
    """
    found = []
    for function in view.functions:
        loops = [loop.operation for loop in function.loops if not function.refusal(loop.operation)]
        around = {owner for loop in loops for owner in loop.owners()}
        innermost = [loop for loop in loops if loop not in around]
        inside = [operation for loop in innermost for operation in loop.walk() if operation is not loop]
        sites = [*_runs(function, inside if innermost else function.operations)]
        if function.is_public and innermost:
            sites += _around_loops(function, loops)
        found.append(function.findings(sorted(sites, key=lambda site: site.start.offset)))
    return Found.merge(found)


def _runs(function: Function, operations: Sequence[Operation]) -> Iterator[Site]:
    # Operations of one kind in a block, with any arithmetic between them. Dots, waits and arrivals are parts by
    # themselves, and a group of copies ends with its commit.
    by_block: dict[Block, list[tuple[str, Operation]]] = {}
    for operation in operations:
        kind = part_of(operation.name)
        if kind and operation.block and not function.refusal(operation):
            by_block.setdefault(operation.block, []).append((kind, operation))
    for found in by_block.values():
        run: list[Operation] = []
        following = [*(kind for kind, _ in found[1:]), ""]
        for (kind, operation), next_kind in zip(found, following, strict=True):
            run.append(operation)
            if next_kind != kind or kind in (DOT, WAIT, ARRIVE) or operation.name in ENDS_OF_COPIES:
                chain = _users_lines(function, run[0])
                name = f"{kind}@{chain[0].line}" if chain else kind
                if len(run) == 1:
                    site, source = function.operation_site(operation), next(iter(chain), None)
                    yield dataclasses.replace(site, name=name, source=source, called_from=chain[1:])
                else:
                    yield _span(function, name, run[0], operation, chain, len(run))
                run = []


def _users_lines(function: Function, operation: Operation) -> Chain:
    chain = function.source_of(operation)
    own = next((depth for depth, point in enumerate(chain) if not is_library(point.file)), len(chain))
    return chain[own:]


def _span(function: Function, name: str, first: Operation, last: Operation, chain: Chain, own: int) -> Site:
    ends = (function.after(last),)
    return function.site(ScopeKind.PART, name, function.before(first), ends, chain, block_kind(first), own=own)


def _around_loops(function: Function, loops: Sequence[Operation]) -> Iterator[Site]:
    blocks = function.operation.regions[0].blocks
    if len(blocks) > 1:
        return
    operations = blocks[0].operations
    carriers = {owner for loop in loops for owner in (loop, *loop.owners())}
    places = [place for place, operation in enumerate(operations) if operation in carriers]
    if not places:  # a damaged module
        return
    following = [operation for operation in operations[places[-1] + 1 :] if not operation.traits.is_terminator]
    for name, found in ((PROLOGUE, operations[: places[0]]), (EPILOGUE, following)):
        working = [operation for operation in found if function.does_work(operation) and not is_inserted(operation)]
        if working:
            yield _span(function, name, found[0], found[-1], _users_lines(function, working[0]), len(found))
