"""The user's source files at the time of the dump: their functions, statements and comments."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import attrgetter

from msgspec import Struct

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
LoopNode = ast.For | ast.AsyncFor | ast.While

_TAB_COLUMNS = 8  # as Python's tokenizer counts

_OUTSIDE_OF_LINES = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
)


class Comment(Struct, frozen=True):
    """A comment from its ``#`` on. ``line`` and ``column`` count from 1."""

    line: int
    column: int
    text: str
    logical_line: int  # the first one of the logical line that holds it or, if alone, precedes it; 0 without any
    is_alone: bool  # on a line of its own between statements


class SuitePlace(Struct, frozen=True):
    """A place before the statement at ``index`` of a suite, or after its last one.

    ``function`` is the innermost function around it, ``loop`` the innermost loop of that function whose body holds it.
    """

    suite: list[ast.stmt]
    index: int
    function: FunctionNode | None
    loop: LoopNode | None


class PythonSource:
    """A parsed source text. Raises ``SyntaxError`` if this interpreter cannot parse it."""

    def __init__(self, text: str) -> None:
        self.lines = lines_of(text)
        self._text = "\n".join(self.lines)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the user's program shows its own
                self._suite = ast.parse(self._text).body
        except (ValueError, RecursionError, MemoryError) as error:
            # Null bytes, lone surrogates, or nesting too deep for the parser.
            raise SyntaxError(str(error) or "too deeply nested", ("", 1, 1, "")) from None

    @cached_property
    def statements(self) -> tuple[ast.stmt, ...]:
        """The statements in the order of the text, each before those inside it."""
        found = []
        rest = self._suite[::-1]
        while rest:
            found.append(rest.pop())
            for suite in reversed(_suites(found[-1])):
                rest += reversed(suite)
        return tuple(found)

    @property
    def comments(self) -> tuple[Comment, ...]:
        """The comments in the order of the text."""
        return self._layout[0]

    def statements_on(self, logical_line: int) -> Sequence[ast.stmt]:
        """Return the statements that begin in the logical line that begins on this line.

        For a decorator's line, that is the decorated definition. Empty for a line such as ``else:``.
        """
        starts = self._layout[1]
        after = bisect_right(starts, logical_line)
        begin = bisect_left(self.statements, logical_line, key=_line)
        end = bisect_left(self.statements, starts[after], key=_line) if after < len(starts) else len(self.statements)
        if begin == end < len(self.statements) and first_line(self.statements[end]) <= logical_line:
            end += 1
        return self.statements[begin:end]

    def logical_line(self, line: int) -> int:
        """Return the first line of the logical line that a line of code belongs to."""
        starts = self._layout[1]
        before = bisect_right(starts, line)
        return starts[before - 1] if before else line

    def place_of(self, comment: Comment) -> SuitePlace:
        """Return the place of a comment that is alone.

        After the end of a compound statement, the comment's column decides whether it still belongs to its suite.
        """
        width = self._indentation(comment.line, comment.column - 1)
        suite, function, loop = self._suite, None, None
        while True:
            index = bisect_left(suite, comment.line, key=_entry_line)
            inner = self._suite_around(suite[index - 1], comment, width) if index else None
            if inner is None:
                return SuitePlace(suite, index, function, loop)
            owner = suite[index - 1]
            if isinstance(owner, FunctionNode):
                function, loop = owner, None
            elif isinstance(owner, LoopNode) and inner is owner.body:
                loop = owner
            suite = inner

    def _suite_around(self, node: ast.stmt, comment: Comment, width: int) -> list[ast.stmt] | None:
        suites = _suites(node)
        if not suites:
            return None
        if comment.line > last_line(node):
            first = suites[-1][0]
            is_deeper = width > self._indentation(node.lineno, node.col_offset)
            begins_line = not self.lines[first.lineno - 1][: first.col_offset].strip()
            return suites[-1] if is_deeper and begins_line and first.lineno in self._layout[1] else None
        # Code before the comment is either in one of the suites, or the header of the next one.
        return next(suite for suite in suites if comment.logical_line <= last_line(suite[-1]))

    def _indentation(self, line: int, column: int) -> int:
        return len(self.lines[line - 1][:column].rpartition("\f")[2].expandtabs(_TAB_COLUMNS))

    @cached_property
    def _layout(self) -> tuple[tuple[Comment, ...], tuple[int, ...]]:
        comments = []
        starts: list[int] = []
        is_between = True
        try:
            for token in tokenize.generate_tokens(io.StringIO(self._text).readline):
                line, column = token.start
                if token.type == tokenize.COMMENT:
                    comments.append(Comment(line, column + 1, token.string, starts[-1] if starts else 0, is_between))
                elif token.type == tokenize.NEWLINE:
                    is_between = True
                elif is_between and token.type not in _OUTSIDE_OF_LINES:
                    starts.append(line)
                    is_between = False
        except tokenize.TokenError as error:
            message, (line, column) = error.args
            raise SyntaxError(message, ("", line, column + 1, "")) from None
        return tuple(comments), tuple(starts)


def lines_of(text: str) -> list[str]:
    """Return a text's lines as Python counts them, without their ends and without a byte order mark."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def first_line(node: ast.stmt) -> int:
    """Return the first line of a statement, including its decorators."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def last_line(node: ast.stmt) -> int:
    """Return the last line of a statement."""
    return node.end_lineno or node.lineno


def code_in(suite: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements that do something: not docstrings, ``...`` and ``pass``."""
    return [
        node
        for node in suite
        if not isinstance(node, ast.Pass) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


_line = attrgetter("lineno")


def _entry_line(node: ast.stmt) -> int:
    # After this line, code is inside the statement; code between ``match`` and ``case`` is before it.
    return node.cases[0].pattern.lineno if isinstance(node, ast.Match) else node.lineno


def _suites(node: ast.stmt) -> list[list[ast.stmt]]:
    clauses = [node, *getattr(node, "handlers", ()), *getattr(node, "cases", ())]
    suites = [getattr(clause, "body", []) for clause in clauses]
    return [suite for suite in (*suites, getattr(node, "orelse", []), getattr(node, "finalbody", [])) if suite]


class SourceFunction(Struct, frozen=True):
    """A ``def`` and its lines, from 1: its first decorator's (or ``def``'s), that of ``def``, the last of its body."""

    name: str
    file: str
    first_line: int
    def_line: int
    last_line: int


class Sources:
    """Source texts by file name, as TTGIR's locations spell it. Without a text, lookups find nothing."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = dict(texts)
        self._parsed: dict[str, PythonSource] = {}
        self._functions: dict[str, dict[int, SourceFunction]] = {}

    def parsed(self, file: str) -> PythonSource:
        """Return a known file, parsed once. Raises ``SyntaxError`` if this interpreter cannot parse it."""
        if file not in self._parsed:
            self._parsed[file] = PythonSource(self.texts[file])
        return self._parsed[file]

    def function_at(self, file: str, line: int) -> SourceFunction | None:
        """Return the innermost function that this line belongs to; None if none does, or the file cannot be read."""
        if file not in self._functions:
            by_line = self._functions.setdefault(file, {})
            for node in self._statements(file):
                if isinstance(node, FunctionNode):
                    function = SourceFunction(node.name, file, first_line(node), node.lineno, last_line(node))
                    # An inner function comes after the one around it, and takes its lines over.
                    by_line.update(dict.fromkeys(range(function.first_line, function.last_line + 1), function))
        return self._functions[file].get(line)

    def statement_line(self, file: str, line: int) -> int:
        """Return the first line of the statement, or of the header, that holds this line; if unknown, the line."""
        try:
            return self.parsed(file).logical_line(line) if file in self.texts else line
        except SyntaxError:
            return line

    def counter_at(self, file: str, line: int) -> str:
        """Return the variable of the ``for`` loop whose header is on a line; empty without a single variable.

        Empty, too, if the file cannot be read, or if the compiler may fuse the loop with one inside it: the induction
        variable is no variable of the source then.
        """
        for loop in self._statements(file):
            if not isinstance(loop, ast.For) or not loop.lineno <= line <= (loop.iter.end_lineno or loop.lineno):
                continue
            arguments = {one.arg for one in loop.iter.keywords} if isinstance(loop.iter, ast.Call) else set()
            inside = (node for body in loop.body for node in ast.walk(body))
            may_be_fused = bool(arguments & _FUSING) or any(isinstance(node, ast.For | ast.While) for node in inside)
            if isinstance(loop.target, ast.Name) and not may_be_fused:
                return loop.target.id
        return ""

    def _statements(self, file: str) -> tuple[ast.stmt, ...]:
        try:
            return self.parsed(file).statements if file in self.texts else ()
        except SyntaxError:
            return ()


_FUSING = {"flatten", "warp_specialize"}  # arguments of ``tl.range`` that make Triton fuse nested loops


def is_library(file: str) -> bool:
    """Return whether a source file belongs to Triton itself: users mean their own calls, not the library's code."""
    return "/triton/language/" in file or "/triton/experimental/" in file
