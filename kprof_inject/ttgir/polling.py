"""Find the loops and operations that wait until another CTA, GPU or the host changes memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from kprof_inject.ttgir.dialect import CALL, CONDITION, POLL
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, reached

_VOLATILE = re.compile(r"\bisVolatile = true\b")
_IMPURE = re.compile(r"\bpure = false\b")
# In PTX and in AMD's assembly: a branch, which within an operation of a few instructions is a loop.
_BRANCH = re.compile(r"\b(bra|s_c?branch\w*)\b")
# In PTX and in AMD's assembly: what reads memory.
_READ = re.compile(r"\b(ld|atom|multimem|(?:global|flat|buffer)_(?:load|atomic)\w*)\b")
# A flag may be a float; arithmetic on floats is work.
_COMPARE_FLOATS = "arith.cmpf"
_FLOAT = re.compile(r"(?<![a-wyzA-Z0-9_.%])(?:bf|tf|f)[0-9]")
# Inline assembly that has nothing but griddepcontrol (PTX ISA, "griddepcontrol") and comments.
_ASSEMBLY = re.compile(r'\s*"([^"]*)"')
_GRID_CONTROL = re.compile(r"(?:\s|;|\\0A|\\n|//[^\n]*|griddepcontrol\.(?:wait|launch_dependents))*")


def is_impure(operation: Operation) -> bool:
    """Return whether foreign code does more than compute."""
    return operation.traits.is_foreign and _IMPURE.search(operation.tail) is not None


def has_branch(operation: Operation) -> bool:
    """Return whether foreign code branches, so that it may loop."""
    return operation.traits.is_foreign and _BRANCH.search(operation.tail) is not None


def sees_changes(operation: Operation) -> bool:
    """Return whether the operation may read what others wrote meanwhile.

    Code that only waits for earlier launches does not. See PTX ISA, "griddepcontrol".
    """
    if operation.traits.is_foreign:
        return is_impure(operation) and not _waits_for_grids(operation)
    return operation.traits.is_atomic or _VOLATILE.search(operation.tail) is not None


def _waits_for_grids(operation: Operation) -> bool:
    written = _ASSEMBLY.match(operation.tail)
    return written is not None and _GRID_CONTROL.fullmatch(written[1]) is not None


def polls(operation: Operation) -> bool:
    """Return whether an operation without regions waits until memory changes: it contains the loop itself."""
    if operation.name == POLL:
        return True
    return is_impure(operation) and has_branch(operation) and _READ.search(operation.tail) is not None


def polling_loops(module: Module, function: Operation) -> frozenset[Operation]:
    """Return the loops of a function that do nothing but wait until memory changes.

    Such a loop has no bounds, what it reads decides whether it goes on, and there is no other work in it, and no loop.
    A loop that takes its next tile from a counter has the tile's work in it. Loops of blocks that branch to each other
    are not found.
    """
    idle = [loop for loop in _loops_without_bounds(function) if all(map(_may_be_polling, _inside(loop)))]
    if not any(map(sees_changes, chain.from_iterable(map(_inside, idle)))):
        return frozenset()
    values = _Values(module, function)
    return frozenset(loop for loop in idle if any(sees_changes(leaf.operation) for leaf in values.that_decide_on(loop)))


def goes_on_until_memory_changes(module: Module, function: Operation) -> bool:
    """Return whether a loop of a function goes on as long as it reads the same at one address.

    The loads may be plain ones, or in a called function. Whatever work is in it, such a loop may end only if others
    write there: it counts nothing that would end it.
    """
    loops = list(_loops_without_bounds(function))
    if not any(map(_may_load, chain.from_iterable(map(_inside, loops)))):
        return False
    values = _Values(module, function)
    return any(map(values.are_read_at_one_address, loops))


class _Values:
    """The values that decide whether loops of a function go on."""

    def __init__(self, module: Module, function: Operation) -> None:
        self._graph = ValueGraph(module, function)
        self._leaves = {leaf.operation: leaf for leaf in self._graph.leaves}

    def that_decide_on(self, loop: Operation) -> list[Leaf]:
        """Return the operations inside a loop that decide whether it goes on."""
        ends = (leaf for leaf in self._inside(loop) if leaf.operation.name == CONDITION and leaf.operation.loop is loop)
        nodes = self._reached(chain.from_iterable(leaf.values[:1] for leaf in ends))
        return [leaf for leaf in self._inside(loop) if leaf.node in nodes]

    def are_read_at_one_address(self, loop: Operation) -> bool:
        """Return whether a loop depends on what it reads there, and not on its own last round."""
        deciding = self.that_decide_on(loop)
        if any(leaf.node in self._reached(self._graph.operands[leaf.node]) for leaf in deciding):
            return False
        inside = {leaf.node for leaf in self._inside(loop)}
        return any(
            leaf.operation.name == CALL or inside.isdisjoint(self._reached(leaf.values[:1]))
            for leaf in deciding
            if _may_load(leaf.operation)
        )

    def _inside(self, loop: Operation) -> Iterator[Leaf]:
        return (self._leaves[operation] for operation in _inside(loop) if operation in self._leaves)

    def _reached(self, values: Iterable[int]) -> set[int]:
        return reached(values, self._graph.operands)


def _loops_without_bounds(function: Operation) -> Iterator[Operation]:
    return (one for one in function.walk() if one.traits.is_loop and not one.traits.is_counted)


def _inside(loop: Operation) -> Iterator[Operation]:
    return islice(loop.walk(), 1, None)


def _may_load(operation: Operation) -> bool:
    return operation.traits.reads_global or operation.name == CALL


def _may_be_polling(operation: Operation) -> bool:
    """Return whether an operation may be in a loop that only waits."""
    traits = operation.traits
    computes = traits.is_indexing or traits.is_constant or traits.is_move
    computes |= traits.is_arithmetic and (operation.name == _COMPARE_FLOATS or not _FLOAT.search(operation.tail))
    holds = traits.regions == "branch" or traits.combines_elements
    waits = traits.is_wait or traits.is_foreign or sees_changes(operation)
    return computes or holds or waits or traits.is_terminator
