"""A comparison as tables for the terminal, a file or a notebook."""

from __future__ import annotations

import io
from collections.abc import Sequence
from textwrap import shorten

from rich.console import Console

from kprof_inject.analysis.comparison.code import structure_of
from kprof_inject.analysis.comparison.lines import NumberedLine, source_parts
from kprof_inject.analysis.comparison.verdicts import CaptureDiff, KernelDiff
from kprof_inject.quantities import counted
from kprof_inject.report.diff import rows, wording
from kprof_inject.report.diff.rows import Row
from kprof_inject.report.terminal.in_html import html_of
from kprof_inject.report.terminal.tables import Column, Room, print_fitted, print_plain, say

_FILE_WIDTH = 160
_COLOURS = {"slower": "red", "faster": "green", "clock": "yellow"}
_NAMES, _LEFT = ("scope", "source", "kernel"), ("verdict", "line", "error")
_DROPPED_FIRST = ("p50", "share", "count", "mean", "source")
"""Columns of scopes to leave out, in this order, if there is too little room; the others show what changed."""
# Widths of a source line's text on narrower and narrower terminals.
_TEXT_WIDTHS = (60, 40, 24)
_MAX_KERNELS = 10
"""Longer lists are not read to the end."""
_NUMBER_WIDTH = 4


def print_diff_tables(diff: CaptureDiff, console: Console) -> None:
    """Print the answer, then for each kernel a table with the notes that limit the answer.

    The kernels are those with the largest ``worth_ns``; on a terminal, as many as there is room for.
    """
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
        say(f"{kernel.b.title}: {wording.in_one_line(wording.kernel_answer(kernel))}", console)
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
        print_plain(_line_layouts(lines), console)
    _print_code(kernel, console)
    for note in wording.kernel_notes(kernel):
        say(note, console)


def _columns(shown: Sequence[Row], coloured: str) -> list[Column]:
    """Return the columns of the rows' cells; ``coloured`` is the title of the one in their colours."""
    columns = []
    for title in shown[0].cells if shown else ():
        indents = ["  " * row.depth if title == "scope" else "" for row in shown]
        cells = [indent + row.cells[title] for indent, row in zip(indents, shown, strict=True)]
        styles = [_COLOURS.get(row.tone, "") for row in shown] if title == coloured else []
        columns.append(Column(title, cells, styles, left=title in _LEFT, name=title in _NAMES))
    return columns


def _line_layouts(shown: Sequence[Row]) -> list[list[Column]]:
    """Return the columns of source lines, and then narrower and narrower ones; texts are cut between words."""
    columns = [column for column in _columns(shown, coloured="change") if any(column.cells)]
    layouts = [columns]
    for width in _TEXT_WIDTHS:
        cut = [shorten(row.cells["line"], width, placeholder=" …") for row in shown]
        layouts.append([Column("line", cut, left=True) if one.title == "line" else one for one in columns])
    return [*layouts, [column for column in columns if column.title not in ("line", "time")]]


def _print_code(kernel: KernelDiff, console: Console) -> None:
    for row in rows.code_rows(kernel):
        say(f"{'  ' * row.depth}{row.name}", console)


def print_diff_answer(diff: CaptureDiff, console: Console) -> None:
    """Print the answer alone, and what the compiler changed."""
    for line in wording.first_answer(diff):
        say(line, console)
    for kernel in diff.kernels:
        _print_code(kernel, console)


def print_sources(diff: CaptureDiff, console: Console) -> None:
    """Print both sides' changed source lines side by side, and below each what the compiler changed.

    On a terminal, lines are cut to half of its width. A star is between the sides of an edited line.
    """
    most = console.width // 2 - 2 if console.file.isatty() else None
    for kernel in diff.kernels:
        for part in source_parts(kernel, structure_of(kernel)):
            console.print()
            say(f"{kernel.b.title}: {part.name}, A | B", console)
            indent = rows.indent_of(part)
            sides = [[_source_text(line, indent, most) for line in (row.a, row.b)] for row in part.rows]
            width = max(len(a) for a, _ in sides)
            for row, (a, b) in zip(part.rows, sides, strict=True):
                say(f"{a:{width}} {'*' if row.is_edited else '|'} {b}".rstrip(), console)
                for text in row.changes:
                    say(f"{'':{_NUMBER_WIDTH}} ^ {text}", console)


def _source_text(line: NumberedLine | None, indent: int, most: int | None) -> str:
    text = f"{line.number:{_NUMBER_WIDTH}} {line.text[indent:]}" if line else ""
    return text if most is None or len(text) <= most else f"{text[: most - 1]}…"


def diff_text(diff: CaptureDiff) -> str:
    """Return the same as plain text, for a file."""
    text = io.StringIO()
    print_diff_tables(diff, Console(file=text, width=_FILE_WIDTH, color_system=None))
    return text.getvalue()


def diff_html(diff: CaptureDiff) -> str:
    """Return the same with its colours, for a notebook."""
    return html_of(lambda console: print_diff_tables(diff, console))
