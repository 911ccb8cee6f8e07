"""What a terminal shows of a launch in detail: its build, its findings, the table of its scopes, and what a reader must
know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import LaunchSummary, PartitionSummary, ScopeSummary
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.quantities import counted, percent, resolved_time, short_time
from kprof_inject.report.launch_notes import all_notes
from kprof_inject.report.terminal.tables import Bars, Column, bars_for, print_fitted, say, shown
from kprof_inject.report.terminal.tag_tables import print_more_tags

_HEALTHY, _DOUBTFUL = "green", "yellow"


def findings_shown(report: LaunchAnalysis, console: Console) -> RenderableType:
    """What limits the launch: the findings, numbered, that with the largest share first, or that there are none; and
    what was not judged. None are good news only if every rule could judge."""
    doubts = [shown(f"  {doubt}", console, _DOUBTFUL) for doubt in report.doubts]
    if report.findings:
        return Group(shown("findings:", console), _table(report, console), *doubts)
    if not doubts:
        return shown("findings: none", console, _HEALTHY)
    what = "findings: none, but some rules could not judge" if report.unjudged else "findings: none"
    return Group(shown(what, console, _DOUBTFUL), *doubts)


def _table(report: LaunchAnalysis, console: Console) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, 1):
        share = shown(percent(finding.share), console, "bold")
        table.add_row(f"  {number}.", share, shown(finding.sentence, console))
        table.add_row("", "next:", shown(finding.advice, console))
    return table


def build_lines(kernel: Kernel) -> Iterator[str]:
    """Without records, if that is known; else with them."""
    which, cost = "without records", kernel.clean
    if cost.registers is None:
        which, cost = "with records", kernel.with_records
    if facts := list(_facts(kernel, cost)):
        yield f"  kernel {which}: {', '.join(facts)}"


def _facts(kernel: Kernel, cost: KernelResources) -> Iterator[str]:
    if cost.registers is not None:
        yield counted(cost.registers, "register")
    if cost.spills is not None:
        yield counted(cost.spills, "spill") if cost.spills else "no spills"
    if cost.shared_bytes is not None:
        yield f"{cost.shared_bytes} bytes of shared memory"
    if cost.ctas_per_sm is not None:
        limit = limited_by(kernel.target, kernel.num_warps, cost)
        yield f"room for {counted(cost.ctas_per_sm, 'CTA')} on an SM{f' (by {limit})' if limit else ''}"


_SCOPE = "scope"
_FIGURES: dict[str, Callable[[ScopeSummary, float], str]] = {
    "total": lambda scope, _: short_time(scope.total_ns),
    "self": lambda scope, _: short_time(scope.self_ns),
    "mean": lambda scope, resolution_ns: resolved_time(scope.mean_ns, resolution_ns),
    "p50": lambda scope, resolution_ns: resolved_time(scope.p50_ns, resolution_ns),
    "p99": lambda scope, resolution_ns: resolved_time(scope.p99_ns, resolution_ns),
    "share": lambda scope, _: "-" if scope.share is None else percent(scope.share),
}


def print_details(report: LaunchAnalysis, console: Console) -> None:
    """All that is known of a launch beyond its first screen."""
    for line in build_lines(report.launch.kernel):
        say(line, console)
    console.print(findings_shown(report, console))
    print_fitted(_layouts(report.summary, console), console)
    print_more_tags(report.summary, console)
    for note in all_notes(report):
        say(note, console)


def _layouts(summary: LaunchSummary, console: Console) -> list[list[Column]]:
    """With narrower bars where there is less room, and in the end with none: the shares stand beside them."""
    scopes = [summary.scopes[index] for _, indices in summary.trees() for index in indices]
    figures = _columns(scopes, summary.resolution_ns)
    bars = bars_for(console)
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


def _columns(scopes: Sequence[ScopeSummary], resolution_ns: float) -> list[Column]:
    return [
        Column(_SCOPE, ["  " * scope.depth + scope.title for scope in scopes], name=True),
        Column("source", [PurePath(scope.source).name if scope.source else "-" for scope in scopes], name=True),
        Column("count", [f"{scope.count}" for scope in scopes]),
        *(Column(title, [figure(scope, resolution_ns) for scope in scopes]) for title, figure in _FIGURES.items()),
    ]


def _drawn(bars: Bars, scopes: Sequence[ScopeSummary]) -> Column:
    drawn = [bars.drawn(scope.share or 0.0, scope.self_share) for scope in scopes]
    return Column(bars.title, drawn, left=True)
