"""Which ``begin`` belongs to which ``end``: ranges nest, and each stays within one suite."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.select.source.marker_comments import Instruction
from kprof_inject.select.source.python_source import SuitePlace, code_in


@dataclass(frozen=True, slots=True)
class Range:
    """A ``begin`` and the statements from there to its ``end``, at least one."""

    begin: Instruction
    statements: tuple[ast.stmt, ...]


class OpenRanges:
    """The ranges of one file that have begun and not ended yet, the innermost last."""

    def __init__(self) -> None:
        self._open: list[tuple[Instruction, SuitePlace]] = []

    def begin(self, instruction: Instruction, place: SuitePlace) -> None:
        self._open.append((instruction, place))

    def end(self, instruction: Instruction, place: SuitePlace) -> Range:
        """The range that ``end`` closes. Raises ``KprofError`` if it closes none, or not here."""
        begin, start = self._innermost(instruction)
        if start.suite is not place.suite:
            kind = "blocks" if start.function is place.function else "functions"
            raise KprofError(
                f"{begin} on line {begin.where.line} and {instruction} on line {instruction.where.line} "
                f"stand in different {kind}",
                where=instruction.where,
                hint="put both into one block, with the same indentation",
            )
        statements = code_in(place.suite[start.index : place.index])
        if not statements:
            raise KprofError(
                f"nothing stands between {begin} and its end",
                where=begin.where,
                hint="put them around the statements to time",
            )
        self._open.pop()
        return Range(begin, tuple(statements))

    def check_all_ended(self) -> None:
        """Raise ``KprofError`` if a range is still open."""
        if self._open:
            begin, _ = self._open[-1]
            raise KprofError(
                f"{begin} has no end",
                where=begin.where,
                hint=f"put '# kprof: end {begin.name}' below the last statement of the range, in the same block",
            )

    def _innermost(self, end: Instruction) -> tuple[Instruction, SuitePlace]:
        """The range that is to be closed next, if that is what ``end`` says."""
        names = [begin.name for begin, _ in self._open]
        if names and end.name in ("", names[-1]):
            return self._open[-1]
        if end.name in names:
            begin, _ = self._open[-1]
            raise KprofError(
                f"{end} stands inside {begin.name!r}, which begins on line {begin.where.line}",
                where=end.where,
                hint=f"ranges nest: put '# kprof: end {begin.name}' above",
            )
        raise KprofError(
            f"{end} has no begin",
            where=end.where,
            hint=f"the range that ends next is {names[-1]!r}" if names else "put '# kprof: begin NAME' above",
        )
