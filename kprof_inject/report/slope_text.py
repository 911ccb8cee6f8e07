"""Slopes and slacks of places: in words, as rows of the page, as JSON and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from typing import Any

from kprof_inject.analysis.causal.response import Interval
from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.capture.source_text import file_and_line, without_folders
from kprof_inject.errors import printable
from kprof_inject.quantities import percent

MEANING = (
    "slope: cycles that the kernel loses per cycle added there on a CTA's path: 1 is critical, 0 is hidden, above 1 "
    "CTAs slow each other down. Saving a few cycles there gains as much for each."
)

# By so much, a delay of no cycles changes the kernel itself.
_DISTURBING = 0.03

# Slope and path differ for sure: one of them is nothing, and the other one is not.
_SMALL_PART, _LARGE_PART = 0.01, 0.1


def slope_text(place: PlaceSlope) -> str:
    """With its interval; "-" where there is none."""
    if place.response is None:
        return "-"
    slope = place.response.slope
    return f"{round(slope.value, 2) + 0.0:.2f} ± {slope.error:.2f}"


def slack_text(place: PlaceSlope) -> str:
    """Up to which delay it stays as it is; or why nobody knows."""
    if place.response is None:
        return place.reason
    if place.response.slack is not None:
        return f"{_cycles(place.response.slack)} cycles, then {place.response.beyond or 0.0:.2f}"
    return f"{place.spare_cycles:.0f} cycles or more" if place.spare_cycles else "none"


def _cycles(slack: Interval) -> str:
    return f"{slack.value:.0f}" if slack.error < 1 else f"{slack.value:.0f} ± {slack.error:.0f}"


def slope_notes(slopes: KernelSlopes) -> Iterator[str]:
    """A line on what matters, and those of ``doubts_on_slopes``."""
    told = [f"{place.name} {slope_text(place)}" for place in slopes.ranked if place.response]
    if told:
        yield f"what matters, by delays: {', '.join(told)}"
    yield from doubts_on_slopes(slopes)


def doubts_on_slopes(slopes: KernelSlopes) -> Iterator[str]:
    """Where a slope is not quite that of the program's own kernel, and where the critical path says something else."""
    yield from _disturbances(slopes)
    yield from _disagreements(slopes)


def _disagreements(slopes: KernelSlopes) -> Iterator[str]:
    for place in slopes.places if slopes.path else ():
        share = place.blame.share if place.blame else 0.0
        if place.is_hidden and share >= _LARGE_PART:
            yield (
                f"{place.name}: {percent(share)} of the critical path goes through it, but delays there have no "
                "effect: another path is nearly as long, or it is the records' own time"
            )
        elif place.is_critical and share < _SMALL_PART:
            yield (
                f"{place.name}: delays there slow the kernel, but {percent(share)} of the critical path goes "
                "through it: it is short, or what it holds up is in no scope"
            )


def _disturbances(slopes: KernelSlopes) -> Iterator[str]:
    for place in slopes.places:
        moved = place.disturbed
        if moved is not None and abs(moved.value) > max(_DISTURBING, moved.error):
            more = "longer" if moved.value > 0 else "less long"
            yield (
                f"{place.name}: inserting anything there changes the kernel, which takes "
                f"{percent(abs(moved.value))} {more} with a zero-cycle delay; the slope is that of the changed kernel"
            )
    if not slopes.experiment.spins:
        yield "the real length of the delays could not be measured here: nominal lengths are used"


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


def slopes_json(slopes: Sequence[KernelSlopes]) -> str:
    return json.dumps([one.to_json() for one in slopes], indent=1)


_HEADINGS = (
    *("kernel", "variant", "place", "source", "ttgir_first_line", "ttgir_last_line", "executions_by_cta"),
    *("executions_by_chain", "slope", "slope_low", "slope_high", "slack_cycles", "slack_low_cycles"),
    *("slack_high_cycles", "slope_beyond_slack", "spare_cycles", "disturbed_share", "reason"),
)


def slopes_csv(slopes: Sequence[KernelSlopes]) -> str:
    """A row for each place; an empty cell is unknown."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADINGS)
    for one in slopes:
        for place in one.ranked:
            writer.writerow(_row(one, place))
    return text.getvalue()


def _row(one: KernelSlopes, place: PlaceSlope) -> Sequence[object]:
    slope = place.response.slope if place.response else None
    slack = place.response.slack if place.response else None
    lines = place.scope.lines or (None, None)
    return (
        *(one.experiment.name, one.experiment.variant, place.scope.name, place.scope.source, *lines),
        *(place.by_cta, place.by_chain),
        *((slope.value, slope.low, slope.high) if slope else (None,) * 3),
        *((slack.value, slack.low, slack.high) if slack else (None,) * 3),
        place.response.beyond if place.response else None,
        place.spare_cycles,
        place.disturbed.value if place.disturbed else None,
        place.reason,
    )
