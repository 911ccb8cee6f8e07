"""Find the lines of each scope of a module with records, and what the compiler moved across these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import Moved, RecordedLines, moved_in
from kprof_inject.ttgir.dialect import RECORD, RECORD_TAIL
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.scalars import is_isolated
from kprof_inject.ttgir.strings import unquote

_COPIES = frozenset(
    ("tt.load", "tt.store", "ttg.local_load", "ttg.local_store", "ttg.local_alloc", "ttg.async_copy_global_to_local")
)


def recorded_lines(module: Module) -> list[RecordedLines]:
    """Return the lines of each scope that has a start and an end, in the order of the starts.

    Partitions are run by other warps than the code around them, so each of them counts as a function.
    """
    own = [region for operation in module.walk() for region in operation.regions if is_isolated(region)]
    return [scope for region in own for scope in _scopes_in(module, region)]


def moves_in(module: Module, functions: Sequence[MachineFunction]) -> dict[str, tuple[Moved, ...] | None]:
    """Return what the compiler moved out of each scope and into it, by the name of its record.

    ``functions`` are the machine code of the module with records. None if no clock read of the scope was found.
    """
    found: dict[str, tuple[Moved, ...] | None] = {}
    for scope in recorded_lines(module):
        of_functions = [moved for function in functions if (moved := moved_in(function, scope)) is not None]
        found[scope.name] = tuple(of_functions[0]) if of_functions else None
    return found


def original_lines(with_records: str, original: str) -> list[int]:
    """Return the line of the original text for each line of the text with records; 0 for inserted lines."""
    lines = original.splitlines()
    found, reached = [], 0
    for line in with_records.splitlines():
        is_original = reached < len(lines) and lines[reached] == line
        reached += is_original
        found.append(reached if is_original else 0)
    return found


def _scopes_in(module: Module, body: Region) -> list[RecordedLines]:
    records: defaultdict[str, dict[str, set[int]]] = defaultdict(lambda: {"start": set(), "end": set()})
    lines: set[int] = set()
    copies: set[int] = set()
    for operation in _operations_in(body):
        line = module.position(operation.start).line
        if operation.name == RECORD and (found := RECORD_TAIL.match(operation.tail)):
            records[unquote(found["name"])][found["edge"]].add(line)
        else:
            lines.add(line)
            if operation.name in _COPIES:
                copies.add(line)
    lines -= {line for edges in records.values() for of_edge in edges.values() for line in of_edge}
    return [
        RecordedLines(
            name=name,
            starts=frozenset(edges["start"]),
            ends=frozenset(edges["end"]),
            operations=frozenset(line for line in lines if min(edges["start"]) < line < max(edges["end"])),
            function=frozenset(lines),
            copies=frozenset(copies),
        )
        for name, edges in records.items()
        if edges["start"] and edges["end"]
    ]


def _operations_in(region: Region) -> Iterator[Operation]:
    for block in region.blocks:
        for operation in block.operations:
            yield operation
            for inner in operation.regions:
                if not is_isolated(inner):
                    yield from _operations_in(inner)
