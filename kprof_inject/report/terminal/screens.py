"""A capture on a terminal: an overview of its kernels and launches, one launch's answer, and all details on request."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.analysis.findings.rules import Outcome
from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.analysis.program import KernelOverview, Report
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.edits import OPTIONS_FILE
from kprof_inject.capture.model import several_ranks
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import counted, percent, resolved_time, short_time
from kprof_inject.report.experiments import best_for, won_text
from kprof_inject.report.facts import Answer, Answers, Build, launch_row
from kprof_inject.report.terminal.evidence_tables import print_edits, print_stalls, print_units
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
    html_of,
    limit_colour,
    lines_of_plain,
    print_fitted,
    print_plain,
    print_trust,
    say,
    share_bars,
    share_text,
    shown,
)
from kprof_inject.scope_colours import scope_colours


def print_answers(report: Report, console: Console) -> None:
    """Print one launch's first screen; for several launches, an overview and the answer for the most important one.

    On a terminal, tables are cut so that the answer stays on the screen with them.
    """
    answers, program, room = Answers(report), report.program, Room.on(console)
    first = program.kernels[0]
    if len(program.kernels) > 1:
        # The table has the room that the answer on the first kernel leaves.
        table_lines = lines_of_kernels(program, len(program.kernels), console) if room.lines is not None else 0
        lines = answer_lines(answers.first, console)
        if not room.holds(table_lines + 1 + len(lines)):
            lines = answer_lines(answers.first, console, with_reasons=False)
        print_kernels(program, console, room.below(1 + len(lines)))
        say("", console)
        print_lines(lines, console)
        return
    if program.others:
        print_kernels(program, console)
        say("", console)
        room = room.below(lines_of_kernels(program, 1, console) + 1)
    if len(report.launches) > 1:
        say(f"{_launches_text(first)}; shown: {_shown_text(first)}", console)
        # Another line, below the first screen, is for the slowest launch.
        room = room.below(1 + 1)
    room = print_first_screen(answers.first, console, room)
    if len(report.launches) > 1:
        _print_launches(first, answers, console, room.below(-1))


def answers_text(report: Report, width: int) -> str:
    """Return what ``print_answers`` prints, as text without colours."""
    out = io.StringIO()
    print_answers(report, Console(file=out, width=width, color_system=None, markup=False, emoji=False))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def answers_html(report: Report) -> str:
    """Return the output of ``report``, and for the launch that it answers for a bar for each unit."""

    def show(console: Console) -> None:
        print_answers(report, console)
        units = report.program.kernels[0].middle.analysis.units
        if units:
            say("", console)
            print_units(units, console)

    return html_of(show)


def print_all(report: Report, console: Console) -> None:
    """Print all that is known of each variant's median launch, and the basis of the verdicts; most to win first."""
    answers, program = Answers(report), report.program
    if len(program.kernels) > 1 or program.others:
        print_kernels(program, console)
        say("", console)
    printed = []
    for kernel in program.kernels:
        if len(kernel.reports) > 1:
            _print_launches(kernel, answers, console)
            say("", console)
        if len(kernel.reports) > len(kernel.middles):
            which = "the median of each variant" if kernel.variants > 1 else _shown_text(kernel)
            say(f"{_launches_text(kernel)}; shown: {which}; another one: report -v --launch N", console)
        for one in kernel.middles:
            answer = answers.on(one)
            print_answer(answer, console)
            print_details(answer, console)
            printed.append(answer)
    print_trust(printed, console)


_MAX_LAUNCHES, _MIN_LAUNCHES = 10, 3


def _launches_text(kernel: KernelOverview) -> str:
    ordered = kernel.slowest_first
    variants = f" in {kernel.variants} variants" if kernel.variants > 1 else ""
    times = f"{short_time(ordered[-1].duration_ns)} to {short_time(ordered[0].duration_ns)}"
    return f"{counted(len(ordered), 'launch')}{variants}: {times}"


def _shown_text(kernel: KernelOverview) -> str:
    which = f"#{kernel.middle.launch.index}, the median"
    return which + " of the variant that takes the most time" if kernel.variants > 1 else which


def _print_launches(kernel: KernelOverview, answers: Answers, console: Console, room: Room | None = None) -> None:
    # Slowest first; without ``room``, all of them. If there is too little room, one line says how to see them.
    ordered = kernel.slowest_first
    count = len(ordered)

    def lines_of(rows: int) -> int:
        return 1 + lines_of_plain([_launch_columns(ordered[:rows], answers)], console) + (rows < len(ordered))

    if room is not None:
        count = room.rows(min(count, _MAX_LAUNCHES), min(count, _MIN_LAUNCHES), lines_of)
        if not room.holds(lines_of(count)):
            number = ordered[0].launch.index
            # The number names no launch if another variant or process has it, too.
            is_distinct = [one.launch.index for one in ordered].count(number) == 1
            slowest = f"#{number} is the slowest: report --launch {number}; " if is_distinct else ""
            say(f"{slowest}for all launches, see report -v", console)
            return
    say("", console)
    print_plain([_launch_columns(ordered[:count], answers)], console)
    if count < len(ordered):
        say(f"{counted(len(ordered) - count, 'shorter launch')} hidden; see report -v", console)


def _launch_columns(chosen: Sequence[ReportLaunch], answers: Answers) -> list[Column]:
    rows = [launch_row(one, one.analysis) for one in chosen]
    limits = [row.limit for row in rows if row.limit is not None]
    columns = [Column("launch", [f"#{row.launch}" for row in rows])]
    if len(answers.titles) > 1:
        columns.append(Column("variant", [answers.titles[row.variant] for row in rows], name=True))
    ranks = several_ranks(answers.places)
    if ranks:
        columns.append(Column("rank", ["-" if row.place.rank is None else str(row.place.rank) for row in rows]))
    if len(answers.places) > max(len(ranks), 1):
        columns.append(Column("where", [answers.places[row.place] for row in rows], name=True))
    columns += [
        Column("span", [short_time(row.duration_ns) for row in rows]),
        Column("MHz", [f"{row.clock_mhz or 0:.0f}" for row in rows]),
        Column("limit", [one.name for one in limits], [limit_colour(one) for one in limits], left=True),
        Column("findings", [", ".join(row.findings or ()) for row in rows], name=True),
    ]
    return columns


_HEALTHY, _DOUBTFUL = "green", "yellow"


def findings_shown(answer: Answer, console: Console) -> RenderableType:
    """Return the numbered findings, largest share first, and what could not be judged.

    The absence of findings is shown as good news only if every rule could judge.
    """
    doubts = [shown(f"  {doubt}", console, _DOUBTFUL) for doubt in answer.doubts]
    # Findings that only other launches have, each as the launch that it costs most.
    variation = (f"  {one.held_in}, such as #{one.launch}: {one.sentence}" for one in answer.variation)
    others = [shown(line, console, "dim") for line in variation]
    if answer.findings:
        return Group(shown("findings:", console), _table(answer, console), *doubts, *others)
    if not doubts:
        return Group(shown("findings: none", console, _HEALTHY), *others)
    is_unjudged = any(one.outcome is Outcome.UNJUDGED for one in answer.rules)
    what = "findings: none, but some rules could not judge" if is_unjudged else "findings: none"
    return Group(shown(what, console, _DOUBTFUL), *doubts, *others)


def _table(answer: Answer, console: Console) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, finding in enumerate(answer.findings, 1):
        share = shown(percent(finding.share), console, "bold")
        held_in = f" ({finding.held_in})" if finding.judged > 1 else ""
        table.add_row(f"  {number}.", share, shown(finding.sentence + held_in, console))
        table.add_row("", "next:", shown(finding.advice, console))
        if (best := best_for(answer.edits, finding.rule)) is not None:
            table.add_row("", "tried:", shown(won_text(best), console))
    return table


def _facts(build: Build) -> Iterator[str]:
    if build.registers is not None:
        yield f"{counted(build.registers, 'register')} per thread"
    if build.spills is not None:
        yield counted(build.spills, "spill") if build.spills else "no spills"
    if build.shared_bytes is not None:
        yield f"{build.shared_bytes} bytes of shared memory"
    if build.ctas_per_sm is not None:
        limit = f" (limited by {build.limited_by})" if build.limited_by else ""
        yield f"room for {counted(build.ctas_per_sm, 'CTA')} on an SM{limit}"


def print_details(answer: Answer, console: Console) -> None:
    """Print all that is known of a launch beyond its first screen."""
    which, build = "without records", answer.clean
    if build.registers is None:  # then only that with records is known
        which, build = "with records", answer.with_records
    if facts := list(_facts(build)):
        say(f"  build {which}: {', '.join(facts)}", console)
    console.print(findings_shown(answer, console))
    print_units(answer.units, console)
    if answer.stalls:
        print_stalls(answer.stalls, console)
    print_fitted(_layouts(answer, console), console)
    print_all_tags(answer, console)
    for note in answer.notes:
        say(note, console)
    if answer.edits is not None:
        say("", console)
        print_edits([(answer.edits, None)], console)
        if answer.edits.winner is not None:
            say(f"how to apply it: edits/{answer.edits.variant}/{OPTIONS_FILE} in the workspace", console)


_TITLES = ("scope", "source", "count", "total", "self", "mean", "p50", "p99", "share")


def _layouts(summary: LaunchSummary, console: Console) -> list[list[Column]]:
    # At last there are no bars, as the shares show the same.
    rows: list[tuple[ScopeSummary | None, list[str]]] = []
    for partition, indices in summary.trees():
        if partition:
            # All its warps' time, of which self is outside of all scopes.
            known = [short_time(partition.whole_ns), short_time(partition.outside_ns), "", "", "", percent(1.0)]
            cells = known if partition.whole_ns else ["-"] * len(known)
            rows.append((None, [partition.title, "", "", *cells]))
        for scope in map(summary.scopes.__getitem__, indices):
            name = ("  " if partition else "") + "  " * scope.depth + scope.title
            durations = [resolved_time(ns, summary.resolution_ns) for ns in (scope.mean_ns, scope.p50_ns, scope.p99_ns)]
            times = [short_time(scope.total_ns), short_time(scope.self_ns), *durations, share_text(scope.share)]
            rows.append((scope, [name, without_folders(scope.source) or "-", str(scope.count), *times]))
    styles = ["" if scope else "bold" for scope, _ in rows]
    figures = [
        Column(title, [cells[number] for _, cells in rows], styles, name=title in ("scope", "source"))
        for number, title in enumerate(_TITLES)
    ]
    colours = scope_colours(scope.kind for scope in summary.scopes)
    coloured = [colours[scope.index].rgb if scope else "" for scope, _ in rows]
    shares = [(scope.share or 0.0, scope.self_share) if scope else (0.0, 0.0) for scope, _ in rows]
    return [*([*figures, drawing] for drawing in share_bars(shares, coloured, console)), figures]
