"""The tables of a comparison, as the terminal or a file gets them."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console

from kprof_inject.capture.scopes import INSTANT
from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.headline import first_sentence
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, ScopeChange
from kprof_inject.report.diff.notes import kernel_notes
from kprof_inject.report.diff.settings import distinct_names, grid_text
from kprof_inject.report.diff.verdict import Verdict
from kprof_inject.report.diff.wording import change_text, kernel_sentence, launch_counts
from kprof_inject.report.quantities import counted, percent, short_time
from kprof_inject.report.terminal.fitted_table import Column, print_fitted, say

_COLOURS = {
    Verdict.SLOWER: "red",
    Verdict.FASTER: "green",
    Verdict.SAME: "",
    Verdict.CLOCK: "yellow",
    Verdict.UNKNOWN: "",
    Verdict.NEW: "red",
    Verdict.GONE: "green",
}
_DROPPED_FIRST = ("p50", "share", "count", "mean", "source")
"""Where there is too little room, in this order; the rest says what changed."""
_ARROW = " → "


def print_diff_tables(diff: CaptureDiff, console: Console) -> None:
    """Print the answer, then a table for each kernel and under it what bounds the answer."""
    say(first_sentence(diff), console)
    for kernel in diff.kernels:
        console.print()
        if len(diff.kernels) > 1:
            say(f"{kernel.b.kernel.name}: {kernel_sentence(kernel)}", console)
        say(title_of(kernel), console)
        layouts = _layouts(kernel)
        printed = print_fitted(layouts, console)
        if left_out := [column.title for column in layouts[0] if column not in printed]:
            say(f"no room here for {', '.join(left_out)}: --html, --json or a wider terminal has all columns", console)
        for note in kernel_notes(kernel):
            say(note, console)
    for line in unpaired_lines(diff):
        say(line, console)


def unpaired_lines(diff: CaptureDiff) -> list[str]:
    """The kernels that are in one capture alone, by names that tell them from that capture's others."""
    lines = []
    for side, paired, alone in (
        ("A", [kernel.a for kernel in diff.kernels], diff.only_a),
        ("B", [kernel.b for kernel in diff.kernels], diff.only_b),
    ):
        names = distinct_names([*alone, *paired])[: len(alone)]
        lines += [
            f"only in {side}: {name}, grid {grid_text(runs.grid)}, {counted(len(runs.timelines), 'launch')}"
            for name, runs in zip(names, alone, strict=True)
        ]
    return lines


def title_of(kernel: KernelDiff) -> str:
    a, b = kernel.a, kernel.b
    grid = grid_text(a.grid) if a.grid == b.grid else f"{grid_text(a.grid)} → {grid_text(b.grid)}"
    return f"{b.kernel.name}, A → B: grid {grid}, {launch_counts(len(a.timelines), len(b.timelines))}"


def scope_cells(scope: ScopeChange) -> list[str]:
    """What stands in a scope's row behind its verdict and its change."""
    if scope.kind == INSTANT:
        return [_of_both(scope.count, "{:.0f}".format), *["-"] * 4]
    return [
        _of_both(scope.count, "{:.0f}".format),
        *(_of_both(figure, short_time) for figure in (scope.total_ns, scope.mean_ns, scope.p50_ns)),
        _of_both(scope.share, percent),
    ]


SCOPE_TITLES = ("count", "total", "mean", "p50", "share")


def source_text(scope: ScopeChange) -> str:
    """The lines' place, by the last part of the file's path."""
    before, after = (source.rpartition("/")[2] or "-" for source in (scope.source_a, scope.source_b))
    return after if before == after else f"{before} → {after}"


def _layouts(kernel: KernelDiff) -> list[list[Column]]:
    """All columns; and fewer and fewer."""
    columns = _columns(kernel)
    return [
        [column for column in columns if column.title not in _DROPPED_FIRST[:count]]
        for count in range(len(_DROPPED_FIRST) + 1)
    ]


def _columns(kernel: KernelDiff) -> list[Column]:
    scopes = kernel.scopes
    verdicts = [scope.judged.verdict if scope.judged else None for scope in scopes]
    figures = [scope_cells(scope) for scope in scopes]
    return [
        Column("scope", ["  " * scope.depth + scope.title for scope in scopes], name=True),
        Column("source", [source_text(scope) for scope in scopes], name=True),
        Column(
            "verdict",
            [verdict.value if verdict else "-" for verdict in verdicts],
            [_COLOURS[verdict] if verdict else "" for verdict in verdicts],
            left=True,
        ),
        Column("change", [change_text(scope.judged, scope.compared_ns) for scope in scopes]),
        *(Column(title, [row[number] for row in figures]) for number, title in enumerate(SCOPE_TITLES)),
    ]


def _of_both(figures: Both, text: Callable[[float], str]) -> str:
    before, after = ("-" if value is None else text(value) for value in (figures.a, figures.b))
    return after if before == after else f"{before}{_ARROW}{after}"
