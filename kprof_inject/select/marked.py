"""What each kind of marker comment brackets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kprof_inject.select.filters import SourceLines, loop_findings
from kprof_inject.select.functions import Function, Loop
from kprof_inject.select.sites import Dropped, Findings, Site
from kprof_inject.select.source.markers import InstantMarker, IterationMarker, LoopMarker, Marker, RangeMarker
from kprof_inject.select.spans import Group, Spread, instants_after, instants_before, span
from kprof_inject.select.view import ModuleView


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
            for group in _groups(marker, view, "marker", first, last):
                yield span(group, spread)
        case InstantMarker(first_line=first, last_line=last, is_before=is_before):
            for group in _groups(marker, view, "mark", first, last):
                yield instants_before(group) if is_before else instants_after(group)
        case LoopMarker(loop_line=line):
            yield from _loops(marker, line, view, Function.loop_site)
        case IterationMarker(loop_line=line):
            yield from _loops(marker, line, view, Function.iteration_site)


def _groups(marker: Marker, view: ModuleView, kind: str, first: int, last: int) -> Iterator[Group]:
    lines = SourceLines(marker.file, first, last)
    for function in view.functions:
        yield from lines.groups_in(function, kind, marker.name)


def _loops(
    marker: Marker, line: int, view: ModuleView, site_of: Callable[[Function, Loop], Site]
) -> Iterator[Findings]:
    lines = SourceLines(marker.file, line, line)
    for function in view.functions:
        found = loop_findings(function, lines, site_of)
        yield replace(found, sites=tuple(replace(site, name=marker.name) for site in found.sites))
