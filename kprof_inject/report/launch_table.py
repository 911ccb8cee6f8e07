"""What a terminal shows of a launch: header, findings, the table of its scopes, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.capture.origin import place_names
from kprof_inject.printable import printable
from kprof_inject.report.bars import BLOCKS, PLAIN, Bars
from kprof_inject.report.launch_findings import findings_shown
from kprof_inject.report.launch_header import header_lines
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.report.summary import LaunchSummary, ScopeSummary

_FIGURES: dict[str, Callable[[ScopeSummary], str]] = {
    "total": lambda scope: short_time(scope.total_ns),
    "self": lambda scope: short_time(scope.self_ns),
    "mean": lambda scope: short_time(scope.mean_ns),
    "p50": lambda scope: short_time(scope.p50_ns),
    "p99": lambda scope: short_time(scope.p99_ns),
    "share": lambda scope: percent(scope.share),
}
_INSTANT = "mark"
_LEAST_NAME = 8
_ANY_WIDTH = 10_000


def print_launches(reports: Sequence[LaunchReport], console: Console) -> None:
    """Print each launch: what it is, what limits it, its table, and what a reader must know before trusting it."""
    names = place_names(report.summary.place for report in reports)
    for report in reports:
        for line in header_lines(report, names[report.summary.place]):
            console.print(_shown(line))
        console.print(findings_shown(report))
        # No figure is ever cut: on a terminal that is narrower still, lines are wrapped.
        console.print(_fitted(report.summary, console), crop=False)
        for note in launch_notes(report.summary):
            console.print(_shown(note))


def _fitted(summary: LaunchSummary, console: Console) -> Table:
    """The table with lines between its columns, or without them where there is no room for those."""
    bars = PLAIN if console.options.ascii_only else BLOCKS
    table = _filled(Table(), summary, bars)
    if console.measure(table, options=console.options.update_width(_ANY_WIDTH)).maximum <= console.width:
        return table
    bare = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    least = console.measure(_filled(bare, summary, bars), options=console.options.update_width(_ANY_WIDTH)).minimum
    if least > console.width:
        bare.width = least
    return bare


def _filled(table: Table, summary: LaunchSummary, bars: Bars) -> Table:
    # Where there is little room, names are folded.
    for title in ("scope", "source"):
        table.add_column(title, overflow="fold", min_width=_LEAST_NAME)
    for title in ("count", *_FIGURES):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(bars.title, no_wrap=True)
    for scope in summary.scopes:
        is_instant = scope.kind == _INSTANT
        table.add_row(
            _shown("  " * scope.depth + scope.scope),
            _shown(PurePath(scope.source).name if scope.source else "-"),
            f"{scope.count}",
            *("-" if is_instant else figure(scope) for figure in _FIGURES.values()),
            "" if is_instant else bars.drawn(scope.share, scope.self_ns / max(summary.warp_time_ns, 1)),
        )
    return table


def _shown(text: str) -> Text:
    """A kernel's names are anything, and neither rich's nor the terminal's commands."""
    return Text(printable(text))
