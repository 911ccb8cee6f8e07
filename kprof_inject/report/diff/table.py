"""The tables of a comparison, as the terminal or a file gets them."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kprof_inject.printable import printable
from kprof_inject.report.diff.changes import Both
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff, ScopeChange
from kprof_inject.report.diff.notes import kernel_notes
from kprof_inject.report.diff.runs import KernelRuns
from kprof_inject.report.diff.settings import grid_text
from kprof_inject.report.diff.verdict import Verdict
from kprof_inject.report.diff.wording import change_text, first_sentence, kernel_sentence
from kprof_inject.report.quantities import percent, short_time

_COLOURS = {
    Verdict.SLOWER: "red",
    Verdict.FASTER: "green",
    Verdict.SAME: "",
    Verdict.CLOCK: "yellow",
    Verdict.UNKNOWN: "",
}
_ANY_WIDTH = 10_000
_LEAST_NAME = 8
_ARROW = " → "
_INSTANT = "mark"


def print_diff_tables(diff: CaptureDiff, console: Console) -> None:
    """Print the answer, then a table for each kernel and under it what bounds the answer."""
    _say(first_sentence(diff), console)
    for kernel in diff.kernels:
        console.print()
        if len(diff.kernels) > 1:
            _say(f"{kernel.b.kernel.name}: {kernel_sentence(kernel)}", console)
        # No figure is ever cut: on a terminal that is narrower, lines are wrapped.
        console.print(_fitted(kernel, console), crop=False)
        for note in kernel_notes(kernel):
            _say(note, console)
    for line in unpaired_lines(diff):
        _say(line, console)


def unpaired_lines(diff: CaptureDiff) -> list[str]:
    """The kernels that are in one capture alone."""
    return [
        f"only in {side}: {runs.kernel.name}, grid {grid_text(runs.grid)}, {_launches(runs)}"
        for side, found in (("A", diff.only_a), ("B", diff.only_b))
        for runs in found
    ]


def title_of(kernel: KernelDiff) -> str:
    a, b = kernel.a, kernel.b
    grid = grid_text(a.grid) if a.grid == b.grid else f"{grid_text(a.grid)} → {grid_text(b.grid)}"
    return f"{b.kernel.name}, A → B: grid {grid}, {len(a.timelines)} and {len(b.timelines)} launches"


def scope_cells(scope: ScopeChange) -> list[str]:
    """What stands in a scope's row behind its verdict and its change."""
    if scope.kind == _INSTANT:
        return [_of_both(scope.count, "{:.0f}".format), *["-"] * 4]
    return [
        _of_both(scope.count, "{:.0f}".format),
        *(_of_both(figure, short_time) for figure in (scope.total_ns, scope.mean_ns, scope.p50_ns)),
        _of_both(scope.share, percent),
    ]


SCOPE_TITLES = ("count", "total", "mean", "p50", "share")
_FIGURE_TITLES = ("verdict", "change", *SCOPE_TITLES)


def source_text(scope: ScopeChange) -> str:
    """The lines' place, by the last part of the file's path."""
    before, after = (source.rpartition("/")[2] or "-" for source in (scope.source_a, scope.source_b))
    return after if before == after else f"{before} → {after}"


def _fitted(kernel: KernelDiff, console: Console) -> Table:
    """The table with lines between its columns; where there is no room for those without, and with B's figures below
    A's. No figure is ever cut."""
    title = _shown(title_of(kernel))
    table = _filled(Table(title=title, title_justify="left"), kernel, " ")
    whole = console.options.update_width(_ANY_WIDTH)
    if console.measure(table, options=whole).maximum <= console.width:
        return table
    bare = _filled(
        Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False),
        kernel,
        "\n",
    )
    bare.width = max(console.measure(bare, options=whole).minimum, console.width)
    return bare


def _filled(table: Table, kernel: KernelDiff, between: str) -> Table:
    rows = [_figures(scope, between) for scope in kernel.scopes]
    for name in ("scope", "source"):
        table.add_column(name, overflow="fold", min_width=_LEAST_NAME)
    for number, name in enumerate(_FIGURE_TITLES):
        # Rich takes a column's longest word for the least that it needs.
        least = max(cell_len(line) for row in (_FIGURE_TITLES, *rows) for line in str(row[number]).split("\n"))
        table.add_column(name, justify="right" if number else "left", no_wrap=True, min_width=least)
    for scope, figures in zip(kernel.scopes, rows, strict=True):
        table.add_row(_shown("  " * scope.depth + scope.name), _shown(source_text(scope)), *figures)
    return table


def _figures(scope: ScopeChange, between: str) -> list[Text]:
    verdict = scope.judged.verdict if scope.judged else None
    return [
        Text(verdict.value, _COLOURS[verdict]) if verdict else Text("-"),
        Text(change_text(scope.judged, scope.compared_ns)),
        *(Text(cell.replace(_ARROW, _ARROW.rstrip() + between)) for cell in scope_cells(scope)),
    ]


def _of_both(figures: Both, text: Callable[[float], str]) -> str:
    before, after = ("-" if value is None else text(value) for value in (figures.a, figures.b))
    return after if before == after else f"{before}{_ARROW}{after}"


def _launches(runs: KernelRuns) -> str:
    count = len(runs.timelines)
    return "1 launch" if count == 1 else f"{count} launches"


def _shown(text: str) -> Text:
    """A kernel's names are anything, and neither rich's nor the terminal's commands."""
    return Text(printable(text))


def _say(text: str, console: Console) -> None:
    console.print(_shown(text), crop=False, soft_wrap=False)
