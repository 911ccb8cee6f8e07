"""Relation between the scopes of a scope table and the operations of a module: which scope owns which operation.

A scope covers a range of lines of the TTGIR (``Scope.lines``), and an operation owns the lines that it is printed
on. All analyses use this map to relate the two. In a module with records, the records show which lines a scope has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cached_property

from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import Moved, RecordedLines, moved_in
from kprof_inject.ttgir.dialect import RECORD, RECORD_TAIL
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.scalars import is_isolated
from kprof_inject.ttgir.strings import unquote

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


_COPIES = frozenset(
    ("tt.load", "tt.store", "ttg.local_load", "ttg.local_store", "ttg.local_alloc", "ttg.async_copy_global_to_local")
)


def recorded_lines(module: Module) -> list[RecordedLines]:
    """Return the lines of each scope of a module with records that has a start and an end, in the order of the starts.

    Partitions are run by other warps than the code around them, so each of them counts as a function.
    """
    own = [region for operation in module.walk() for region in operation.regions if is_isolated(region)]
    return [scope for region in own for scope in _recorded_in(module, region)]


def moves_in(module: Module, functions: Sequence[MachineFunction]) -> dict[str, tuple[Moved, ...] | None]:
    """Return what the compiler moved out of each scope and into it, by the name of its record.

    ``functions`` are the machine code of the module with records. None if no clock read of the scope was found.
    """
    found: dict[str, tuple[Moved, ...] | None] = {}
    for scope in recorded_lines(module):
        moves = (moved_in(function, scope) for function in functions)
        found[scope.name] = next((tuple(moved) for moved in moves if moved is not None), None)
    return found


def _recorded_in(module: Module, body: Region) -> Iterator[RecordedLines]:
    starts: defaultdict[str, set[int]] = defaultdict(set)
    ends: defaultdict[str, set[int]] = defaultdict(set)
    lines, copies = set[int](), set[int]()
    for operation in _operations_in(body):
        line = module.position(operation.start).line
        if operation.name == RECORD and (found := RECORD_TAIL.match(operation.tail)):
            (starts if found["edge"] == "start" else ends)[unquote(found["name"])].add(line)
            continue
        lines.add(line)
        if operation.name in _COPIES:
            copies.add(line)
    lines -= {line for of_record in (*starts.values(), *ends.values()) for line in of_record}
    for name in starts:
        if ends[name]:
            inside = {line for line in lines if min(starts[name]) < line < max(ends[name])}
            yield RecordedLines(name, *map(frozenset, (starts[name], ends[name], inside, lines, copies)))


def _operations_in(region: Region) -> Iterator[Operation]:
    for operation in (operation for block in region.blocks for operation in block.operations):
        yield operation
        for inner in operation.regions:
            if not is_isolated(inner):
                yield from _operations_in(inner)
