"""The kernel's source and its TTGIR, with the scopes that stand on each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from kprof_inject.analysis.causal.slopes import KernelSlopes
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.capture.source_text import file_and_line, lines_of, shown_line, sources_of, ttgir_of
from kprof_inject.errors import printable
from kprof_inject.report.html.pictures import packed
from kprof_inject.report.slope_text import slopes_by_line
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.strings import POINT, unquote

# Of longer files, what stands around the scopes.
_MOST_SOURCE_LINES = 4000
_AROUND = 200


def source_lines(
    timeline: Timeline, summary: LaunchSummary, slopes: KernelSlopes | None = None
) -> list[dict[str, Any]]:
    """The kernel's source with the time of the scopes that begin on each line.

    An object for each source file, those with the most time first. ``pieces`` are ``[number of the first line,
    lines]``, ascending, with gaps between; none if the capture has no text of the file. ``timed`` has the lines with
    scopes: of those, ``self_ns`` is the sum, and ``total_ns`` that of such as stand in no other one of the line; both
    are None if no time of these is known. ``slopes`` has those of the places that were delayed, by line."""
    places = [file_and_line(scope.source) for scope in summary.scopes]
    texts = sources_of(timeline.launch.kernel)
    scopes_of: dict[str, dict[int, list[int]]] = {path: {} for path in texts}
    for index, place in enumerate(places):
        if place:
            scopes_of.setdefault(place[0], {}).setdefault(place[1], []).append(index)
    parents = [scope.parent for scope in timeline.table.scopes]
    slopes_of = slopes_by_line(slopes) if slopes else {}
    files = [
        {
            "path": printable(path),
            "pieces": _pieces(texts.get(path, ""), sorted(by_line)),
            "timed": [_timed(number, by_line[number], summary, parents) for number in sorted(by_line)],
            "slopes": slopes_of.get(path, []),
        }
        for path, by_line in scopes_of.items()
    ]
    return sorted(files, key=lambda file: -sum(line["self_ns"] or 0 for line in file["timed"]))


def _timed(number: int, indices: list[int], summary: LaunchSummary, parents: list[int]) -> dict[str, Any]:
    scopes = [summary.scopes[index] for index in indices]
    outermost = [summary.scopes[index] for index in indices if not _is_within(index, set(indices), parents)]
    return {
        "line": number,
        "scopes": indices,
        "count": sum(scope.count for scope in outermost),
        "iterations": sum(_iterations(scope) for scope in scopes),
        "self_ns": _sum(scope.self_ns for scope in scopes),
        "total_ns": _sum(scope.total_ns for scope in outermost),
    }


def _sum(times_ns: Iterable[int | None]) -> int | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if known else None


def _is_within(index: int, others: set[int], parents: list[int]) -> bool:
    """Whether one of ``others`` stands around a scope of the table."""
    # A parent stands before what is in it, so that this ends.
    while 0 <= parents[index] < index:
        index = parents[index]
        if index in others:
            return True
    return False


def _iterations(scope: ScopeSummary) -> int:
    return scope.count if scope.kind == ScopeKind.ITERATION else 0


def _pieces(text: str, numbers: list[int]) -> list[tuple[int, list[str]]]:
    """All lines, or, of a long file, those around the numbered ones."""
    if not text:
        return []
    lines = lines_of(text)
    kept = np.ones(len(lines), dtype=bool)
    if len(lines) > _MOST_SOURCE_LINES:
        kept[:] = False
        for number in numbers:
            kept[max(number - 1 - _AROUND, 0) : number + _AROUND] = True
    begins = np.flatnonzero(kept & ~np.append(False, kept[:-1]))
    ends = np.flatnonzero(kept & ~np.append(kept[1:], False)) + 1
    return [
        (begin + 1, [shown_line(line) for line in lines[begin:end]])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


_MOST_TTGIR_LINES = 200_000


def ttgir_lines(timeline: Timeline) -> dict[str, Any] | None:
    """The kernel's TTGIR with the lines of each scope; None if the capture has no module.

    ``lines`` are those of the module without records, from 0. ``places`` are source lines as ``[file, line]``, and
    ``place_of`` says for each line of the module which of them it comes from, -1 if that is unknown. ``sites`` has for
    each scope of the table its ranges of lines: the first and the last; none if the capture does not tell them.
    """
    text = ttgir_of(timeline.launch.kernel)
    if not text:
        return None
    all_lines = lines_of(text)
    lines = all_lines[:_MOST_TTGIR_LINES]
    numbers: dict[SourceLine, int] = {}
    place_of = [numbers.setdefault(place, len(numbers)) if place else -1 for place in places_of(lines)]
    return {
        "lines": [shown_line(line) for line in lines],
        "left_out": len(all_lines) - len(lines),
        "places": [(printable(file), line) for file, line in numbers],
        "place_of": packed(np.array(place_of, dtype=np.int64), "i4"),
        "sites": [_ranges(scope, len(lines)) for scope in timeline.table.scopes],
    }


def _ranges(scope: ScopeInfo, line_count: int) -> list[tuple[int, int]]:
    if scope.lines is None or scope.lines[0] > line_count:
        return []
    first, last = scope.lines
    return [(first - 1, min(last, line_count) - 1)]


SourceLine = tuple[str, int]
"""A line of a source file."""

_ALIAS = re.compile(r"(#loc\w*) = loc\((.*)\)\s*")
_POINT_OR_ALIAS = re.compile(rf"{POINT}|(#loc\w*)")
_LOCATION = re.compile(r" loc\((.*)\)\s*")
# Deeper ones no compiler makes.
_DEEPEST = 200


def places_of(lines: Sequence[str]) -> list[SourceLine | None]:
    """The source line that each line of a TTGIR text comes from: the first that the location at its end names.

    No more of the text is understood than that: a capture is read without the parser, and texts that are not TTGIR do
    no harm. https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes"""
    found = [_ALIAS.fullmatch(line) if line.startswith("#loc") else None for line in lines]
    aliases = {alias[1]: alias[2] for alias in found if alias}
    known: dict[str, SourceLine | None] = {}
    return [
        None if alias else _place(_location_at_end(line), aliases, known)
        for line, alias in zip(lines, found, strict=True)
    ]


def _location_at_end(line: str) -> str:
    begin = line.rfind(" loc(")
    found = _LOCATION.fullmatch(line, begin) if begin >= 0 else None
    return found[1] if found else ""


def _place(
    location: str, aliases: dict[str, str], known: dict[str, SourceLine | None], depth: int = 0
) -> SourceLine | None:
    if location not in known:
        # For a location that leads to itself.
        known[location] = None
        for file, line, _, alias in _POINT_OR_ALIAS.findall(location) if depth < _DEEPEST else ():
            place = _place(aliases.get(alias, ""), aliases, known, depth + 1) if alias else (unquote(file), int(line))
            if place:
                known[location] = place
                break
    return known[location]
