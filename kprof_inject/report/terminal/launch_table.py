"""What a terminal shows of a launch: header, findings, the table of its scopes, and what a reader must know of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.analysis.launch_report import LaunchReport
from kprof_inject.analysis.summary import LaunchSummary, PartitionSummary, ScopeSummary
from kprof_inject.capture.model import Kernel, place_names
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import counted, percent, short_time, time_text
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.launch_notes import all_notes
from kprof_inject.report.terminal.tables import Column, print_fitted, say, shown
from kprof_inject.timeline.clock import ClockSource

_WIDTH, _NARROW_WIDTH = 16, 8


@dataclass(frozen=True, slots=True)
class Bars:
    """Shares, drawn."""

    inner: str
    """Stands for what a scope takes itself."""
    outer: str
    """Stands for the scopes in it."""
    width: int = _WIDTH

    @property
    def title(self) -> str:
        """What is what, as far as there is room to say it."""
        whole = f"{self.inner} self {self.outer} in it"
        return whole if len(whole) <= self.width else f"{self.inner} self"

    def narrow(self) -> Bars:
        return Bars(self.inner, self.outer, _NARROW_WIDTH)

    def drawn(self, share: float, self_share: float) -> str:
        """Of a whole from 0 to 1. What is not nothing has a cell."""
        whole = min(round(share * self.width), self.width)
        if share > 0:
            whole = max(whole, 1)
        own = min(round(self_share * self.width), whole)
        return self.inner * own + self.outer * (whole - own)


BLOCKS = Bars("█", "░")
PLAIN = Bars("#", ".")
"""For terminals whose encoding has no blocks."""


_HEALTHY, _DOUBTFUL = "green", "yellow"


def findings_shown(report: LaunchReport, console: Console) -> RenderableType:
    """What limits the launch: the findings, numbered, that with the largest share first, or that there are none; and
    what was not judged. None are good news only if every rule could judge."""
    doubts = [shown(f"  {doubt}", console, _DOUBTFUL) for doubt in report.doubts]
    if report.findings:
        return Group(shown("findings:", console), _table(report, console), *doubts)
    if not doubts:
        return shown("findings: none", console, _HEALTHY)
    what = "findings: none, but not every rule could judge" if report.unjudged else "findings: none"
    return Group(shown(what, console, _DOUBTFUL), *doubts)


def _table(report: LaunchReport, console: Console) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(report.findings, 1):
        share = shown(percent(finding.share), console, "bold")
        table.add_row(f"  {number}.", share, shown(finding.text, console))
        table.add_row("", "next:", shown(finding.advice, console))
    return table


# By the clock's source.
_CLOCK_TITLES = {
    ClockSource.FITTED: "SM clock",
    ClockSource.ASSUMED: "assumed SM clock",
    ClockSource.NOMINAL: "assumed SM clock",
}


def header_lines(report: LaunchReport, kernel_name: str, place_name: str) -> Iterator[str]:
    """What stands over a launch's table. ``place_name`` is where it ran, empty if there is but one place."""
    yield _title(report, kernel_name, place_name)
    yield from _build(report.launch.kernel)
    yield f"  trust: {report.verdict.headline}"
    yield f"  {report.limit.sentence}"


def _title(report: LaunchReport, kernel_name: str, place_name: str) -> str:
    summary = report.summary
    place = f"{place_name}: " if place_name else ""
    replay = " (last replay of a CUDA graph)" if summary.graph else ""
    grid = "x".join(map(str, summary.grid))
    span = time_text(summary.duration_ns if summary.ctas else None)
    return (
        f"{place}{kernel_name}, launch {summary.launch}{replay}: grid {grid}, {counted(summary.warps, 'warp')}, "
        f"span {span}, {_CLOCK_TITLES[summary.clock_source]} {summary.clock_mhz:.0f} MHz"
    )


def _build(kernel: Kernel) -> Iterator[str]:
    """By itself, if that is known; else with records."""
    which, cost = "by itself", kernel.clean
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
        limit = limited_by(kernel.metadata, kernel.num_warps, cost)
        yield f"room for {counted(cost.ctas_per_sm, 'CTA')} on an SM{f' (by {limit})' if limit else ''}"


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
        for note in all_notes(report):
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
    is_body = scope.kind == ScopeKind.FUNCTION and not scope.depth
    return f"{scope.scope} ({scope.partition})" if scope.partition and is_body else scope.scope


def _drawn(bars: Bars, scopes: Sequence[ScopeSummary]) -> Column:
    return Column(bars.title, [_bar(bars, scope) for scope in scopes], left=True)


def _bar(bars: Bars, scope: ScopeSummary) -> str:
    if scope.share is None or scope.self_ns is None or scope.total_ns is None:
        return ""
    return bars.drawn(scope.share, scope.share * scope.self_ns / max(scope.total_ns, 1))
