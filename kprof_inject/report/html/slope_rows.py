"""What matters in a kernel, for the page: the places that were delayed, as rows and by the lines of the source."""

from __future__ import annotations

from typing import Any

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.capture.source_text import file_and_line, without_folders
from kprof_inject.errors import printable
from kprof_inject.report.slope_text import slack_text, slope_text


def slope_rows(slopes: KernelSlopes) -> list[dict[str, Any]]:
    """Those that matter most first. ``scope`` is the index of the same scope in the launch's table, None if it was not
    recorded; ``time`` and ``path`` are its shares of the warps' time and of the critical path."""
    return [
        {
            "name": printable(place.name),
            "scope": place.index,
            "source": without_folders(place.scope.source),
            "lines": place.scope.lines,
            "slope": place.response.slope.value if place.response else None,
            "low": place.response.slope.low if place.response else None,
            "high": place.response.slope.high if place.response else None,
            "text": slope_text(place),
            "slack": printable(slack_text(place)),
            "time": place.time_share,
            "path": place.blame.share if place.blame else None,
        }
        for place in slopes.ranked
    ]


def slopes_by_line(slopes: KernelSlopes) -> dict[str, list[dict[str, Any]]]:
    """Of each file, the lines that have places: the largest slope of these, and what there is to say of all."""
    found: dict[str, dict[int, list[PlaceSlope]]] = {}
    for place in slopes.ranked:
        where = file_and_line(place.scope.source)
        if where and place.response:
            found.setdefault(where[0], {}).setdefault(where[1], []).append(place)
    return {
        path: [
            {
                "line": line,
                "slope": max(place.response.slope.value for place in places if place.response),
                "text": "\n".join(map(_said, places)),
            }
            for line, places in sorted(by_line.items())
        ]
        for path, by_line in found.items()
    }


def _said(place: PlaceSlope) -> str:
    return printable(f"{place.name}: {slope_text(place)}; slack {slack_text(place)}")
