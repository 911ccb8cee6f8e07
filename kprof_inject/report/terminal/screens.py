"""A capture on a terminal: a table of its kernels and launches, one launch's answer, and all details on request."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs
from rich.console import Console, Group, RenderableType
from rich.table import Table

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.findings.rules import Outcome
from kprof_inject.analysis.launch import ReportLaunch
from kprof_inject.analysis.program import SHORT_NS, KernelOverview, Program, Report
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.edits import OPTIONS_FILE
from kprof_inject.capture.measurements import GpuWork
from kprof_inject.capture.model import several_ranks
from kprof_inject.capture.source_text import without_folders
from kprof_inject.kernel_names import without_inner_types
from kprof_inject.quantities import counted, listed, percent, resolved_time, short_time
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
from kprof_inject.report.terminal.tables import (
    LEVEL_COLOURS,
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
        table_lines = _lines_of_kernels(program, len(program.kernels), console) if room.lines is not None else 0
        lines = answer_lines(answers.first, console)
        if not room.holds(table_lines + 1 + len(lines)):
            lines = answer_lines(answers.first, console, with_reasons=False)
        _print_kernels(program, console, room.below(1 + len(lines)))
        say("", console)
        print_lines(lines, console)
        return
    if program.others:
        _print_kernels(program, console)
        say("", console)
        room = room.below(_lines_of_kernels(program, 1, console) + 1)
    if len(report.launches) > 1:
        say(f"{_launches_text(first)}; shown: {_shown_text(first)}", console)
        room = room.below(1 + 1)  # another line, below the first screen, is for the slowest launch
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
        if units := report.program.kernels[0].middle.analysis.units:
            say("", console)
            print_units(units, console)

    return html_of(show)


def print_all(report: Report, console: Console) -> None:
    """Print all that is known of each variant's median launch, and the basis of the verdicts; most to win first."""
    answers, program = Answers(report), report.program
    if len(program.kernels) > 1 or program.others:
        _print_kernels(program, console)
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
_MAX_IN_ROW = 4  # names of kernels


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


def findings_shown(answer: Answer, console: Console) -> RenderableType:
    """Return the numbered findings, largest share first, and what could not be judged.

    The absence of findings is shown as good news only if every rule could judge.
    """
    doubts = [shown(f"  {doubt}", console, "yellow") for doubt in answer.doubts]
    # Findings that only other launches have, each as the launch that it costs most.
    variation = (f"  {one.held_in}, such as #{one.launch}: {one.sentence}" for one in answer.variation)
    others = [shown(line, console, "dim") for line in variation]
    if answer.findings:
        return Group(shown("findings:", console), _table(answer, console), *doubts, *others)
    if not doubts:
        return Group(shown("findings: none", console, "green"), *others)
    is_unjudged = any(one.outcome is Outcome.UNJUDGED for one in answer.rules)
    what = "findings: none, but some rules could not judge" if is_unjudged else "findings: none"
    return Group(shown(what, console, "yellow"), *doubts, *others)


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
    is_clean = answer.clean.registers is not None  # else only the build with records is known
    if facts := list(_facts(answer.clean if is_clean else answer.with_records)):
        say(f"  build {'without' if is_clean else 'with'} records: {', '.join(facts)}", console)
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


_MAX_KERNELS, _MIN_KERNELS = 24, 3
_FIRST_KERNELS = 3  # their part of what there is to win is said
_MAX_OTHERS, _MIN_OTHER_SHARE = 6, 0.01
_MAX_OTHERS_ON_SMALL, _SMALL_LINES = 2, 36  # on screens with fewer lines
_MIN_SHOWN_NAME, _SPACE = 28, 2
"""Width from which the shortened name of a kernel is readable, and what is between two columns, in terminal cells."""


def _lines_of_kernels(program: Program, count: int, console: Console) -> int:
    return lines_of_plain(_layouts_for(program, count, console), console) + len(list(_below(program, count, console)))


def _print_kernels(program: Program, console: Console, room: Room | None = None) -> None:
    # Those with most to win first; without ``room``, all of them.
    count = len(program.kernels)
    if room is not None:
        shown = min(count, _MAX_KERNELS)
        count = room.rows(shown, min(count, _MIN_KERNELS), lambda rows: _lines_of_kernels(program, rows, console))
    print_plain(_layouts_for(program, count, console), console)
    for line in _below(program, count, console):
        say(line, console)


def _below(program: Program, count: int, console: Console) -> Iterator[str]:
    kernels = program.kernels
    if hidden := kernels[count:]:
        shares = [kernel.share for kernel in hidden if kernel.share is not None]
        part = f", {percent(sum(shares))} of the time" if len(shares) == len(hidden) else ""
        yield f"{counted(len(hidden), 'kernel')} hidden{part}; see report -v"
    to_win_ns = [kernel.to_win_ns or 0.0 for kernel in kernels]
    first = to_win_ns[:_FIRST_KERNELS]
    if len(kernels) > _FIRST_KERNELS and all(first):
        yield f"the first three are {percent(sum(first) / sum(to_win_ns))} of what there is to win"
    if (short := program.short) is not None:
        launching = percent(short.launching_ns / short.whole_ns)
        text = f"{short.launches:,} of {counted(short.of_launches, 'launch')} take under {SHORT_NS // 1000} µs each: "
        text += f"{short_time(short.whole_ns)}, of which launching is {launching}; fuse "
        in_row = f"{listed(short.row, _MAX_IN_ROW)}, which follow each other ({short_time(short.row_ns)})"
        yield text + (in_row if short.row else "them with the kernels before or after them")
    if more := len(program.others) - len(_shown_others(program, console)):
        yield f"hidden: {counted(more, 'name')} that take less, not recorded either"


def _shown_others(program: Program, console: Console) -> Sequence[GpuWork]:
    is_small = console.file.isatty() and console.height < _SMALL_LINES
    shown = program.others[: _MAX_OTHERS_ON_SMALL if is_small else _MAX_OTHERS]
    listed_ns = sum(kernel.whole_ns for kernel in program.kernels) + sum(work.total_ns for work in program.others)
    return [work for work in shown if work.total_ns >= _MIN_OTHER_SHARE * listed_ns]


def _kernel_row(kernel: KernelOverview) -> dict[str, str]:
    analysis = kernel.middle.analysis
    level = trust_in(analysis).level
    by_rank_ns = kernel.time_by_rank_ns
    rank = max(by_rank_ns, key=by_rank_ns.__getitem__) if by_rank_ns else None
    return {
        "kernel": kernel.name,
        "variants": str(kernel.variants),
        "launches": str(kernel.known_launches),
        "span": short_time(kernel.time_ns),
        "longest on rank": "" if rank is None else f"{rank}: {short_time(by_rank_ns[rank])}",
        "share": "" if kernel.share is None else percent(kernel.share),
        "to win": "?" if kernel.to_win_ns is None else short_time(kernel.to_win_ns),
        "by": kernel.gain.by,
        "limit": analysis.limit.name,
        "trust": level.value,
        _LIMIT_STYLE: limit_colour(analysis.limit),
        _TRUST_STYLE: LEVEL_COLOURS.get(level, "yellow"),
    }


_LIMIT_STYLE, _TRUST_STYLE = "limit style", "trust style"


def _layouts_for(program: Program, count: int, console: Console) -> list[list[Column]]:
    # For less and less room; on a screen, the widest with readable names, which take one line each.
    others = [
        {
            "kernel": without_inner_types(work.name),
            "launches": str(work.count),
            "span": short_time(work.total_ns / max(work.count, 1)),
            "share": percent(work.total_ns / program.whole_ns) if program.whole_ns else "",
            "limit": "not recorded" if work.kind == "kernel" else work.kind,
            _LIMIT_STYLE: "dim",
        }
        for work in _shown_others(program, console)
    ]
    layouts = _kernel_layouts([*map(_kernel_row, program.kernels[:count]), *others], program)
    if not console.file.isatty():
        return layouts
    for name, *figures in layouts:
        room = console.width - sum(column.width + _SPACE for column in figures)
        if room >= min(name.width, _MIN_SHOWN_NAME):
            break
    # Both ends of a generated name tell it from others.
    width = max(room, _MIN_SHOWN_NAME // 2)
    end = (width - 1) // 2
    cells = [one if len(one) <= width else f"{one[: width - 1 - end]}…{one[len(one) - end :]}" for one in name.cells]
    return [[structs.replace(name, cells=cells), *figures]]


def _kernel_layouts(rows: Sequence[Mapping[str, str]], program: Program) -> list[list[Column]]:
    def column(heading: str, style: str = "", **kinds: bool) -> Column:
        styles = [row.get(style, "") for row in rows] if style else ()
        return Column(heading, [row.get(heading, "") for row in rows], styles, **kinds)

    def if_any(heading: str) -> list[Column]:
        return [column(heading)] if any(row.get(heading) for row in rows) else []

    name, launches, time, to_win = column("kernel", name=True), column("launches"), column("span"), column("to win")
    variants = [column("variants")] if any(kernel.variants > 1 for kernel in program.kernels) else []
    share, how, limit = if_any("share"), column("by", left=True), column("limit", _LIMIT_STYLE, left=True)
    trust = column("trust", _TRUST_STYLE, left=True)
    return [
        [name, *variants, launches, time, *if_any("longest on rank"), *share, to_win, how, limit, trust],
        [name, time, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit, trust],
        [name, *share, to_win, how, limit],
        [name, *share, to_win, limit],
    ]
