"""The table of a launch: what each scope takes, and under it what a reader must know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.capture.origin import place_names
from kprof_inject.printable import printable
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.report.quantities import counted, percent, short_time, time_text
from kprof_inject.report.summary import LaunchSummary, ScopeSummary

# By the clock's source.
_CLOCK_TITLES = {"fitted": "SM clock", "assumed": "assumed SM clock", "nominal": "assumed SM clock"}

_FIGURES: dict[str, Callable[[ScopeSummary], str]] = {
    "total": lambda scope: short_time(scope.total_ns),
    "self": lambda scope: short_time(scope.self_ns),
    "mean": lambda scope: short_time(scope.mean_ns),
    "p50": lambda scope: short_time(scope.p50_ns),
    "p90": lambda scope: short_time(scope.p90_ns),
    "p99": lambda scope: short_time(scope.p99_ns),
    "max": lambda scope: short_time(scope.max_ns),
    "share": lambda scope: percent(scope.share),
}
_INSTANT = "mark"
_LEAST_NAME = 8
_ANY_WIDTH = 10_000


def print_summaries(summaries: Sequence[LaunchSummary], console: Console) -> None:
    """Print a table for each launch, and under it what a reader must know before trusting it."""
    names = place_names(summary.place for summary in summaries)
    for summary in summaries:
        # No figure is ever cut: on a terminal that is narrower still, lines are wrapped.
        console.print(_fitted(summary, _title(summary, names[summary.place]), console), crop=False)
        for note in launch_notes(summary):
            console.print(_shown(note))


def _fitted(summary: LaunchSummary, title: str, console: Console) -> Table:
    """The table with lines between its columns, or without them where there is no room for those."""
    table = _filled(Table(title=_shown(title), title_justify="left"), summary)
    if console.measure(table, options=console.options.update_width(_ANY_WIDTH)).maximum <= console.width:
        return table
    bare = Table(title=_shown(title), title_justify="left", box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    least = console.measure(_filled(bare, summary), options=console.options.update_width(_ANY_WIDTH)).minimum
    if least > console.width:
        bare.width = least
    return bare


def _filled(table: Table, summary: LaunchSummary) -> Table:
    # Where there is little room, names are folded.
    for title in ("scope", "source"):
        table.add_column(title, overflow="fold", min_width=_LEAST_NAME)
    for title in ("count", *_FIGURES):
        table.add_column(title, justify="right", no_wrap=True)
    for scope in summary.scopes:
        table.add_row(
            _shown("  " * scope.depth + scope.scope),
            _shown(PurePath(scope.source).name if scope.source else "-"),
            f"{scope.count}",
            *("-" if scope.kind == _INSTANT else figure(scope) for figure in _FIGURES.values()),
        )
    return table


def _shown(text: str) -> Text:
    """A kernel's names are anything, and neither rich's nor the terminal's commands."""
    return Text(printable(text))


def _title(summary: LaunchSummary, place_name: str) -> str:
    place = f"{place_name}: " if place_name else ""
    replay = " (last replay of a CUDA graph)" if summary.graph else ""
    grid = "x".join(map(str, summary.grid))
    return (
        f"{place}{summary.kernel}, launch {summary.launch}{replay}: grid {grid}, {counted(summary.warps, 'warp')}, "
        f"{time_text(summary.duration_ns)}, {_CLOCK_TITLES[summary.clock_source]} {summary.clock_mhz:.0f} MHz"
    )
