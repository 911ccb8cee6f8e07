"""Marker comments (``# kprof:``, then instructions between semicolons), and the source lines that each one marks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.select.python_source import (
    Comment,
    LoopNode,
    PythonSource,
    SourceFunction,
    Sources,
    SuitePlace,
    code_in,
    first_line,
    last_line,
    lines_of,
)

_MARKER_COMMENT = re.compile(r"#\s*kprof:")
# After code, other tools' comments may come first: "# type: ignore  # kprof: load". One blank is prose.
_AFTER_ANOTHER_COMMENT = re.compile(r"(?<=[^\s#])\s{2,}#\s*kprof:")

_VERBS_WITH_NAME = frozenset({"begin", "mark"})
_VERBS_ALONE = frozenset({"begin", "end", "mark"})
_VERBS_AFTER_CODE = frozenset({"loop", "iter"})

# Such a mistake would be ignored silently. More than two words after the head are prose.
_ANY_VERB = "|".join(sorted(_VERBS_ALONE | _VERBS_AFTER_CODE))
_LOOKS_LIKE_MARKER = re.compile(rf"#\s*(?i:kprof)(?:\s+|\s*:\s*)(?:{_ANY_VERB})(?:\s+\S+)?\s*")

# A second comment ends the first, so that "# kprof: load  # fmt: skip" works.
_NEXT_COMMENT = re.compile(r"\s#")
_INSTRUCTION = re.compile(r"[^;]+")
_WORD = re.compile(r"\S+")
# All other characters mean something in a selector: marker(GLOB)=NAME.
_NAME = re.compile(r"""[^\s"'\\=#()*?\[\]\x00-\x1f\x7f]+""")

_HINT_ALONE = "on its own line: begin NAME, end [NAME] or mark NAME"
_HINT_AFTER_CODE = "after a statement: one word, its name; after for or while also loop [NAME] or iter [NAME]"


class Instruction(Struct, frozen=True):
    """An instruction of a marker comment; without a ``verb`` it names a statement. ``name`` is empty if omitted."""

    verb: str
    name: str
    comment: Comment
    where: Position

    def __str__(self) -> str:
        return f"'{self.verb} {self.name}'" if self.name else f"'{self.verb}'"


def _marker_head(comment: Comment) -> re.Match[str] | None:
    found = _MARKER_COMMENT.match(comment.text)
    return found if found or comment.is_alone else _AFTER_ANOTHER_COMMENT.search(comment.text)


def _instructions_in(comment: Comment, file: str, line_text: str) -> Iterator[Instruction]:
    def position(offset: int) -> Position:
        return Position(file, comment.line, comment.column + offset, line_text)

    head = _marker_head(comment)
    begin = head.end() if head else 0
    next_comment = _NEXT_COMMENT.search(comment.text, begin)
    end = next_comment.start() if next_comment else len(comment.text)
    is_empty = True
    for part in _INSTRUCTION.finditer(comment.text, begin, end):
        words = [(word[0], position(word.start())) for word in _WORD.finditer(comment.text, part.start(), part.end())]
        if words:
            is_empty = False
            yield _instruction(words, comment)
    if is_empty:
        raise KprofError("this marker comment is empty", where=position(0), hint=_hint(comment))


def _instruction(words: list[tuple[str, Position]], comment: Comment) -> Instruction:
    (verb, where), *rest = words
    if verb in _VERBS_ALONE and not comment.is_alone:
        hint = "put the comment on a line above or below; after a statement, give only its name"
        raise KprofError(f"{verb!r} must be on its own line", where=where, hint=hint)
    if verb in _VERBS_AFTER_CODE and comment.is_alone:
        raise _not_after_loop_header(verb, where)
    if verb in _VERBS_ALONE | _VERBS_AFTER_CODE:
        if len(rest) > 1:
            raise KprofError(f"{verb!r} takes one name", where=rest[1][1], hint="a name is one word")
        if verb in _VERBS_WITH_NAME and not rest:
            raise KprofError(f"{verb!r} needs a name", where=where, hint=f"# kprof: {verb} NAME")
        return Instruction(verb, _name(*rest[0]) if rest else "", comment, where)
    if comment.is_alone or rest:
        suggestion = did_you_mean(verb, _VERBS_ALONE if comment.is_alone else _VERBS_AFTER_CODE, 1, repr)
        raise KprofError(f"unknown verb {verb!r} in a marker comment", where=where, hint=suggestion + _hint(comment))
    return Instruction("", _name(verb, where), comment, where)


def _not_after_loop_header(verb: str, where: Position) -> KprofError:
    hint = "put the comment at the end of the line that the loop begins on"
    return KprofError(f"{verb!r} must come after the header of a for or while", where=where, hint=hint)


def _name(word: str, where: Position) -> str:
    if _NAME.fullmatch(word) is None:
        hint = "a name cannot contain quotes, parentheses, brackets, or any of \\ = # * ?"
        raise KprofError(f"{word!r} cannot be a marker's name", where=where, hint=hint)
    return word


def _hint(comment: Comment) -> str:
    return _HINT_ALONE if comment.is_alone else _HINT_AFTER_CODE


STATEMENTS, LOOP, ITERATION, INSTANT = "statements", "loop", "iteration", "instant"  # kinds of markers


class Marker(Struct, frozen=True):
    """A marker.

    ``statements`` has first and last lines: one pair for the statements from ``begin`` to ``end``, or for one
    statement; for an instant, a pair for each statement below it in its suite (``is_before``) or above, the nearest
    first: the compiler may leave nothing of the nearest.
    """

    kind: str
    name: str
    file: str
    line: int  # the comment's
    function: SourceFunction  # the innermost one that holds the marked code
    statements: tuple[tuple[int, int], ...] = ()
    loop_line: int = 0  # of the marked loop's header; for an instant, of the innermost loop around it, 0 without any
    is_before: bool = False


def markers_in(sources: Sources, file: str) -> tuple[Marker, ...]:
    """Return all markers in a file, in the order of the text. Raises ``KprofError`` for the first wrong one."""
    text = sources.texts.get(file)
    if text is None or not ("kprof:" in text or _LOOKS_LIKE_MARKER.search(text)):  # most files need no parsing
        return ()
    try:
        source = sources.parsed(file)
        comments = source.comments
    except SyntaxError as error:
        # Comments cannot be found in such a file; it only matters if it seems to have markers.
        if not _MARKER_COMMENT.search(text):
            return ()
        lines = lines_of(text)
        line = min(max(error.lineno or 1, 1), len(lines))
        where = Position(file, line, max(error.offset or 1, 1), lines[line - 1])
        hint = "the file must be Python that kprof-inject's own interpreter understands"
        raise KprofError(f"cannot read the marker comments: {error.msg}", where=where, hint=hint) from None
    reader = _Reader(sources, source, file)
    for comment in comments:
        line_text = source.lines[comment.line - 1]
        if _marker_head(comment):
            for instruction in _instructions_in(comment, file, line_text):
                reader.read(instruction)
        elif _LOOKS_LIKE_MARKER.fullmatch(comment.text):
            where = Position(file, comment.line, comment.column, line_text)
            hint = "a marker begins with '# kprof:', in lower case and with the colon right after it"
            raise KprofError("this comment looks like a marker, but is not one", where=where, hint=hint)
    return reader.finish()


class _Reader:
    def __init__(self, sources: Sources, source: PythonSource, file: str) -> None:
        self._sources = sources
        self._source = source
        self._file = file
        # Ranges that have begun but not ended, the innermost last: they nest, and each is within one suite.
        self._open: list[tuple[Instruction, SuitePlace]] = []
        self._found: list[tuple[Position, Marker]] = []

    def read(self, instruction: Instruction) -> None:
        match instruction.verb:
            case "begin":
                self._open.append((instruction, self._place(instruction)[0]))
            case "end":
                self._end(instruction)
            case "mark":
                place, function = self._place(instruction)
                before, after = code_in(place.suite[: place.index]), code_in(place.suite[place.index :])
                if not before and not after:
                    what = f"there is no statement before or after {instruction}"
                    raise KprofError(what, where=instruction.where, hint="put it into a block that has statements")
                lines = tuple((first_line(node), last_line(node)) for node in after or reversed(before))
                loop_line = place.loop.lineno if place.loop else 0
                self._add(INSTANT, instruction, function, statements=lines, loop_line=loop_line, is_before=bool(after))
            case "loop":
                self._loop(instruction, LOOP)
            case "iter":
                self._loop(instruction, ITERATION)
            case _:
                statements = self._source.statements_on(instruction.comment.logical_line)
                if not statements:
                    hint = "put the comment after a statement, or begin and end around several"
                    raise KprofError("no statement begins on this line", where=instruction.where, hint=hint)
                self._add_range(instruction, self._function_at(statements[0].lineno, instruction), statements)

    def finish(self) -> tuple[Marker, ...]:
        if self._open:
            begin, _ = self._open[-1]
            hint = f"put '# kprof: end {begin.name}' below the last statement of the range, in the same block"
            raise KprofError(f"{begin} has no end", where=begin.where, hint=hint)
        ordered = sorted(self._found, key=lambda found: (found[0].line, found[0].column))
        return tuple(marker for _, marker in ordered)

    def _end(self, instruction: Instruction) -> None:
        place, function = self._place(instruction)
        names = [begin.name for begin, _ in self._open]
        if not names or instruction.name not in ("", names[-1]):
            if instruction.name in names:
                begin, _ = self._open[-1]
                what = f"{instruction} is inside {begin.name!r}, which begins on line {begin.where.line}"
                hint = f"ranges nest: put '# kprof: end {begin.name}' above"
                raise KprofError(what, where=instruction.where, hint=hint)
            hint = f"the range that ends next is {names[-1]!r}" if names else "put '# kprof: begin NAME' above"
            raise KprofError(f"{instruction} has no begin", where=instruction.where, hint=hint)
        begin, start = self._open.pop()
        if start.suite is not place.suite:
            kind = "blocks" if start.function is place.function else "functions"
            both = f"{begin} on line {begin.where.line} and {instruction} on line {instruction.where.line}"
            hint = "put both into one block, with the same indentation"
            raise KprofError(f"{both} are in different {kind}", where=instruction.where, hint=hint)
        statements = code_in(place.suite[start.index : place.index])
        if not statements:
            hint = "put them around the statements to time"
            raise KprofError(f"there is nothing between {begin} and its end", where=begin.where, hint=hint)
        self._add_range(begin, function, statements)

    def _add_range(self, instruction: Instruction, function: SourceFunction, statements: Sequence[ast.stmt]) -> None:
        lines = first_line(statements[0]), max(map(last_line, statements))
        self._add(STATEMENTS, instruction, function, statements=(lines,))

    def _add(self, kind: str, instruction: Instruction, function: SourceFunction, **marked: Any) -> None:
        name, where = instruction.name or instruction.verb, instruction.where
        self._found.append((where, Marker(kind, name, self._file, where.line, function, **marked)))

    def _loop(self, instruction: Instruction, kind: str) -> None:
        statements = self._source.statements_on(instruction.comment.logical_line)
        if not statements or not isinstance(statements[0], LoopNode):
            raise _not_after_loop_header(instruction.verb, instruction.where)
        line = statements[0].lineno
        self._add(kind, instruction, self._function_at(line, instruction), loop_line=line)

    def _place(self, instruction: Instruction) -> tuple[SuitePlace, SourceFunction]:
        place = self._source.place_of(instruction.comment)
        return place, self._function_at(place.function.lineno if place.function else 0, instruction)

    def _function_at(self, line: int, instruction: Instruction) -> SourceFunction:
        function = self._sources.function_at(self._file, line)
        if function is None:
            hint = "move it into the kernel; below the kernel's last line, its indentation counts"
            raise KprofError("this marker is outside any function", where=instruction.where, hint=hint)
        return function
