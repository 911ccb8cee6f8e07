"""A capture on a terminal: an overview of its kernels and launches, one launch's answer, and all details on request."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath

from msgspec.structs import replace
from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview, Program, program_of
from kprof_inject.analysis.summary import LaunchSummary, PartitionSummary, ScopeSummary
from kprof_inject.capture.edits import OPTIONS_FILE
from kprof_inject.capture.model import Kernel, Place, place_names, several_ranks
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.quantities import counted, percent, resolved_time, short_time
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.launch_notes import all_notes
from kprof_inject.report.terminal.edits_table import print_edits
from kprof_inject.report.terminal.evidence_tables import print_stalls, print_units
from kprof_inject.report.terminal.first_screen import (
    answer_lines,
    print_all_tags,
    print_answer,
    print_first_screen,
    print_lines,
)
from kprof_inject.report.terminal.program_table import lines_of_kernels, print_kernels
from kprof_inject.report.terminal.tables import (
    Column,
    Room,
    bars_for,
    limit_colour,
    lines_of_plain,
    print_fitted,
    print_plain,
    print_trust,
    say,
    shown,
)
from kprof_inject.report.tried_edits import best_for, won_text
from kprof_inject.scope_colours import scope_colours


def print_answers(reports: Sequence[LaunchAnalysis], console: Console) -> None:
    """Print one launch's first screen; for several launches, an overview and the answer for the most important one.

    On a terminal, tables are cut so that the answer stays on the screen with them.
    """
    names, program, room = _LaunchNames(reports), program_of(reports), Room.on(console)
    first = program.kernels[0]
    typical = first.middle
    if len(program.kernels) > 1:
        _print_kernels_and_answer(program, names, console, room)
        return
    if program.others:
        print_kernels(program, console)
        say("", console)
        room = room.below(lines_of_kernels(program, 1, console) + 1)
    if len(reports) > 1:
        say(f"{_launches_text(first)}; shown: {_shown_text(first)}", console)
        # Another line, below the first screen, is for the slowest launch.
        room = room.below(1 + 1)
    room = print_first_screen(typical, *names.of(typical), console, room)
    if len(reports) > 1:
        _print_launches(reports, names.places, names.kernels, console, room.below(-1))


def _print_kernels_and_answer(program: Program, names: _LaunchNames, console: Console, room: Room) -> None:
    """Print the table above the answer on the first kernel, in the room that the answer leaves."""
    typical = program.kernels[0].middle
    answer = partial(answer_lines, typical, *names.of(typical), console)
    table_lines = lines_of_kernels(program, len(program.kernels), console) if room.lines is not None else 0
    lines = answer()
    if not room.holds(table_lines + 1 + len(lines)):
        lines = answer(with_reasons=False)
    print_kernels(program, console, room.below(1 + len(lines)))
    say("", console)
    print_lines(lines, console)


def answers_text(reports: Sequence[LaunchAnalysis], width: int) -> str:
    """Return what ``print_answers`` prints, as text without colours."""
    out = io.StringIO()
    print_answers(reports, Console(file=out, width=width, color_system=None, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def print_all(reports: Sequence[LaunchAnalysis], console: Console) -> None:
    """Print all that is known of each variant's launch of median duration, and the basis of the verdicts.

    The kernel with most to win comes first, and the variant of it that takes most time.
    """
    names, program = _LaunchNames(reports), program_of(reports)
    if len(program.kernels) > 1 or program.others:
        print_kernels(program, console)
        say("", console)
    for kernel in program.kernels:
        if len(kernel.reports) > 1:
            _print_launches(kernel.reports, names.places, names.kernels, console)
            say("", console)
        if len(kernel.reports) > len(kernel.middles):
            which = "the median of each variant" if kernel.variants > 1 else _shown_text(kernel)
            say(f"{_launches_text(kernel)}; shown: {which}; another one: report -v --launch N", console)
        for report in kernel.middles:
            print_answer(report, *names.of(report), console)
            print_details(report, console)
    print_trust([(report.launch, report.verdict) for kernel in program.kernels for report in kernel.middles], console)


class _LaunchNames:
    """Distinct name of each launch's kernel, and where the launch ran."""

    def __init__(self, reports: Sequence[LaunchAnalysis]) -> None:
        self.kernels = kernel_names(report.launch.kernel for report in reports)
        self.places = place_names(report.launch.place for report in reports)

    def of(self, report: LaunchAnalysis) -> tuple[str, str]:
        return self.kernels[report.launch.kernel.variant], self.places[report.launch.place]


_MAX_LAUNCHES, _MIN_LAUNCHES = 10, 3


def _launches_text(kernel: KernelOverview) -> str:
    """Return how much the launches of a kernel differ."""
    times = [report.duration_ns for report in kernel.reports]
    variants = f" in {kernel.variants} variants" if kernel.variants > 1 else ""
    return f"{counted(len(times), 'launch')}{variants}: {short_time(min(times))} to {short_time(max(times))}"


def _shown_text(kernel: KernelOverview) -> str:
    which = f"#{kernel.middle.launch.index}, the median"
    return which + " of the variant that takes the most time" if kernel.variants > 1 else which


def _print_launches(
    reports: Sequence[LaunchAnalysis],
    places: Mapping[Place, str],
    names: Mapping[str, str],
    console: Console,
    room: Room | None = None,
) -> None:
    """Print the launches, slowest first; without ``room``, all of them.

    ``names`` are those of the variants. If there is too little room, one line says how to see them.
    """
    ordered = sorted(reports, key=lambda report: -report.duration_ns)
    count = len(ordered)

    def lines_of(rows: int) -> int:
        return 1 + lines_of_plain([_launch_columns(ordered[:rows], places, names)], console) + (rows < len(ordered))

    if room is not None:
        count = room.rows(min(count, _MAX_LAUNCHES), min(count, _MIN_LAUNCHES), lines_of)
        if not room.holds(lines_of(count)):
            say(f"{_slowest(ordered)}for all launches, see report -v", console)
            return
    say("", console)
    print_plain([_launch_columns(ordered[:count], places, names)], console)
    if count < len(ordered):
        say(f"{counted(len(ordered) - count, 'shorter launch')} hidden; see report -v", console)


def _slowest(ordered: Sequence[LaunchAnalysis]) -> str:
    """Return how to see the slowest launch; empty if another variant's or process's launch has its number."""
    number = ordered[0].launch.index
    if [report.launch.index for report in ordered].count(number) > 1:
        return ""
    return f"#{number} is the slowest: report --launch {number}; "


def _launch_columns(
    chosen: Sequence[LaunchAnalysis], places: Mapping[Place, str], names: Mapping[str, str]
) -> list[Column]:
    rows = list(chosen)
    columns = [Column("launch", [f"#{report.summary.launch}" for report in rows])]
    if len(names) > 1:
        columns.append(Column("variant", [names[report.summary.variant] for report in rows], name=True))
    ranks = several_ranks(places)
    if ranks:
        numbers = [report.summary.place.rank for report in rows]
        columns.append(Column("rank", ["-" if number is None else str(number) for number in numbers]))
    if len(places) > max(len(ranks), 1):
        columns.append(Column("where", [places[report.summary.place] for report in rows], name=True))
    columns += [
        Column("time", [short_time(report.summary.duration_ns) for report in rows]),
        Column("MHz", [f"{report.summary.clock_mhz:.0f}" for report in rows]),
        Column("limit", [row.limit.name for row in rows], [limit_colour(row.limit) for row in rows], left=True),
        Column("findings", [", ".join(finding.rule for finding in report.findings) for report in rows], name=True),
    ]
    return columns


_HEALTHY, _DOUBTFUL = "green", "yellow"


def findings_shown(report: LaunchAnalysis, console: Console) -> RenderableType:
    """Return the numbered findings, largest share first, and what could not be judged.

    The absence of findings is shown as good news only if every rule could judge.
    """
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
        if (best := best_for(report.edits, finding.rule)) is not None:
            table.add_row("", "tried:", shown(won_text(best), console))
    return table


def build_lines(kernel: Kernel) -> Iterator[str]:
    """Yield a line on the build without records, or with them if only that is known."""
    which, cost = "without records", kernel.clean
    if cost.registers is None:
        which, cost = "with records", kernel.with_records
    if facts := list(_facts(kernel, cost)):
        yield f"  build {which}: {', '.join(facts)}"


def _facts(kernel: Kernel, cost: KernelResources) -> Iterator[str]:
    if cost.registers is not None:
        yield f"{counted(cost.registers, 'register')} per thread"
    if cost.spills is not None:
        yield counted(cost.spills, "spill") if cost.spills else "no spills"
    if cost.shared_bytes is not None:
        yield f"{cost.shared_bytes} bytes of shared memory"
    if cost.ctas_per_sm is not None:
        limit = limited_by(kernel.target, kernel.num_warps, cost)
        yield f"room for {counted(cost.ctas_per_sm, 'CTA')} on an SM{f' (limited by {limit})' if limit else ''}"


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
    """Print all that is known of a launch beyond its first screen."""
    for line in build_lines(report.launch.kernel):
        say(line, console)
    console.print(findings_shown(report, console))
    print_units(report, console)
    if report.stalls:
        print_stalls(report.stalls, console)
    print_fitted(_layouts(report.summary, console), console)
    print_all_tags(report.summary, console)
    for note in all_notes(report):
        say(note, console)
    if report.edits is not None:
        say("", console)
        print_edits([(report.edits, None)], console)
        if report.edits.winner is not None:
            say(f"how to apply it: edits/{report.edits.variant}/{OPTIONS_FILE} in the workspace", console)


def _layouts(summary: LaunchSummary, console: Console) -> list[list[Column]]:
    """Return layouts with narrower bars, and at last without bars, as the shares show the same."""
    scopes = [summary.scopes[index] for _, indices in summary.trees() for index in indices]
    figures = _columns(scopes, summary.resolution_ns)
    bars, colours = bars_for(console), scope_colours(scope.kind for scope in summary.scopes)
    styles = [colours[scope.index].rgb for scope in scopes]
    drawn = [
        Column(width.title, [width.drawn(scope.share or 0.0, scope.self_share) for scope in scopes], styles, left=True)
        for width in (bars, bars.narrow())
    ]
    layouts = [*([*figures, drawing] for drawing in drawn), figures]
    return [[_with_partitions(column, summary.partitions) for column in layout] for layout in layouts]


def _with_partitions(column: Column, partitions: Sequence[PartitionSummary]) -> Column:
    """Add a row for each partition above those of its scopes."""
    if not partitions:
        return column
    cells: list[str] = []
    styles: list[str] = []
    scope_cells, scope_styles = iter(column.cells), iter(column.styles or [""] * len(column.cells))
    indent = "  " if column.title == _SCOPE else ""
    for partition in partitions:
        cells += [_partition_cell(column.title, partition), *(indent + next(scope_cells) for _ in partition.scopes)]
        styles += ["bold", *(next(scope_styles) for _ in partition.scopes)]
    return replace(column, cells=cells, styles=styles)


def _partition_cell(title: str, partition: PartitionSummary) -> str:
    """Return the cell of a partition's row: all its warps' time, of which self is outside of all scopes."""
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
