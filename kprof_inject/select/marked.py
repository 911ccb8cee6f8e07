"""What each kind of marker comment brackets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace

from kprof_inject.select.filters import SourceLines, accepted_loops, loop_findings
from kprof_inject.select.functions import Function, Loop
from kprof_inject.select.sites import Dropped, Findings, Site
from kprof_inject.select.source.markers import InstantMarker, IterationMarker, LoopMarker, Marker, RangeMarker
from kprof_inject.select.spans import Group, Spread, instants_after, instants_before, segments_of, span
from kprof_inject.select.view import ModuleView
from kprof_inject.ttgir.locations import Chain


def findings_of(marker: Marker, view: ModuleView, spread: Spread) -> Findings:
    """The sites of one marker; if the compiler left nothing of what it marks, ``dropped`` says so."""
    found = Findings.together(list(_find(marker, view, spread)))
    if found.sites or found.missed:
        return found
    what = "loop" if isinstance(marker, LoopMarker | IterationMarker) else "operation"
    return replace(found, dropped=(Dropped(f"{marker.name} ({marker.file}:{marker.line})", what),))


def _find(marker: Marker, view: ModuleView, spread: Spread) -> Iterator[Findings]:
    match marker:
        case RangeMarker(first_line=first, last_line=last):
            lines = SourceLines(marker.file, first, last)
            for function in view.functions:
                for group in lines.groups_in(function, "marker", marker.name):
                    yield span(group, spread)
        case InstantMarker(is_before=is_before):
            for group in _nearest_groups(marker, view):
                yield instants_before(group) if is_before else instants_after(group)
        case LoopMarker(loop_line=line):
            yield from _loops(marker, line, view, Function.loop_site)
        case IterationMarker(loop_line=line):
            yield from _loops(marker, line, view, Function.iteration_site)


def _nearest_groups(marker: InstantMarker, view: ModuleView) -> Iterator[Group]:
    """What is left of the statement that an instant belongs to, for each function and each way of calls."""
    loop = SourceLines(marker.file, marker.loop_line, marker.loop_line)
    for function in view.functions:
        loops = {found.operation.start for found in accepted_loops(function, loop)}
        by_calls: dict[Chain, list[Group]] = {}
        for first, last in marker.statements:
            for group in SourceLines(marker.file, first, last).groups_in(function, "mark", marker.name):
                by_calls.setdefault(group.called_from, []).append(group)
        for groups in by_calls.values():
            yield _nearest(groups, loops)


def _nearest(groups: Sequence[Group], loops: Set[int]) -> Group:
    """The first group that has a segment in one of the loops, which begin at these offsets; else the first with any.

    What the compiler has moved out of the loop that it is written in is met once, and not in each iteration."""

    def rank(group: Group) -> tuple[bool, bool]:
        segments = segments_of(group)
        owners = (owner for segment in segments for owner in segment.places[0].owners())
        return any(owner.operation.start in loops for owner in owners), bool(segments)

    return max(groups, key=rank)


def _loops(
    marker: Marker, line: int, view: ModuleView, site_of: Callable[[Function, Loop], Site]
) -> Iterator[Findings]:
    lines = SourceLines(marker.file, line, line)
    for function in view.functions:
        found = loop_findings(function, lines, site_of)
        yield replace(found, sites=tuple(replace(site, name=marker.name) for site in found.sites))
