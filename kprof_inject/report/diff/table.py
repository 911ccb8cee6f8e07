"""A comparison as tables for the terminal or a file, and as JSON values."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console

from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.capture.source_text import without_folders
from kprof_inject.errors import printable
from kprof_inject.quantities import before_and_after, counted, listed, numbered, percent, resolved_time, short_time
from kprof_inject.report.diff.change_verdicts import MEAN, ONE_SIDED, Both, ChangeVerdict, Judged
from kprof_inject.report.diff.code_changes import part_lines, parts_json, source_parts, structure_json, structure_lines
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, ScopeChange
from kprof_inject.report.diff.line_changes import line_changes, line_layouts, lines_json
from kprof_inject.report.diff.runs import KernelRuns, distinct_runs, grid_text, has_launching
from kprof_inject.report.diff.scope_matching import Unmatched
from kprof_inject.report.diff.structure import structure_of
from kprof_inject.report.diff.wording import (
    change_in_cycles,
    change_text,
    clean_times,
    first_sentence,
    kernel_sentence,
    launch_counts,
    more_launches,
    spans,
    took_no_time,
)
from kprof_inject.report.terminal.in_html import html_of
from kprof_inject.report.terminal.tables import Column, Room, print_fitted, print_plain, say
from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.trust import Level, judge

_FILE_WIDTH = 160
_DOUBTFUL = (Level.CAREFUL, Level.UNRELIABLE, Level.CANNOT_TELL)


def kernel_notes(diff: KernelDiff) -> Iterator[str]:
    """Yield the notes below a kernel's table: other differences, and the limits of the comparison."""
    differing = printable(", ".join(map(str, diff.differences)))
    yield f"differs: {differing}" if differing else "builds and launches: no recorded setting differs"
    yield from _launches(diff)
    yield from _clock(diff)
    yield from _work(diff)
    yield from _records(diff)
    yield from _scopes(diff)


def _launches(diff: KernelDiff) -> Iterator[str]:
    if diff.clean is not None:
        verdict = _verdict(diff.clean, diff.clean_ns)
        yield f"{verdict}: {clean_times(diff)}, {launch_counts(*diff.clean_launches)}"
    elif diff.same_clean_times:
        yield "without records: no comparison, because both sides have the times of the same dump"
    else:
        sides = [side for side, time_ns in (("A", diff.clean_ns.a), ("B", diff.clean_ns.b)) if time_ns is None]
        yield f"without records: no times in {' or '.join(sides)}"
    launches = launch_counts(len(diff.sides.a), len(diff.sides.b))
    first = f", without the first of each process ({diff.left_out} in all)" if diff.left_out else ""
    yield f"{_verdict(diff.recorded, diff.sides.duration_ns)}: {spans(diff)}, {launches}{first}"
    verdicts = {judged.verdict for judged in (diff.clean, diff.recorded) if judged is not None}
    if {ChangeVerdict.FASTER, ChangeVerdict.SLOWER} <= verdicts:
        yield "these two contradict each other: records change how this kernel runs; trust the times without records"


def _verdict(judged: Judged, figures_ns: Both) -> str:
    change = change_text(judged, figures_ns)
    return judged.verdict.value if change == "-" else f"{judged.verdict.value}, {change}"


def _clock(diff: KernelDiff) -> Iterator[str]:
    if diff.sides.clocks.differ:
        yield f"clock rate {diff.sides.clocks}: in cycles the change is {change_in_cycles(diff)}"
    elif diff.sides.clocks.a_hz is None or diff.sides.clocks.b_hz is None:
        yield "clock rate not measured on both sides: a change of it would look like a change of the kernel"
    if not all(launch.timed for launch in diff.sides.launches):
        yield "times are cycles at an assumed clock rate, because no timer was read: only cycles are compared"


def _work(diff: KernelDiff) -> Iterator[str]:
    if diff.a.grid != diff.b.grid:
        yield (
            f"grid {grid_text(diff.a.grid)} → {grid_text(diff.b.grid)}: the work per CTA or per launch differs; totals "
            "cover all CTAs, means one execution each"
        )
    ran = [{launch.ctas for launch in side} for side in (diff.sides.a, diff.sides.b)]
    if diff.a.grid == diff.b.grid and ran[0] != ran[1]:
        yield "the number of CTAs that ran differs: totals cover those that ran"
    if diff.a.kernel.num_warps != diff.b.kernel.num_warps:
        yield "the number of warps in a CTA differs: changes are of one warp, totals cover all"
    if diff.warps is not None:
        both = f"scopes are compared in {numbered('warp', diff.warps)}" if diff.warps else "no scope is compared"
        yield f"recorded warps differ: {both}, {'which' if diff.warps else 'as no warp'} both sides recorded"


def _records(diff: KernelDiff) -> Iterator[str]:
    for side, launches in (("A", diff.sides.a), ("B", diff.sides.b)):
        if missing := sum(launch.records_missing for launch in launches):
            lost = counted(missing, "record")
            yield f"lost: {lost} of {side}; run --fit keeps them all, and so do larger buffers of other profilers"
    if any(scope.basis == MEAN.name for scope in diff.scopes):
        yield "scopes are compared by their means, because records are missing and totals incomplete"
    known = {launch.record_cost_known for launch in diff.sides.launches}
    if known == {True, False}:
        yield "record cost: subtracted on one side only, because it is unknown on the other: scopes differ by it"
    for side, runs in (("A", diff.a), ("B", diff.b)):
        trust = judge(runs.kernel)
        if trust.level in _DOUBTFUL:
            yield f"trust in {side}: {trust.text}"


def _scopes(diff: KernelDiff) -> Iterator[str]:
    compared = [scope.judged for scope in diff.scopes if scope.judged and scope.judged.verdict not in ONE_SIDED]
    if compared and all(judged.change is None for judged in compared):
        yield f"scopes: {_why_no_scope(diff)}"
    elif compared:
        yield f"[low, high]: intervals of {100 * CONFIDENCE:.0f} % confidence, for all scopes together"
    for scope in diff.scopes:
        if scope.note:
            yield printable(f"{scope.distinct_name}: {scope.note}")
        yield from _tags(scope)
    for side, unmatched in (("A", diff.only_a), ("B", diff.only_b)):
        for item in unmatched:
            source = f" ({without_folders(item.scope.source)})" if item.scope.source else ""
            yield printable(f"only in {side}: {item.scope.title}{source}: {item.why}")


_MAX_TAG_VALUES = 8


def _tags(scope: ScopeChange) -> Iterator[str]:
    for name in dict.fromkeys(tag.name for tag in scope.tags):
        values = [tag for tag in scope.tags if tag.name == name]
        medians = [f"{tag.value}: {_before_and_after(tag.p50_ns, short_time)}" for tag in values]
        yield printable(f"{scope.distinct_name} by {name}, p50: {listed(medians, _MAX_TAG_VALUES)}")


def _why_no_scope(diff: KernelDiff) -> str:
    if diff.recorded.change is None and not took_no_time(diff):
        return "; ".join(["too few launches to separate a change from noise", *more_launches(diff)[:1]])
    return "no change is known, because a launch or the scope in it took 0 ns"


_COLOURS = {
    ChangeVerdict.SLOWER: "red",
    ChangeVerdict.FASTER: "green",
    ChangeVerdict.CLOCK: "yellow",
    ChangeVerdict.NEW: "red",
    ChangeVerdict.GONE: "green",
}
_DROPPED_FIRST = ("p50", "share", "count", "mean", "source")
"""Columns to leave out, in this order, if there is too little room; the others show what changed."""


_MAX_KERNELS = 10
"""Longer lists are not read to the end."""


def print_diff_tables(diff: CaptureDiff, console: Console) -> None:
    """Print the answer, then for each kernel a table with the notes that limit the answer.

    The kernels are those with the largest ``worth_ns``; on a terminal, as many as there is room for.
    """
    say(first_sentence(diff), console)
    unpaired = unpaired_lines(diff)
    with console.capture() as captured:
        if diff.is_by_rank:
            console.print()
            print_plain([_rank_columns(diff)], console)
    console.file.write(captured.get())
    room = Room.on(console).below(1 + captured.get().count("\n") + min(len(unpaired), _MAX_KERNELS))
    shown = 0
    for kernel in diff.kernels[:_MAX_KERNELS]:
        with console.capture() as captured:
            _print_kernel(kernel, console, is_alone=len(diff.kernels) == 1)
        text = captured.get()
        room = room.below(text.count("\n"))
        if shown and not room.holds(0):
            break
        console.file.write(text)
        shown += 1
    if more := len(diff.kernels) - shown:
        say("", console)
        say(f"{counted(more, 'kernel')} with smaller changes hidden; see --kernel GLOB, --html or --json", console)
    for line in unpaired[:_MAX_KERNELS]:
        say(line, console)
    if len(unpaired) > _MAX_KERNELS:
        say(f"{len(unpaired) - _MAX_KERNELS} more in one capture alone; see --html or --json", console)


def _rank_columns(diff: CaptureDiff) -> list[Column]:
    rows = rank_rows(diff)
    verdicts = [kernel.launch.verdict for kernel in rows]
    names = [kernel.b.kernel.name for kernel in rows]
    return [
        *([Column("kernel", names, name=True)] if len({*names}) > 1 else []),
        Column("rank", [rank_text(kernel.b) for kernel in rows]),
        Column(
            "verdict", [verdict.value for verdict in verdicts], [_COLOURS.get(one, "") for one in verdicts], left=True
        ),
        Column("change", [change_text(kernel.launch, kernel.compared_ns) for kernel in rows]),
        Column("launch", [_before_and_after(kernel.compared_ns, short_time) for kernel in rows]),
    ]


def rank_rows(diff: CaptureDiff) -> list[KernelDiff]:
    """Return the comparisons by kernel and rank, the kernels in the order of their changes."""
    names = list(dict.fromkeys(kernel.b.kernel.name for kernel in diff.kernels))
    return sorted(diff.kernels, key=lambda kernel: (names.index(kernel.b.kernel.name), kernel.b.rank or 0))


def rank_text(runs: KernelRuns) -> str:
    """Return the rank of launches; ``-`` for a process without one."""
    return "-" if runs.rank is None else str(runs.rank)


def diff_text(diff: CaptureDiff) -> str:
    """Return the same as plain text, for a file."""
    text = io.StringIO()
    print_diff_tables(diff, Console(file=text, width=_FILE_WIDTH, color_system=None))
    return text.getvalue()


def diff_html(diff: CaptureDiff) -> str:
    """Return the same with its colours, for a notebook."""
    return html_of(lambda console: print_diff_tables(diff, console))


def _print_kernel(kernel: KernelDiff, console: Console, *, is_alone: bool) -> None:
    console.print()
    if not is_alone:
        say(f"{kernel.b.title}: {kernel_sentence(kernel)}", console)
    say(title_of(kernel), console)
    layouts = _layouts(kernel)
    printed = print_fitted(layouts, console)
    if left_out := [column.title for column in layouts[0] if column not in printed]:
        say(f"columns hidden: {', '.join(left_out)}; see --html, --json or a wider terminal", console)
    if changes := line_changes(kernel):
        say(changes.sentence, console)
        if changes.shown:
            print_plain(line_layouts(changes.shown), console)
    for line in structure_lines(structure_of(kernel), kernel):
        say(line, console)
    for note in kernel_notes(kernel):
        say(note, console)


def print_diff_answer(diff: CaptureDiff, console: Console) -> None:
    """Print the answer alone, and what the compiler changed."""
    say(first_sentence(diff), console)
    for kernel in diff.kernels:
        for line in structure_lines(structure_of(kernel), kernel):
            say(line, console)


def print_sources(diff: CaptureDiff, console: Console) -> None:
    """Print both sides' changed source lines side by side, and below each what the compiler changed.

    On a terminal, lines are cut to half of its width.
    """
    for kernel in diff.kernels:
        for part in source_parts(kernel, structure_of(kernel)):
            console.print()
            say(f"{kernel.b.title}: {part.name}, A | B", console)
            for line in part_lines(part, console.width // 2 - 2 if console.file.isatty() else None):
                say(line, console)


def unpaired_lines(diff: CaptureDiff) -> list[str]:
    """Return a line for each kernel of one capture alone, by a name that is unique in that capture."""
    lines = []
    for side, paired, alone in (
        ("A", [kernel.a for kernel in diff.kernels], diff.only_a),
        ("B", [kernel.b for kernel in diff.kernels], diff.only_b),
    ):
        names = distinct_runs([*alone, *paired])[: len(alone)]
        lines += [
            f"only in {side}: {name}, grid {grid_text(runs.grid)}, {counted(len(runs.timelines), 'launch')}"
            for name, runs in zip(names, alone, strict=True)
        ]
    return lines


def title_of(kernel: KernelDiff) -> str:
    """Return the title of a kernel's table."""
    a, b = kernel.a, kernel.b
    grid = before_and_after(grid_text(a.grid), grid_text(b.grid))
    return f"{b.title}, A → B: grid {grid}, {launch_counts(len(a.timelines), len(b.timelines))}"


def scope_cells(scope: ScopeChange, resolution_ns: Both) -> list[str]:
    """Return the cells of a scope's row after its verdict and its change."""
    if scope.kind == ScopeKind.INSTANT:
        return [_before_and_after(scope.count, "{:.0f}".format), *["-"] * 4]
    return [
        _before_and_after(scope.count, "{:.0f}".format),
        _before_and_after(scope.total_ns, short_time),
        *(_resolved(figure, resolution_ns) for figure in (scope.mean_ns, scope.p50_ns)),
        _before_and_after(scope.share, percent),
    ]


def _resolved(figures: Both, resolution_ns: Both) -> str:
    pairs = ((figures.a, resolution_ns.a), (figures.b, resolution_ns.b))
    return before_and_after(*(resolved_time(ns, shortest_ns or 0.0) for ns, shortest_ns in pairs))


SCOPE_TITLES = ("count", "total", "mean", "p50", "share")


def source_text(scope: ScopeChange) -> str:
    """Return a scope's source lines in A and B, without folders."""
    return before_and_after(*(source.rpartition("/")[2] or "-" for source in (scope.source_a, scope.source_b)))


def _layouts(kernel: KernelDiff) -> list[list[Column]]:
    """Return all columns, then with fewer and fewer of them."""
    columns = _columns(kernel)
    return [
        [column for column in columns if column.title not in _DROPPED_FIRST[:count]]
        for count in range(len(_DROPPED_FIRST) + 1)
    ]


def _columns(kernel: KernelDiff) -> list[Column]:
    scopes = kernel.scopes
    verdicts = [scope.judged.verdict if scope.judged else None for scope in scopes]
    figures = [scope_cells(scope, kernel.resolution_ns) for scope in scopes]
    return [
        Column("scope", ["  " * scope.depth + scope.title for scope in scopes], name=True),
        Column("source", [source_text(scope) for scope in scopes], name=True),
        Column(
            "verdict",
            [verdict.value if verdict else "-" for verdict in verdicts],
            [_COLOURS.get(verdict, "") if verdict else "" for verdict in verdicts],
            left=True,
        ),
        Column("change", [change_text(scope.judged, scope.compared_ns) for scope in scopes]),
        *(Column(title, [row[number] for row in figures]) for number, title in enumerate(SCOPE_TITLES)),
    ]


def _before_and_after(figures: Both, text: Callable[[float], str]) -> str:
    return before_and_after(*("-" if value is None else text(value) for value in (figures.a, figures.b)))


def diff_json(diff: CaptureDiff) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    return {
        "sentence": first_sentence(diff),
        "confidence": CONFIDENCE,
        "kernels": [_kernel(kernel) for kernel in diff.kernels],
        "only_a": [_runs(runs) for runs in diff.only_a],
        "only_b": [_runs(runs) for runs in diff.only_b],
    }


def _kernel(diff: KernelDiff) -> dict[str, Any]:
    structure = structure_of(diff)
    return {
        "kernel": diff.b.kernel.name,
        **({} if diff.b.rank is None else {"rank": diff.b.rank}),
        "a": _runs(diff.a),
        "b": _runs(diff.b),
        "sentence": kernel_sentence(diff),
        "verdict": diff.launch.verdict.value,
        "differences": {difference.what: [difference.a, difference.b] for difference in diff.differences},
        "clock_hz": [diff.sides.clocks.a_hz, diff.sides.clocks.b_hz],
        "without_records": diff.clean
        and {
            **diff.clean.to_json(),
            "median_ns": json_values(diff.clean_ns),
            "launching_subtracted": not has_launching(diff.a, diff.b),
        },
        "with_records": {
            **diff.recorded.to_json(),
            "median_ns": json_values(diff.sides.duration_ns),
            "median_cycles": json_values(diff.sides.duration_cycles),
        },
        "compared_warps": diff.warps,
        "first_launches_left_out": diff.left_out,
        "by_scopes_percent": diff.by_scopes_percent,
        "scopes": [_scope(scope) for scope in diff.scopes],
        "lines": lines_json(line_changes(diff)),
        "only_a": list(map(_unmatched, diff.only_a)),
        "only_b": list(map(_unmatched, diff.only_b)),
        "structure": structure_json(structure, diff),
        "source": parts_json(source_parts(diff, structure)),
        "notes": list(kernel_notes(diff)),
    }


def _runs(runs: KernelRuns) -> dict[str, Any]:
    return {
        "kernel": runs.kernel.name,
        "variant": runs.kernel.variant,
        "grid": runs.grid,
        "launches": [timeline.launch.index for timeline in runs.timelines],
        "clean_launches": sum(map(len, runs.clean_times_ns())),
    }


def _scope(scope: ScopeChange) -> dict[str, Any]:
    values = json_values(scope)
    judged = scope.judged.to_json() if scope.judged else {"verdict": None, "change": None, "change_in_cycles": None}
    del values["judged"]
    return {**values, **judged}


def _unmatched(item: Unmatched) -> dict[str, Any]:
    return {
        "index": item.index,
        "scope": item.scope.name,
        "kind": item.scope.kind,
        "source": item.scope.source,
        "why": item.why,
    }
