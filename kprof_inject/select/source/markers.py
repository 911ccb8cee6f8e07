"""Marker comments: which lines of a kernel's source each of them means."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kprof_inject.errors import KprofError, Position
from kprof_inject.select.source.marker_comments import (
    MARKER_COMMENT,
    Instruction,
    check_is_prose,
    instructions_in,
    marker_head,
    may_hold_markers,
    not_behind_loop,
)
from kprof_inject.select.source.marker_ranges import OpenRanges
from kprof_inject.select.source.python_source import (
    LoopNode,
    PythonSource,
    SuitePlace,
    code_in,
    first_line,
    last_line,
    lines_of,
)
from kprof_inject.select.source.sources import SourceFunction, Sources


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker. ``line`` is the comment's, ``function`` the innermost function that holds what is marked."""

    name: str
    file: str
    line: int
    function: SourceFunction


@dataclass(frozen=True, slots=True)
class RangeMarker(Marker):
    """The statements from ``begin`` to ``end``, or one statement, on these lines."""

    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class LoopMarker(Marker):
    """Around the loop whose ``for`` or ``while`` is on this line. Its name is ``loop`` if none is written."""

    loop_line: int


@dataclass(frozen=True, slots=True)
class IterationMarker(Marker):
    """Iterations of the loop whose ``for`` or ``while`` is on this line. Its name is ``iter`` if none is written."""

    loop_line: int


@dataclass(frozen=True, slots=True)
class InstantMarker(Marker):
    """The instant before the statements behind it in its suite, or (not ``is_before``) after those in front of it.

    ``statements`` are the first and the last line of each, the nearest statement first: the compiler may leave nothing
    of it. ``loop_line`` is that of the innermost loop around it in its function, 0 without any."""

    statements: tuple[tuple[int, int], ...]
    is_before: bool
    loop_line: int


def markers_in(sources: Sources, file: str) -> tuple[Marker, ...]:
    """All markers in a file, in the order of the text. Raises ``KprofError`` for the first that is wrong."""
    text = sources.text(file)
    if text is None or not may_hold_markers(text):
        return ()
    try:
        source = sources.parsed(file)
        comments = source.comments
    except SyntaxError as error:
        # What is a comment cannot be told here; this decides only whether anybody will miss one.
        if MARKER_COMMENT.search(text):
            raise _unreadable(file, lines_of(text), error) from None
        return ()
    reader = _Reader(sources, source, file)
    for comment in comments:
        line_text = source.lines[comment.line - 1]
        if marker_head(comment):
            for instruction in instructions_in(comment, file, line_text):
                reader.read(instruction)
        else:
            check_is_prose(comment, file, line_text)
    return reader.finish()


class _Reader:
    """Turns a file's instructions, read in the order of the text, into markers."""

    def __init__(self, sources: Sources, source: PythonSource, file: str) -> None:
        self._sources = sources
        self._source = source
        self._file = file
        self._ranges = OpenRanges()
        self._found: list[tuple[Position, Marker]] = []

    def read(self, instruction: Instruction) -> None:
        _READ[instruction.verb](self, instruction)

    def finish(self) -> tuple[Marker, ...]:
        """The markers. Raises ``KprofError`` if a range is still open."""
        self._ranges.check_all_ended()
        ordered = sorted(self._found, key=lambda found: (found[0].line, found[0].column))
        return tuple(marker for _, marker in ordered)

    def _begin(self, instruction: Instruction) -> None:
        place, _ = self._place(instruction)
        self._ranges.begin(instruction, place)

    def _end(self, instruction: Instruction) -> None:
        place, function = self._place(instruction)
        closed = self._ranges.end(instruction, place)
        self._add_range(closed.begin, function, closed.statements)

    def _statement(self, instruction: Instruction) -> None:
        statements = self._source.statements_on(instruction.comment.logical_line)
        if not statements:
            raise KprofError(
                "no statement begins on this line",
                where=instruction.where,
                hint="put the comment behind a statement, or begin and end around several",
            )
        self._add_range(instruction, self._function_at(statements[0].lineno, instruction), statements)

    def _add_range(self, instruction: Instruction, function: SourceFunction, statements: Sequence[ast.stmt]) -> None:
        line = instruction.where.line
        last = max(map(last_line, statements))
        marker = RangeMarker(instruction.name, self._file, line, function, first_line(statements[0]), last)
        self._found.append((instruction.where, marker))

    def _mark(self, instruction: Instruction) -> None:
        place, function = self._place(instruction)
        before, after = code_in(place.suite[: place.index]), code_in(place.suite[place.index :])
        if not before and not after:
            raise KprofError(
                f"no statement stands before or after {instruction}",
                where=instruction.where,
                hint="put it into a block that has statements",
            )
        lines = tuple((first_line(node), last_line(node)) for node in after or reversed(before))
        loop_line = place.loop.lineno if place.loop else 0
        line = instruction.where.line
        marker = InstantMarker(instruction.name, self._file, line, function, lines, bool(after), loop_line)
        self._found.append((instruction.where, marker))

    def _loop(self, instruction: Instruction) -> None:
        self._add_loop(instruction, LoopMarker)

    def _iter(self, instruction: Instruction) -> None:
        self._add_loop(instruction, IterationMarker)

    def _add_loop(self, instruction: Instruction, kind: type[LoopMarker] | type[IterationMarker]) -> None:
        statements = self._source.statements_on(instruction.comment.logical_line)
        if not statements or not isinstance(statements[0], LoopNode):
            raise not_behind_loop(instruction.verb, instruction.where)
        line = statements[0].lineno
        function = self._function_at(line, instruction)
        marker = kind(instruction.name or instruction.verb, self._file, instruction.where.line, function, line)
        self._found.append((instruction.where, marker))

    def _place(self, instruction: Instruction) -> tuple[SuitePlace, SourceFunction]:
        place = self._source.place_of(instruction.comment)
        return place, self._function_at(place.function.lineno if place.function else 0, instruction)

    def _function_at(self, line: int, instruction: Instruction) -> SourceFunction:
        function = self._sources.function_at(self._file, line)
        if function is None:
            raise KprofError(
                "this marker stands outside of any function",
                where=instruction.where,
                hint="move it into the kernel; below the kernel's last line, its indentation counts",
            )
        return function


_READ: dict[str, Callable[[_Reader, Instruction], None]] = {
    "begin": _Reader._begin,
    "end": _Reader._end,
    "mark": _Reader._mark,
    "loop": _Reader._loop,
    "iter": _Reader._iter,
    "": _Reader._statement,
}


def _unreadable(file: str, lines: list[str], error: SyntaxError) -> KprofError:
    line = min(max(error.lineno or 1, 1), len(lines))
    return KprofError(
        f"cannot read the marker comments: {error.msg}",
        where=Position(file, line, max(error.offset or 1, 1), lines[line - 1]),
        hint="the file must be Python that kprof-inject's own interpreter understands",
    )
