"""The functions of a module and the loops in them: what selectors choose from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.select.legality import holds_records, illegal_block
from kprof_inject.select.sites import InsertPoint, Site
from kprof_inject.ttgir.locations import LocationTable, called_from, written_at
from kprof_inject.ttgir.nodes import Module, Operation

_SIGNATURE = re.compile(r'\s*(?:(public|private|nested)\s+)?@("(?:[^"\\]|\\.)*"|[\w$.-]+)')
_SYMBOL_NAME = re.compile(r'sym_name = "((?:[^"\\]|\\.)*)"')
_LOOPS = frozenset({"scf.for", "scf.while"})


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop. ``path`` counts the loops around it from outside: ``(0, 2)`` is the third in the first."""

    operation: Operation
    path: tuple[int, ...]

    @property
    def subscript(self) -> str:
        return f"[{'.'.join(map(str, self.path))}]"


class Function:
    """One ``tt.func`` with a body, and how to bracket it and what is inside."""

    def __init__(self, module: Module, operation: Operation, locations: LocationTable) -> None:
        found = _SIGNATURE.match(operation.tail)
        symbol = _SYMBOL_NAME.search(operation.tail)
        if found is not None:
            self.name = found[2].strip('"')
            self.is_public = found[1] != "private"
        elif symbol is not None:  # the generic form
            self.name = symbol[1]
            self.is_public = 'sym_visibility = "private"' not in operation.tail
        else:
            raise KprofError(
                "this tt.func has no name",
                where=module.position(operation.start),
                hint="give a .ttgir file as Triton writes it (see 'kprof-inject dump')",
            )
        self._module = module
        self._operation = operation
        self._locations = locations

    def body_site(self) -> Site:
        """The whole body: from its first operation to each of its returns."""
        body = self._operation.regions[0]
        returns = [
            operation for block in body.blocks for operation in block.operations if operation.name == "tt.return"
        ]
        if not returns:
            raise KprofError(
                f"function {self.name} never returns, so its body has no end to record",
                where=self._module.position(self._operation.start),
                hint="select a loop of it instead: --at loop",
            )
        entry = body.blocks[0]
        first = entry.operations[0] if entry.operations else returns[0]
        return self._site(
            "func",
            "func",
            self._operation,
            InsertPoint(entry.start, self._module.indent_at(first.start)),
            tuple(self._before(operation) for operation in returns),
            fills_block=True,
        )

    def loop_site(self, loop: Loop) -> Site:
        """Around a loop: from before it is entered to after it is left."""
        indent = self._module.indent_at(loop.operation.start)
        end = InsertPoint(loop.operation.end, indent)
        return self._site(
            "loop",
            f"loop{loop.subscript}",
            loop.operation,
            self._before(loop.operation),
            (end,),
            fills_block=False,
        )

    def iteration_site(self, loop: Loop) -> Site:
        """Each iteration: the body of ``scf.for``, the ``do`` region of ``scf.while``."""
        operation = loop.operation
        block = operation.regions[-1].blocks[0]
        closing = self._module.line_start(operation.end - len(operation.closing))
        last = block.operations[-1] if block.operations else None
        if last is not None and last.name == "scf.yield":
            end = self._before(last)
        else:  # the printer leaves out a yield of nothing
            indent = self._module.indent_at(last.start if last else closing) + ("" if last else "  ")
            end = InsertPoint(closing, indent)
        return self._site(
            "iter",
            f"iter{loop.subscript}",
            operation,
            InsertPoint(block.start, end.indent),
            (end,),
            fills_block=True,
        )

    def loops(self) -> Iterator[Loop]:
        """All loops in the order of the text. A loop where no record may stand raises ``KprofError``."""
        yield from self._loops_in(self._operation, ())

    def _loops_in(self, operation: Operation, path: tuple[int, ...]) -> Iterator[Loop]:
        for index, child in enumerate(_nearest_loops(self._module, operation)):
            loop = Loop(child, (*path, index))
            yield loop
            yield from self._loops_in(child, loop.path)

    def _before(self, operation: Operation) -> InsertPoint:
        return InsertPoint(self._module.line_start(operation.start), self._module.indent_at(operation.start))

    def _site(
        self,
        kind: str,
        label: str,
        operation: Operation,
        start: InsertPoint,
        ends: tuple[InsertPoint, ...],
        *,
        fills_block: bool,
    ) -> Site:
        location = self._locations.of(operation)
        return Site(kind, label, self.name, start, ends, fills_block, written_at(location), called_from(location))


def functions_of(module: Module) -> tuple[Function, ...]:
    """The module's functions that have a body, in the order of the text."""
    locations = LocationTable(module)
    return tuple(
        Function(module, operation, locations)
        for operation in module.walk()
        if operation.name == "tt.func" and operation.regions
    )


def _nearest_loops(module: Module, operation: Operation) -> Iterator[Operation]:
    for region in operation.regions:
        for block in region.blocks:
            for child in block.operations:
                if child.name in _LOOPS:
                    if not holds_records(operation):
                        raise illegal_block(module, operation)
                    if not child.regions:
                        raise KprofError("this loop has no body", where=module.position(child.start))
                    yield child
                elif child.regions:
                    yield from _nearest_loops(module, child)
