"""Relation between the scopes of a scope table and the operations of a module: which scope owns which operation.

A scope covers a range of lines of the TTGIR (``Scope.lines``), and an operation owns the lines that it is printed
on. All analyses use this map to relate the two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.ttgir.nodes import Module, Operation

Lines = tuple[int, int]
"""First and last line, from 1."""


class ScopeMap:
    """The operations of one module and the scopes of one table, which was planned for this module."""

    def __init__(self, module: Module, table: ScopeTable) -> None:
        """Relate a module and the scope table that was planned for it."""
        self.module = module
        self._table = table
        self._lines_of: dict[Operation, Lines] = {}

    @cached_property
    def _loops(self) -> list[tuple[Operation, Lines]]:
        """The loops in the order of the text: an outer loop comes before those in it."""
        loops = [operation for operation in self.module.walk() if operation.traits.is_loop]
        return [(loop, self.lines_of(loop)) for loop in loops]

    def lines_of(self, operation: Operation) -> Lines:
        """Return the lines that an operation is printed on, with those of its regions."""
        if operation not in self._lines_of:
            first, last = self.module.line_numbers([operation.start, operation.end - 1])
            self._lines_of[operation] = first, last
        return self._lines_of[operation]

    def loop_of(self, index: int) -> Operation | None:
        """Return the loop that a scope records, or whose iterations it records."""
        scope = self._table.scopes[index]
        if scope.lines is None:
            return None
        if scope.kind == ScopeKind.LOOP:
            return next((loop for loop, lines in self._loops if lines == scope.lines), None)
        if scope.kind == ScopeKind.ITERATION:
            around = [loop for loop, lines in self._loops if lines[0] < scope.lines[0] and scope.lines[1] <= lines[1]]
            return around[-1] if around else None
        return None

    def scopes_of_loop(self, loop: Operation) -> list[int]:
        """Return the scopes that record a loop as a whole."""
        lines = self.lines_of(loop)
        return [index for index, scope in self._scopes_of_kind(ScopeKind.LOOP) if scope.lines == lines]

    def iteration_counters(self) -> Iterator[tuple[Operation, int]]:
        """Yield each loop whose iterations are recorded, with the scope that records them."""
        for index, _ in self._scopes_of_kind(ScopeKind.ITERATION):
            loop = self.loop_of(index)
            if loop is not None:
                yield loop, index

    def covering(self, lines: Lines) -> list[int]:
        """Return the scopes that cover a range of lines, the innermost last."""
        return [
            index
            for index, scope in enumerate(self._table.scopes)
            if scope.lines is not None and scope.lines[0] <= lines[0] and lines[1] <= scope.lines[1]
        ]

    def innermost_around(self, operation: Operation, among: Collection[int]) -> int | None:
        """Return the smallest of some scopes that cover an operation, or None."""
        around = [index for index in self.covering(self.lines_of(operation)) if index in among]
        lines = {index: self._table.scopes[index].lines or (0, 0) for index in around}
        return min(around, key=lambda index: lines[index][1] - lines[index][0], default=None)

    def innermost_at(self, line: int, is_wanted: Callable[[int], bool]) -> int | None:
        """Return the innermost scope that covers a line and is wanted, or None."""
        around = [index for index in self.covering((line, line)) if is_wanted(index)]
        return around[-1] if around else None

    def sole_scopes(self, operations: Iterable[Operation]) -> dict[Operation, int]:
        """Return the scope of each operation that is recorded by itself.

        A scope of kind ``op`` or ``part`` belongs to an operation if it covers no other one of ``operations``; one of
        kind ``op`` wins. Other operations may be part of the scope, such as the address that a copy needs.
        """
        owners = {self.lines_of(operation)[0]: operation for operation in operations}
        begins = sorted(owners)
        found: dict[Operation, int] = {}
        for index, scope in self._scopes_of_kind(ScopeKind.OPERATION, ScopeKind.PART):
            if scope.lines is None:
                continue
            inside = begins[bisect_left(begins, scope.lines[0]) : bisect_right(begins, scope.lines[1])]
            if len(inside) == 1 and (scope.kind == ScopeKind.OPERATION or owners[inside[0]] not in found):
                found[owners[inside[0]]] = index
        return found

    def exact_scopes(self, operations: Iterable[Operation]) -> list[int]:
        """Return the scopes that cover nothing but the first line of one of these operations."""
        begins = {self.lines_of(operation)[0] for operation in operations}
        return [
            index
            for index, scope in enumerate(self._table.scopes)
            if scope.lines is not None and scope.lines[0] == scope.lines[1] and scope.lines[0] in begins
        ]

    def rows_in(self, index: int, begins: Sequence[int]) -> range:
        """Return which operations begin in a scope: places in ``begins``, the ascending first lines of operations."""
        lines = self._table.scopes[index].lines
        return range(0) if lines is None else range(bisect_left(begins, lines[0]), bisect_right(begins, lines[1]))

    def outermost_from(self, operation: Operation, index: int) -> Operation:
        """Return the outermost operation around this one, or this one, that begins in a scope with known lines."""
        lines = self._table.scopes[index].lines
        for owner in operation.owners():
            if lines is None or self.lines_of(owner)[0] < lines[0]:
                break
            operation = owner
        return operation

    def _scopes_of_kind(self, *kinds: str) -> Iterator[tuple[int, Scope]]:
        return ((index, scope) for index, scope in enumerate(self._table.scopes) if scope.kind in kinds)
