"""What a terminal shows of a launch: header, findings, the table of its scopes, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath

from rich.console import Console

from kprof_inject.capture.origin import place_names
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.report.summary import LaunchSummary, PartitionSummary, ScopeSummary
from kprof_inject.report.terminal.bars import BLOCKS, PLAIN, Bars
from kprof_inject.report.terminal.fitted_table import Column, print_fitted, say
from kprof_inject.report.terminal.launch_findings import findings_shown
from kprof_inject.report.terminal.launch_header import header_lines

_SCOPE = "scope"
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
    scopes = [summary.scopes[index] for _, indices in summary.trees() for index in indices]
    figures = _columns(scopes)
    bars = PLAIN if console.options.ascii_only else BLOCKS
    layouts = [[*figures, _drawn(bars, scopes)], [*figures, _drawn(bars.narrow(), scopes)], figures]
    return [[_with_partitions(column, summary.partitions) for column in layout] for layout in layouts]


def _with_partitions(column: Column, partitions: Sequence[PartitionSummary]) -> Column:
    """The same column with a row for each partition, above those of its scopes."""
    if not partitions:
        return column
    cells: list[str] = []
    styles: list[str] = []
    below = iter(column.cells)
    indent = "  " if column.title == _SCOPE else ""
    for partition in partitions:
        cells += [_of_partition(column.title, partition), *(indent + next(below) for _ in partition.scopes)]
        styles += ["bold", *("" for _ in partition.scopes)]
    return replace(column, cells=cells, styles=styles)


def _of_partition(title: str, partition: PartitionSummary) -> str:
    """What stands in its row: all of its warps' time, of which self is in none of its scopes."""
    if title == _SCOPE:
        return partition.title
    if not partition.whole_ns:
        return "-" if title in _FIGURES else ""
    figures = {
        "total": short_time(partition.whole_ns),
        "self": short_time(partition.outside_ns),
        "share": percent(1.0),
    }
    return figures.get(title, "")


def _columns(scopes: Sequence[ScopeSummary]) -> list[Column]:
    return [
        Column(_SCOPE, ["  " * scope.depth + _name(scope) for scope in scopes], name=True),
        Column("source", [PurePath(scope.source).name if scope.source else "-" for scope in scopes], name=True),
        Column("count", [f"{scope.count}" for scope in scopes]),
        *(Column(title, [figure(scope) for scope in scopes]) for title, figure in _FIGURES.items()),
    ]


def _name(scope: ScopeSummary) -> str:
    """The kernel's own body is run by the default partition alone."""
    is_body = scope.kind == "func" and not scope.depth
    return f"{scope.scope} ({scope.partition})" if scope.partition and is_body else scope.scope


def _drawn(bars: Bars, scopes: Sequence[ScopeSummary]) -> Column:
    return Column(bars.title, [_bar(bars, scope) for scope in scopes], left=True)


def _bar(bars: Bars, scope: ScopeSummary) -> str:
    if scope.share is None or scope.self_ns is None or scope.total_ns is None:
        return ""
    return bars.drawn(scope.share, scope.share * scope.self_ns / max(scope.total_ns, 1))
