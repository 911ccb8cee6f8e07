"""The places that can be selected in a module, with their selectors: for lists, hints and shell completion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress

from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.quantities import counted
from kprof_inject.select.functions import is_anchor
from kprof_inject.select.markers import Marker
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.python_source import is_library
from kprof_inject.select.sites import Site
from kprof_inject.select.spans import in_one_piece
from kprof_inject.select.tags import is_inserted
from kprof_inject.select.targets import find_asynchronous, find_parts, find_spins, findings_of
from kprof_inject.ttgir.locations import SourcePoint
from kprof_inject.ttgir.loops import copy_pipelines


class Candidate(Struct, frozen=True):
    """A place to select."""

    selector: str
    what: str  # a description in a word or two
    sources: tuple[SourcePoint, ...]  # the lines of its sites (for a helper, of its calls), as far as known
    count: int = 1
    depth: int = 0  # the number of loops around a loop


def candidates(view: ModuleView) -> tuple[str, ...]:
    """Return the selectors that find something in this module, the widest first."""
    return tuple(candidate.selector for candidate in outline(view))


def outline(view: ModuleView) -> tuple[Candidate, ...]:
    """Return everything that can be selected in this module, the widest first."""
    finders = (_functions, _loops, _partitions, _markers, _helpers, _kinds, _operations)
    return tuple(candidate for find in finders for candidate in find(view))


def _functions(view: ModuleView) -> Iterator[Candidate]:
    for function in view.functions:
        if function.is_public:
            yield Candidate("func", f"kernel {function.symbol}", function.source_of(function.operation)[:1])


def _loops(view: ModuleView) -> Iterator[Candidate]:
    found: dict[tuple[str, str, int], list[Site]] = {}
    pipelines = {pipeline.loop: pipeline for pipeline in copy_pipelines(view.module)}
    for function in view.functions:
        for loop in function.loops:
            if function.refusal(loop.operation):
                continue
            depth, site = len(loop.path) - 1, function.loop_site(loop)
            partition = function.partition_of(loop.operation)
            what = "loop that polls" if loop.polls else "loop"
            what += f" in {partition}" if partition else ""
            if pipeline := pipelines.get(loop.operation):
                reads = ", reads 1" if pipeline.reads_ahead else ""
                ahead = f", copies {counted(pipeline.depth, 'iteration')} ahead{reads}"
                what += ahead if pipeline.depth else ", waits for its own copies"
            found.setdefault((f"loop{loop.subscript}", what, depth), []).append(site)
            found.setdefault((f"iter{loop.subscript}", "iterations", depth), []).append(site)
    for (selector, what, depth), sites in found.items():
        yield Candidate(selector, what, _lines(sites), len(sites), depth)


def _partitions(view: ModuleView) -> Iterator[Candidate]:
    what = "region of ttg.warp_specialize"
    default, *others = view.partitions.all or (None,)
    numbers = iter(others)
    facts: dict[str, list[str]] = {}
    for function in view.functions:
        for label, _, region in function.partitions():
            partition = default if label == "default" else next(numbers)
            warps = counted(partition.warps, "warp") if partition and partition.warps is not None else ""
            parts = (what, warps, view.partitions.functions[region.blocks[0].start])
            facts.setdefault(label, []).append(", ".join(filter(None, parts)))
    for label, found in facts.items():
        yield Candidate(label, found[0] if len(set(found)) == 1 else what, (), len(found))


def _markers(view: ModuleView) -> Iterator[Candidate]:
    by_name: dict[str, list[Marker]] = {}
    with suppress(KprofError):  # a wrong marker is reported when markers are selected; here it only cannot be selected
        for marker in view.markers:
            by_name.setdefault(marker.name, []).append(marker)
    for name, named in by_name.items():
        kinds = dict.fromkeys(marker.kind for marker in named)
        points = tuple(SourcePoint(marker.file, marker.line, 0) for marker in named)
        sites = sum(len(findings_of(marker, view, in_one_piece).sites) for marker in named)
        if sites:
            yield Candidate(f"marker({name})", f"marked {', '.join(kinds)}", points, sites)


def _helpers(view: ModuleView) -> Iterator[Candidate]:
    calls: dict[str, list[SourcePoint]] = {}
    for function, call in view.inlined_calls:
        if not is_library(call.source.file) and not all(map(function.refusal, call.operations)):
            calls.setdefault(call.name, []).append(call.path[0])
    for name, points in calls.items():
        yield Candidate(f"func({name})", "inlined helper", tuple(points), len(points))
    kept: dict[str, list[Site]] = {}
    for name, found in view.kept_calls:
        kept.setdefault(name, []).extend(found.sites)
    for name, sites in kept.items():
        if sites:
            yield Candidate(f"func({name})", "helper that is called", _lines(sites), len(sites))


def _kinds(view: ModuleView) -> Iterator[Candidate]:
    if sites := find_spins(view, in_one_piece).sites:
        yield Candidate("spin", "waits for memory to change", _lines(sites), len(sites))
    if sites := find_asynchronous(view, in_one_piece).sites:
        yield Candidate("async", "starts and waits", (), len(sites))
    if len(sites := find_parts(view, in_one_piece).sites) > 1:
        yield Candidate("parts", "parts of the loops", (), len(sites))


def _operations(view: ModuleView) -> Iterator[Candidate]:
    found = [
        operation
        for function in view.functions
        for operation in function.operations
        if not function.refusal(operation) and not operation.traits.is_loop and not is_inserted(operation)
    ]
    counts = Counter(operation.name for operation in found)
    for name in dict.fromkeys(operation.name for operation in found if is_anchor(operation)):
        yield Candidate(f"op({name})", "operation", (), counts[name])


def _lines(sites: Sequence[Site]) -> tuple[SourcePoint, ...]:
    return tuple(dict.fromkeys(site.source for site in sites if site.source is not None))
