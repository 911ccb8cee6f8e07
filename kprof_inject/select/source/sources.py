"""The user's source files as they were when the kernels were dumped, and the functions in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kprof_inject.select.source.python_source import FunctionNode, PythonSource, first_line, last_line


@dataclass(frozen=True, slots=True)
class SourceFunction:
    """One ``def``. Lines count from 1: the first decorator's (or ``def``'s), that of ``def``, the last of the body."""

    name: str
    file: str
    first_line: int
    def_line: int
    last_line: int


class Sources:
    """Source texts by file name, as the name stands in TTGIR's locations. No text makes a lookup fail."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._parsed: dict[str, PythonSource] = {}
        self._functions: dict[str, dict[int, SourceFunction]] = {}

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def text(self, file: str) -> str | None:
        """The file's whole text, or None if it is not known."""
        return self._texts.get(file)

    def parsed(self, file: str) -> PythonSource:
        """A known file, parsed once. Raises ``SyntaxError`` if it is not Python that this interpreter reads."""
        if file not in self._parsed:
            self._parsed[file] = PythonSource(self._texts[file])
        return self._parsed[file]

    def function_at(self, file: str, line: int) -> SourceFunction | None:
        """The innermost function whose lines hold this one; None if there is none, or the file cannot be read."""
        if file not in self._functions:
            self._functions[file] = self._functions_by_line(file)
        return self._functions[file].get(line)

    def _functions_by_line(self, file: str) -> dict[int, SourceFunction]:
        if file not in self._texts:
            return {}
        try:
            statements = self.parsed(file).statements
        except SyntaxError:
            return {}
        by_line: dict[int, SourceFunction] = {}
        for node in statements:
            if isinstance(node, FunctionNode):
                function = SourceFunction(node.name, file, first_line(node), node.lineno, last_line(node))
                # An inner function comes after the one around it, and takes its lines over.
                by_line.update(dict.fromkeys(range(function.first_line, function.last_line + 1), function))
        return by_line


def is_library(file: str) -> bool:
    """Whether a source file belongs to Triton itself: its users name what they call, not what that is made of."""
    return "/triton/language/" in file or "/triton/experimental/" in file
