"""Slopes of a kernel's places as a table on a terminal, the most critical ones first."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from rich.console import Console

from kprof_inject.analysis.causal.slopes import KernelSlopes, PlaceSlope
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.slopes import SLOPE_MEANING, doubts_on_slopes, slack_text, slope_text
from kprof_inject.report.terminal.tables import Column, print_fitted, say

_BAR_WIDTH = 10
# Larger slopes are drawn as 1.
_FULL_BAR = 1.0
# With a wider interval a bar would be misleading.
_MAX_BAR_ERROR = 0.5

_ENDED = {
    "precise": "all slopes are precise enough",
    "often": "each delay was timed often enough",
    "time": "time ran out: raise --seconds",
}


def print_slopes(slopes: Sequence[KernelSlopes], console: Console) -> None:
    """Print a headline, a table and the doubts for each kernel, and what a slope means."""
    for kernel in slopes:
        say(_headline(kernel), console)
        ranked = kernel.ranked
        if ranked:
            print_fitted(_layouts(ranked), console)
        for line in doubts_on_slopes(kernel):
            say(line, console)
    say(SLOPE_MEANING, console)


def _headline(kernel: KernelSlopes) -> str:
    experiment = kernel.experiment
    clock = f" at {kernel.clock_hz / 1e6:.0f} MHz" if kernel.clock_hz else ""
    ctas = counted(prod(experiment.grid), "CTA")
    chain = f", {kernel.chain:.0f} back to back" if kernel.chain and kernel.chain > 1 else ""
    error = f", slopes within ± {kernel.error:.2f}" if kernel.error is not None else ""
    return (
        f"{experiment.name}: {short_time(kernel.clean_ns)}{clock}, {ctas}{chain}; replayed {experiment.timed} times "
        f"with a delay in {experiment.seconds:.1f} s{error}; stopped because {_ENDED[experiment.ended]}"
    )


def _layouts(places: Sequence[PlaceSlope]) -> list[list[Column]]:
    names = Column("place", [place.name for place in places], name=True)
    sources = Column("source", [without_folders(place.scope.source) for place in places], left=True)
    slopes = Column("slope", [slope_text(place) for place in places])
    bars = Column("", [_bar(place) for place in places], left=True)
    slack = Column("slack", [slack_text(place) for place in places], left=True)
    lines = Column("TTGIR", [_lines(place) for place in places], left=True)
    times = Column("per CTA", ["-" if place.by_cta is None else f"{place.by_cta:.0f} x" for place in places])
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
    if place.response is None or place.response.slope.error > _MAX_BAR_ERROR:
        return ""
    filled = round(_BAR_WIDTH * min(max(place.response.slope.value, 0.0) / _FULL_BAR, 1.0))
    return "█" * filled


def _lines(place: PlaceSlope) -> str:
    lines = place.scope.lines
    return "" if lines is None else str(lines[0]) if lines[0] == lines[1] else f"{lines[0]}-{lines[1]}"
