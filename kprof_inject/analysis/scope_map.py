"""Relation between the scopes of a scope table and the operations of a module.

A scope covers a range of lines of the TTGIR (``Scope.lines``), and an operation owns the lines that it is printed
on. In a module with records, these show the lines of a scope.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import Moved, RecordedLines, moved_in
from kprof_inject.ttgir.dialect import RECORD, RECORD_TAIL
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.scalars import is_isolated
from kprof_inject.ttgir.strings import unquote

Lines = tuple[int, int]  # first and last line, from 1


class ScopeMap:
    """The operations of one module and the scopes, given by index, of the table that was planned for it."""

    def __init__(self, module: Module, table: ScopeTable) -> None:
        """Relate a module and its scope table."""
        self.module = module
        self._kinds = [scope.kind for scope in table.scopes]
        self._ranges = {index: scope.lines for index, scope in enumerate(table.scopes) if scope.lines is not None}
        self._lines_of: dict[Operation, Lines] = {}

    @cached_property
    def _loops(self) -> list[tuple[Operation, Lines]]:
        """The loops in the order of the text: an outer loop comes before those in it."""
        return [(one, self.lines_of(one)) for one in self.module.walk() if one.traits.is_loop]

    def lines_of(self, operation: Operation) -> Lines:
        """Return the lines that an operation is printed on, with those of its regions."""
        if operation not in self._lines_of:
            first, last = self.module.line_numbers([operation.start, operation.end - 1])
            self._lines_of[operation] = first, last
        return self._lines_of[operation]

    def loop_of(self, index: int) -> Operation | None:
        """Return the loop that a scope records, or whose iterations it records."""
        found: list[Operation] = []
        if lines := self._ranges.get(index):
            if self._kinds[index] == ScopeKind.LOOP:
                found = [loop for loop, own in self._loops if own == lines][:1]
            elif self._kinds[index] == ScopeKind.ITERATION:
                found = [loop for loop, own in self._loops if own[0] < lines[0] and lines[1] <= own[1]]
        return found[-1] if found else None

    def scopes_of_loop(self, loop: Operation) -> list[int]:
        """Return the scopes that record a loop as a whole."""
        own = self.lines_of(loop)
        return [index for index, lines in self._ranges.items() if lines == own and self._kinds[index] == ScopeKind.LOOP]

    def covering(self, lines: Lines) -> list[int]:
        """Return the scopes that cover a range of lines, the innermost last."""
        return [index for index, (first, last) in self._ranges.items() if first <= lines[0] and lines[1] <= last]

    def innermost_around(self, operation: Operation, among: Collection[int]) -> int | None:
        """Return the smallest of some scopes that covers an operation."""
        around = [index for index in self.covering(self.lines_of(operation)) if index in among]
        return min(around, key=lambda index: self._ranges[index][1] - self._ranges[index][0], default=None)

    def sole_scopes(self, operations: Iterable[Operation]) -> dict[Operation, int]:
        """Return the scope of kind ``op``, or else ``part``, that covers only this one of ``operations``."""
        owners = {self.lines_of(operation)[0]: operation for operation in operations}
        begins = sorted(owners)
        found: dict[Operation, int] = {}
        for index in self._ranges:
            kind, inside = self._kinds[index], self.rows_in(index, begins)
            if kind in (ScopeKind.OPERATION, ScopeKind.PART) and len(inside) == 1:
                owner = owners[begins[inside[0]]]
                if kind == ScopeKind.OPERATION or owner not in found:
                    found[owner] = index
        return found

    def exact_scopes(self, operations: Iterable[Operation]) -> list[int]:
        """Return the scopes that cover nothing but the first line of one of these operations."""
        begins = {self.lines_of(operation)[0] for operation in operations}
        return [index for index, (first, last) in self._ranges.items() if first == last and first in begins]

    def rows_in(self, index: int, begins: Sequence[int]) -> range:
        """Return the places in ``begins``, the ascending first lines of operations, that are in a scope."""
        first, last = self._ranges.get(index, (0, -1))
        return range(bisect_left(begins, first), bisect_right(begins, last))

    def outermost_from(self, operation: Operation, index: int) -> Operation:
        """Return the outermost owner of an operation, or this one itself, that begins in a scope."""
        lines = self._ranges.get(index)
        for owner in operation.owners():
            if lines is None or self.lines_of(owner)[0] < lines[0]:
                break
            operation = owner
        return operation


_COPIES = frozenset(
    ("tt.load", "tt.store", "ttg.local_load", "ttg.local_store", "ttg.local_alloc", "ttg.async_copy_global_to_local")
)


def recorded_lines(module: Module) -> list[RecordedLines]:
    """Return the lines of each scope of a module with records, in the order of the starts."""
    # Partitions are run by other warps than the code around them, so each of them counts as a function.
    own = [region for operation in module.walk() for region in operation.regions if is_isolated(region)]
    return [scope for region in own for scope in _recorded_in(module, region)]


def moves_in(module: Module, functions: Sequence[MachineFunction]) -> dict[str, tuple[Moved, ...] | None]:
    """Return the moves out of each scope of a module with records and into it, by record; None without clock reads."""
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
