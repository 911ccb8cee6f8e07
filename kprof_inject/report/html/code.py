"""The kernel's source and its TTGIR, with the scopes on each line."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from msgspec.structs import replace

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.analysis.evidence.stalls import Stalls
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.capture.source_text import (
    SourceLine,
    file_and_line,
    lines_of,
    places_of,
    shown_line,
    sources_of,
    ttgir_of,
)
from kprof_inject.errors import printable
from kprof_inject.report.html.page_schema import LineSlope, MachineCode, SourceFile, TimedLine, TtgirText
from kprof_inject.report.html.pictures import packed
from kprof_inject.report.html.stalls import stalled_source_lines, stalled_ttgir_lines
from kprof_inject.report.slopes import slack_text, slope_text
from kprof_inject.timeline.timeline import Timeline

# Of longer files, the page has only the lines around the scopes and those where warps wait.
_MAX_SOURCE_LINES = 4000
_AROUND = 200


def source_lines(
    timeline: Timeline, summary: LaunchSummary, slopes: KernelSlopes | None = None, stalls: Stalls | None = None
) -> list[SourceFile]:
    """Return the files of the kernel's source, largest time first."""
    places = [file_and_line(scope.source) for scope in summary.scopes]
    texts = sources_of(timeline.launch.kernel)
    scopes_of: dict[str, dict[int, list[int]]] = {path: {} for path in texts}
    for index, place in enumerate(places):
        if place:
            scopes_of.setdefault(place[0], {}).setdefault(place[1], []).append(index)
    parents = [scope.parent for scope in timeline.table.scopes]
    slopes_of = _slopes_by_file(slopes) if slopes else {}
    stalls_of = stalled_source_lines(stalls) if stalls else {}
    files = [
        SourceFile(
            path=printable(path),
            pieces=_pieces(texts.get(path, ""), sorted({*by_line, *(line.line for line in stalls_of.get(path, ()))})),
            timed=[_timed(number, by_line[number], summary, parents) for number in sorted(by_line)],
            slopes=slopes_of.get(path, []),
            stalls=stalls_of.get(path, []),
        )
        for path, by_line in scopes_of.items()
    ]
    return sorted(files, key=lambda file: -sum(line.self_ns or 0 for line in file.timed))


def _timed(number: int, indices: list[int], summary: LaunchSummary, parents: list[int]) -> TimedLine:
    scopes = [summary.scopes[index] for index in indices]
    outermost = [summary.scopes[index] for index in indices if not _is_within(index, set(indices), parents)]
    return TimedLine(
        line=number,
        scopes=indices,
        count=sum(scope.count for scope in outermost),
        iterations=sum(scope.count for scope in scopes if scope.kind == ScopeKind.ITERATION),
        self_ns=_sum(scope.self_ns for scope in scopes),
        total_ns=_sum(scope.total_ns for scope in outermost),
    )


def _slopes_by_file(slopes: KernelSlopes) -> dict[str, list[LineSlope]]:
    found: dict[str, dict[int, list[PlaceSlope]]] = {}
    for place in slopes.ranked:
        where = file_and_line(place.scope.source)
        if where and place.response:
            found.setdefault(where[0], {}).setdefault(where[1], []).append(place)
    return {
        path: [
            LineSlope(
                line=line,
                slope=max(place.response.slope.value for place in places if place.response),
                text="\n".join(printable(f"{one.name}: {slope_text(one)}; slack {slack_text(one)}") for one in places),
            )
            for line, places in sorted(by_line.items())
        ]
        for path, by_line in found.items()
    }


def _sum(times_ns: Iterable[int | None]) -> int | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if known else None


def _is_within(index: int, others: set[int], parents: list[int]) -> bool:
    """Return whether a scope of the table is inside of one of ``others``."""
    # A parent has a lower index than its children; anything else would be damage and could loop forever.
    while 0 <= parents[index] < index:
        index = parents[index]
        if index in others:
            return True
    return False


def _pieces(text: str, numbers: list[int]) -> list[tuple[int, list[str]]]:
    """Return all lines, or, for a long file, those around the numbered ones."""
    if not text:
        return []
    lines = lines_of(text)
    kept = np.ones(len(lines), dtype=bool)
    if len(lines) > _MAX_SOURCE_LINES:
        kept[:] = False
        for number in numbers:
            kept[max(number - 1 - _AROUND, 0) : number + _AROUND] = True
    begins = np.flatnonzero(kept & ~np.append(False, kept[:-1]))
    ends = np.flatnonzero(kept & ~np.append(kept[1:], False)) + 1
    return [
        (begin + 1, [shown_line(line) for line in lines[begin:end]])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


_MAX_TTGIR_LINES = 200_000


def ttgir_lines(
    timeline: Timeline, stalls: Stalls | None = None, machine_code: MachineCode | None = None
) -> TtgirText | None:
    """Return the kernel's TTGIR with the lines of each scope; None if the capture has no module."""
    text = ttgir_of(timeline.launch.kernel)
    if not text:
        return None
    shown = _module_text(text)
    count = len(shown.lines)
    return replace(
        shown,
        sites=[
            [(scope.lines[0] - 1, min(scope.lines[1], count) - 1)] if scope.lines and scope.lines[0] <= count else []
            for scope in timeline.table.scopes
        ],
        stalls=stalled_ttgir_lines(stalls) if stalls else [],
        machine_code=machine_code,
    )


@lru_cache(maxsize=KERNELS_CACHED)
def _module_text(text: str) -> TtgirText:
    """Return the text without what its launches add."""
    all_lines = lines_of(text)
    lines = all_lines[:_MAX_TTGIR_LINES]
    numbers: dict[SourceLine, int] = {}
    place_of = [numbers.setdefault(place, len(numbers)) if place else -1 for place in places_of(lines)]
    return TtgirText(
        lines=[shown_line(line) for line in lines],
        left_out=len(all_lines) - len(lines),
        places=[(printable(file), line) for file, line in numbers],
        place_of=packed(np.array(place_of, dtype=np.int64), "i4"),
        sites=[],
        stalls=[],
        machine_code=None,
    )
