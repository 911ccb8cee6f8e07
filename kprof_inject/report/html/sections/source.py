"""The kernel's source with the time of the scopes that begin on each line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kprof_inject.printable import printable
from kprof_inject.report.kernel_files import lines_of, shown_line, sources_of
from kprof_inject.report.summary import LaunchSummary, ScopeSummary
from kprof_inject.timeline.timeline import Timeline

# Of longer files, what stands around the scopes.
_MOST_LINES = 4000
_AROUND = 200


def source_lines(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    """An object for each source file, those with the most time first. ``pieces`` are ``[number of the first line,
    lines]``, ascending, with gaps between; none if the capture has no text of the file. ``timed`` has the lines with
    scopes: of those, ``self_ns`` is the sum, and ``total_ns`` that of such as stand in no other one of the line; both
    are None if no time of these is known."""
    places = [_place(scope.source) for scope in summary.scopes]
    texts = sources_of(timeline.launch.kernel)
    scopes_of: dict[str, dict[int, list[int]]] = {path: {} for path in texts}
    for index, place in enumerate(places):
        if place:
            scopes_of.setdefault(place[0], {}).setdefault(place[1], []).append(index)
    parents = [scope.parent for scope in timeline.table.scopes]
    files = [
        {
            "path": printable(path),
            "pieces": _pieces(texts.get(path, ""), sorted(by_line)),
            "timed": [_timed(number, by_line[number], summary, parents) for number in sorted(by_line)],
        }
        for path, by_line in scopes_of.items()
    ]
    return sorted(files, key=lambda file: -sum(line["self_ns"] or 0 for line in file["timed"]))


def _place(source: str) -> tuple[str, int] | None:
    """File and line of ``file:line``."""
    path, _, number = source.rpartition(":")
    return (path, int(number)) if path and number.isdecimal() else None


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
    return scope.count if scope.kind == "iter" else 0


def _pieces(text: str, numbers: list[int]) -> list[tuple[int, list[str]]]:
    """All lines, or, of a long file, those around the numbered ones."""
    if not text:
        return []
    lines = lines_of(text)
    kept = np.ones(len(lines), dtype=bool)
    if len(lines) > _MOST_LINES:
        kept[:] = False
        for number in numbers:
            kept[max(number - 1 - _AROUND, 0) : number + _AROUND] = True
    begins = np.flatnonzero(kept & ~np.append(False, kept[:-1]))
    ends = np.flatnonzero(kept & ~np.append(kept[1:], False)) + 1
    return [
        (begin + 1, [shown_line(line) for line in lines[begin:end]])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]
