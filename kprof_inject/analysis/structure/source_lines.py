"""Identify operations of a kind in two modules: by their source lines or, where a module has none, by their places
among the operations like them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kprof_inject.select.functions import functions_of
from kprof_inject.select.python_source import is_library
from kprof_inject.ttgir.locations import Chain, LocationTable, SourcePoint
from kprof_inject.ttgir.nodes import Module

CodeOf = Callable[[SourcePoint], str]
"""What a source line says; empty if that is not known."""

# Where USE_IR_LOC is set, Triton's locations are lines of its own dumps; so are those of what was printed without
# locations and read again. They shift with every edit, and are different ones in each stage.
_OF_COMPILER = (".ttir", ".ttgir", ".mlir")


@dataclass(frozen=True, slots=True)
class Line:
    """A source line, as it is called in a report, and its identity: its text and that of the lines that call it where
    they are known, else their numbers."""

    source: SourcePoint | None
    identity: tuple[str, ...]

    @property
    def own(self) -> tuple[str, ...]:
        """The same without the lines that call it: of a call over several lines, compilers name different ones."""
        return self.identity[:2]


def has_source_lines(module: Module) -> bool:
    """Return whether any operation's location is a line of the program."""
    return any(
        _users_lines(function.source_of(operation))
        for function in functions_of(module, LocationTable(module))
        for operation in function.operations
    )


def line_of(chain: Chain, owner: str, code_of: CodeOf, place: str | None) -> Line:
    """Return the line of an operation in the function ``owner``. ``place`` is its identity, if the line is not."""
    users = _users_lines(chain)
    source = next(iter(users or chain), None)
    if place is not None:
        return Line(source, (owner, place))
    return Line(source, (owner, *(code_of(point) or f"{point.file}:{point.line}" for point in users)))


def _users_lines(chain: Chain) -> Chain:
    """Return the program's lines: without Triton's own library, whose lines are the same for all who call it."""
    chain = tuple(point for point in chain if not point.file.endswith(_OF_COMPILER))
    own = next((depth for depth, point in enumerate(chain) if not is_library(point.file)), 0)
    return chain[own:]
