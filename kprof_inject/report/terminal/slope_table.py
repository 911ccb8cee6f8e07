"""What matters in a kernel, on a terminal: its places by their slopes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rich.console import Console

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.slope_text import MEANING, doubts_on_slopes, slack_text, slope_text
from kprof_inject.report.terminal.tables import Column, print_fitted, say

_BAR_WIDTH = 10
# More is drawn as this much.
_FULL_BAR = 1.0
# An interval that is wider tells nothing that a bar could show.
_WIDE = 0.5

_ENDED = {
    "precise": "all slopes are known well enough",
    "often": "each delay was timed often enough",
    "time": "time ran out: raise --seconds",
    "program": "the program made no more launches",
}


def print_slopes(slopes: Sequence[KernelSlopes], console: Console) -> None:
    for one in slopes:
        say(_headline(one), console)
        ranked = one.ranked
        if ranked:
            print_fitted(_layouts(ranked), console)
        for line in doubts_on_slopes(one):
            say(line, console)
    say(MEANING, console)


def _headline(one: KernelSlopes) -> str:
    found = one.experiment
    at = f" at {one.clock_hz / 1e6:.0f} MHz" if one.clock_hz else ""
    ctas = counted(prod(found.grid), "CTA")
    chain = f", {one.chain:.0f} back to back" if one.chain and one.chain > 1 else ""
    error = f", slopes within ± {one.error:.2f}" if one.error is not None else ""
    how = "replayed" if found.replayed else "with its own launches"
    return (
        f"{found.name}: {short_time(one.clean_ns)}{at}, {ctas}{chain}; {how}, {found.timed} times with a delay in "
        f"{found.seconds:.1f} s{error}; stopped because {_ENDED[found.ended]}"
    )


def _layouts(places: Sequence[PlaceSlope]) -> list[list[Column]]:
    names = Column("place", [place.name for place in places], name=True)
    sources = Column("source", [without_folders(place.scope.source) for place in places], left=True)
    slopes = Column("slope", [slope_text(place) for place in places])
    bars = Column("", [_bar(place) for place in places], left=True)
    slack = Column("slack", [slack_text(place) for place in places], left=True)
    lines = Column("TTGIR", [_lines(place) for place in places], left=True)
    times = Column("per CTA", [_times(place.by_cta) for place in places])
    shares = Column("time", [_share(place.time_share) for place in places])
    paths = Column("path", [_share(place.blame.share if place.blame else None) for place in places])
    return [
        [names, sources, lines, times, slopes, bars, slack, shares, paths],
        [names, sources, slopes, bars, slack, shares, paths],
        [names, slopes, bars, slack],
        [names, slopes],
    ]


def _share(part: float | None) -> str:
    return "-" if part is None else percent(part)


def _bar(place: PlaceSlope) -> str:
    if place.response is None or place.response.slope.error > _WIDE:
        return ""
    filled = round(_BAR_WIDTH * min(max(place.response.slope.value, 0.0) / _FULL_BAR, 1.0))
    return "█" * filled


def _lines(place: PlaceSlope) -> str:
    lines = place.scope.lines
    return "" if lines is None else str(lines[0]) if lines[0] == lines[1] else f"{lines[0]}-{lines[1]}"


def _times(count: float | None) -> str:
    return "-" if count is None else f"{count:.0f} x"
