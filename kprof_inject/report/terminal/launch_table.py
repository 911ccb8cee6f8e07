"""What a terminal shows of a launch: header, findings, the table of its scopes, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePath

from rich.console import Console

from kprof_inject.capture.origin import place_names
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.report.summary import LaunchSummary, ScopeSummary
from kprof_inject.report.terminal.bars import BLOCKS, PLAIN, Bars
from kprof_inject.report.terminal.fitted_table import Column, print_fitted, say
from kprof_inject.report.terminal.launch_findings import findings_shown
from kprof_inject.report.terminal.launch_header import header_lines

_FIGURES: dict[str, Callable[[ScopeSummary], str]] = {
    "total": lambda scope: short_time(scope.total_ns),
    "self": lambda scope: short_time(scope.self_ns),
    "mean": lambda scope: short_time(scope.mean_ns),
    "p50": lambda scope: short_time(scope.p50_ns),
    "p99": lambda scope: short_time(scope.p99_ns),
    "share": lambda scope: "-" if scope.share is None else percent(scope.share),
}


def print_launches(reports: Sequence[LaunchReport], console: Console) -> None:
    """Print each launch: what it is, what limits it, its table, and what a reader must know before trusting it."""
    kernels = kernel_names(report.launch.kernel for report in reports)
    places = place_names(report.summary.place for report in reports)
    for report in reports:
        for line in header_lines(report, kernels[report.summary.variant], places[report.summary.place]):
            say(line, console)
        console.print(findings_shown(report, console))
        print_fitted(_layouts(report.summary, console), console)
        for note in launch_notes(report.summary):
            say(note, console)


def _layouts(summary: LaunchSummary, console: Console) -> list[list[Column]]:
    """With narrower bars where there is less room, and in the end with none: the shares stand beside them."""
    figures = _columns(summary.scopes)
    bars = PLAIN if console.options.ascii_only else BLOCKS
    return [[*figures, _drawn(bars, summary)], [*figures, _drawn(bars.narrow(), summary)], figures]


def _columns(scopes: Sequence[ScopeSummary]) -> list[Column]:
    return [
        Column("scope", ["  " * scope.depth + scope.scope for scope in scopes], name=True),
        Column("source", [PurePath(scope.source).name if scope.source else "-" for scope in scopes], name=True),
        Column("count", [f"{scope.count}" for scope in scopes]),
        *(Column(title, [figure(scope) for scope in scopes]) for title, figure in _FIGURES.items()),
    ]


def _drawn(bars: Bars, summary: LaunchSummary) -> Column:
    return Column(bars.title, [_bar(bars, scope, summary.warp_time_ns) for scope in summary.scopes], left=True)


def _bar(bars: Bars, scope: ScopeSummary, whole_ns: int) -> str:
    if scope.share is None or scope.self_ns is None:
        return ""
    return bars.drawn(scope.share, scope.self_ns / whole_ns)
