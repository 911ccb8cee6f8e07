"""A comparison as tables for the terminal, a file or a notebook, and as a gate for CI."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from textwrap import shorten

from rich.console import Console

from kprof_inject.analysis.comparison.runs import grid_text
from kprof_inject.analysis.comparison.verdicts import CaptureDiff, ChangeVerdict, Judged, KernelDiff
from kprof_inject.errors import KprofError, Position, printable
from kprof_inject.quantities import counted
from kprof_inject.report.diff import rows, wording
from kprof_inject.report.diff.rows import Row
from kprof_inject.report.terminal.tables import Column, Room, print_fitted, print_plain, say
from kprof_inject.timeline.choice import matches_scope

_FILE_WIDTH = 160
_COLOURS = {"slower": "red", "faster": "green", "clock": "yellow"}
_NAMES, _LEFT = ("scope", "source", "kernel"), ("verdict", "line", "error")
_DROPPED_FIRST = ("p50", "share", "count", "mean", "source")
"""Columns of scopes to leave out, in this order, if there is too little room; the others show what changed."""
# Widths of a source line's text on narrower and narrower terminals.
_TEXT_WIDTHS = (60, 40, 24)
_MAX_KERNELS = 10  # longer lists are not read to the end


def print_diff_tables(diff: CaptureDiff, console: Console) -> None:
    """Print the answer, and tables and notes of the kernels with the largest ``worth_ns``; a terminal limits them."""
    answer, unpaired = wording.first_answer(diff), wording.unpaired_lines(diff)
    for line in answer:
        say(line, console)
    with console.capture() as captured:
        if ranks := rows.rank_rows(diff):
            columns = _columns(ranks, coloured="verdict")
            console.print()
            print_plain([columns if len({*columns[0].cells}) > 1 else columns[1:]], console)
    console.file.write(captured.get())
    room = Room.on(console).below(len(answer) + captured.get().count("\n") + min(len(unpaired), _MAX_KERNELS))
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


def _print_kernel(kernel: KernelDiff, console: Console, *, is_alone: bool) -> None:
    console.print()
    if not is_alone:
        say(f"{kernel.b.title}: {'; '.join(wording.kernel_answer(kernel))}", console)
    say(wording.kernel_title(kernel), console)
    if columns := _columns(rows.scope_rows(kernel), coloured="verdict"):
        dropped = [_DROPPED_FIRST[:count] for count in range(len(_DROPPED_FIRST) + 1)]
        printed = print_fitted([[one for one in columns if one.title not in titles] for titles in dropped], console)
        if left_out := [column.title for column in columns if column not in printed]:
            say(f"columns hidden: {', '.join(left_out)}; see --html, --json or a wider terminal", console)
    sentence, lines = rows.shown_lines(kernel)
    if sentence:
        say(sentence, console)
    if lines:
        columns = [column for column in _columns(lines, coloured="change") if any(column.cells)]
        layouts = [columns]
        for width in _TEXT_WIDTHS:
            cut = [shorten(row.cells["line"], width, placeholder=" …") for row in lines]
            layouts.append([Column("line", cut, left=True) if one.title == "line" else one for one in columns])
        layouts.append([column for column in columns if column.title not in ("line", "time")])
        print_plain(layouts, console)
    for line in (*rows.code_lines(kernel), *wording.kernel_notes(kernel)):
        say(line, console)


def _columns(shown: Sequence[Row], coloured: str) -> list[Column]:
    columns = []
    for title in shown[0].cells if shown else ():
        indents = ["  " * row.depth if title == "scope" else "" for row in shown]
        cells = [indent + row.cells[title] for indent, row in zip(indents, shown, strict=True)]
        styles = [_COLOURS.get(row.tone, "") for row in shown] if title == coloured else []
        columns.append(Column(title, cells, styles, left=title in _LEFT, name=title in _NAMES))
    return columns


def print_diff_answer(diff: CaptureDiff, console: Console) -> None:
    """Print the answer alone, and what the compiler changed."""
    for line in (*wording.first_answer(diff), *(line for kernel in diff.kernels for line in rows.code_lines(kernel))):
        say(line, console)


def diff_text(diff: CaptureDiff) -> str:
    """Return the same as plain text, for a file."""
    text = io.StringIO()
    print_diff_tables(diff, Console(file=text, width=_FILE_WIDTH, color_system=None))
    return text.getvalue()


_NUMBER = re.compile(r"\s*(\d{1,6}(?:\.\d{0,9})?|\.\d{1,9})\s*(%?)\s*")


def parse_limit(text: str) -> float:
    """Return the limit that ``5%`` or ``0.05`` means, as a fraction of A's time; else raise a usage error."""
    hint = "write a percentage, 5%, or a fraction, 0.05"
    if read := _NUMBER.fullmatch(text):
        value = float(read[1])
        if read[2] or value < 1:
            return value / 100 if read[2] else value
        hint = f"write {read[1]}% or {value / 100:g}"
    where = Position("--fail-above", 1, 1, text)
    raise KprofError(f"cannot read the limit {text!r}", where=where, hint=hint, exit_code=2)


def crossings(diff: CaptureDiff, limit: float, globs: Sequence[str]) -> Iterator[str]:
    """Yield a line for each launch, and each scope matched by one of ``globs``, that fails CI.

    It fails if it is certainly slower by more than ``limit``, if only one side has it, or if the verdict is unknown.
    """
    for kernel in diff.kernels:
        name = printable(kernel.b.title)
        yield from _crossing(name, kernel.launch, limit)
        for scope in kernel.scopes if globs else ():
            yield from _crossing(f"{printable(scope.b.distinct_name)} of {name}", scope.judged, limit)
        for side, unmatched in (("A", kernel.matching.only_a), ("B", kernel.matching.only_b)):
            for item in unmatched:
                if any(matches_scope(item.scope.info.name, glob) for glob in globs):
                    yield _unknown(f"{printable(item.scope.distinct_name)} of {name}", limit, f": only {side} has it")
    for runs in diff.only_a:
        yield _unknown(printable(runs.title), limit, f": only A ran it with grid {grid_text(runs.grid)}")


def _crossing(what: str, judged: Judged | None, limit: float) -> Iterator[str]:
    if judged is None:
        return
    if judged.verdict is ChangeVerdict.UNKNOWN:
        yield _unknown(what, limit)
    elif judged.verdict is ChangeVerdict.NEW:
        yield f"{what} is new: only B ran it"
    elif judged.verdict is ChangeVerdict.SLOWER and judged.change and judged.sure_percent > 100 * limit:
        yield f"{what} is slower by more than {100 * limit:g} %: {wording.change_words(judged.change)}"


def _unknown(what: str, limit: float, why: str = "") -> str:
    return f"cannot tell whether {what} is slower by more than {100 * limit:g} %{why}"
