"""Find the loops and operations that wait until another CTA, GPU or the host changes memory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from kprof_inject.ttgir.dialect import CACHE_MODIFIER, CALL, CONDITION, POLL
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, reached

_VOLATILE = re.compile(r"\bisVolatile = true\b")
_FETCHED_AGAIN = "cv"  # a cache modifier that is as good as volatile (PTX ISA, "Cache Operators")
_IMPURE = re.compile(r"\bpure = false\b")
_SYMBOL_OF_WAIT = re.compile(r'\bsymbol = "[^"]*wait[^"]*"')
_ASSERT = "tt.assert"
_BY_POINTER = ("tt.load", "tt.atomic_cas", "tt.atomic_rmw")

# Of PTX and AMD's assembly. A branch, which within an operation of a few instructions is a loop; one to a label.
_BRANCH = re.compile(r"\b(bra|s_c?branch\w*)\b")
_BRANCH_TO = re.compile(r"\b(?:bra(?:\.uni)?|s_c?branch\w*)\s+([\w$]+)")
_LABEL = re.compile(r"([\w$]+)\s*:(?!:)")
_LABEL_BEFORE = re.compile(r"\d+b")
_AMD_READ = r"(?:global|flat|buffer|s)_(?:load|atomic)\w*"
_READ = re.compile(rf"\b(ld|atom|multimem|{_AMD_READ})\b")
_WRITE = re.compile(r"\b(st|red|atom|multimem|cp|(?:global|flat|buffer)_(?:store|atomic)\w*)\b")
_FLOAT = re.compile(r"(?<![a-wyzA-Z0-9_.%])(?:bf|tf|f)[0-9]")
# Of strings. Without these, the begin of the next word and the end of a comment would be hidden.
_ESCAPED_LINE_END = re.compile(r"\\(?:0A|n)")
_ESCAPED_TAB = re.compile(r"\\(?:09|t)")
# Inline assembly that has nothing but griddepcontrol (PTX ISA, "griddepcontrol") and comments.
_ASSEMBLY = re.compile(r'\s*"([^"]*)"')
_GRID_CONTROL = re.compile(r"(?:\s|;|//[^\n]*|griddepcontrol\.(?:wait|launch_dependents))*")


def is_impure(operation: Operation) -> bool:
    """Return whether foreign code does more than compute."""
    return operation.traits.is_foreign and _IMPURE.search(operation.tail) is not None


def has_branch(operation: Operation) -> bool:
    """Return whether foreign code branches, so that it may loop."""
    return operation.traits.is_foreign and _BRANCH.search(assembly_of(operation)) is not None


def sees_changes(operation: Operation) -> bool:
    """Return whether the operation may read what others wrote meanwhile.

    Code that only waits for earlier launches does not. See PTX ISA, "griddepcontrol".
    """
    if operation.traits.is_foreign:
        written = _ASSEMBLY.match(assembly_of(operation))
        waits_for_grids = written is not None and _GRID_CONTROL.fullmatch(written[1]) is not None
        return is_impure(operation) and not waits_for_grids
    cached = CACHE_MODIFIER.search(operation.tail)
    is_volatile = _VOLATILE.search(operation.tail) is not None or (cached is not None and cached[1] == _FETCHED_AGAIN)
    return operation.traits.is_atomic or is_volatile


def assembly_of(operation: Operation) -> str:
    """Return the text of foreign code, with its lines and tabs."""
    return _ESCAPED_TAB.sub(" ", _ESCAPED_LINE_END.sub("\n", operation.tail))


def polls(operation: Operation) -> bool:
    """Return whether an operation without regions waits until memory changes: it contains the loop itself."""
    if not operation.traits.is_foreign:
        return operation.name == POLL
    if not is_impure(operation):
        return False
    text = assembly_of(operation)
    begins = {label[1]: label.start() for label in reversed(list(_LABEL.finditer(text)))}
    branches_back = any(
        _LABEL_BEFORE.fullmatch(branch[1]) or begins.get(branch[1], branch.end()) < branch.start()
        for branch in _BRANCH_TO.finditer(text)
    )
    return (branches_back and _READ.search(text) is not None) or _SYMBOL_OF_WAIT.search(text) is not None


def polling_loops(module: Module, function: Operation) -> frozenset[Operation]:
    """Return the loops of a function that do nothing but wait until memory changes.

    Such a loop has no bounds, no other work and no loop in it, and what it reads in one place decides whether it goes
    on. A loop that takes its next tile from a counter is none, nor is one that searches. Loops of blocks that branch to
    each other are not found.
    """
    idle = [loop for loop in _loops_without_bounds(function) if all(map(_may_be_polling, _inside(loop)))]
    if not any(map(sees_changes, chain.from_iterable(map(_inside, idle)))):
        return frozenset()
    return frozenset(filter(_LoopConditions(module, function).only_polls, idle))


def goes_on_until_memory_changes(module: Module, function: Operation) -> bool:
    """Return whether a loop of a function goes on as long as it reads the same at one address.

    The loads may be plain ones, or in a called function. Whatever work is in it, such a loop may end only if others
    write there: it counts nothing that would end it.
    """
    loops = list(_loops_without_bounds(function))
    if not any(map(_may_load, chain.from_iterable(map(_inside, loops)))):
        return False
    return any(map(_LoopConditions(module, function).reads_one_address, loops))


class _LoopConditions:
    def __init__(self, module: Module, function: Operation) -> None:
        graph = ValueGraph(module, function)
        self._operands = graph.operands
        self._leaves = {leaf.operation: leaf for leaf in graph.leaves}

    def only_polls(self, loop: Operation) -> bool:
        """Return whether a loop reads memory again and again to decide, and neither writes nor sums up anything."""
        inside = self._inside(loop)
        deciding = self._deciding(loop, inside)
        reading = [leaf for leaf in deciding if _reads_others(leaf.operation)]
        return (
            bool(reading)
            and all(self._has_one_address(leaf, inside) for leaf in reading)
            and not any(_writes_to_others(leaf.operation) for leaf in inside if leaf not in deciding)
            and not any(_FLOAT.search(leaf.operation.tail) and self._depends_on_last_round(leaf) for leaf in inside)
        )

    def reads_one_address(self, loop: Operation) -> bool:
        """Return whether a loop depends on what it reads there, and not on its own last round."""
        inside = self._inside(loop)
        deciding = self._deciding(loop, inside)
        if any(map(self._depends_on_last_round, deciding)):
            return False
        nodes = {leaf.node for leaf in inside}
        return any(
            leaf.operation.name == CALL or nodes.isdisjoint(reached(leaf.values[:1], self._operands))
            for leaf in deciding
            if _may_load(leaf.operation)
        )

    def _inside(self, loop: Operation) -> list[Leaf]:
        return [self._leaves[operation] for operation in _inside(loop) if operation in self._leaves]

    def _deciding(self, loop: Operation, inside: Sequence[Leaf]) -> list[Leaf]:
        ends = (leaf for leaf in inside if leaf.operation.name == CONDITION and leaf.operation.loop is loop)
        nodes = reached(chain.from_iterable(leaf.values[:1] for leaf in ends), self._operands)
        return [leaf for leaf in inside if leaf.node in nodes]

    def _has_one_address(self, leaf: Leaf, inside: Sequence[Leaf]) -> bool:
        # A mask may follow a tensor of pointers; others have a base and offsets, and of foreign code, it may be all.
        addresses = leaf.addresses[:1] if leaf.operation.name in _BY_POINTER else leaf.addresses
        nodes = reached(addresses, self._operands)
        makers = (maker for maker in inside if maker.node in nodes)
        return not any(maker.operation.traits.reads_memory or self._depends_on_last_round(maker) for maker in makers)

    def _depends_on_last_round(self, leaf: Leaf) -> bool:
        return leaf.node in reached(self._operands[leaf.node], self._operands)


def _loops_without_bounds(function: Operation) -> Iterator[Operation]:
    return (one for one in function.walk() if one.regions and one.traits.is_loop and not one.traits.is_counted)


def _inside(loop: Operation) -> Iterator[Operation]:
    return islice(loop.walk(), 1, None)


def _may_load(operation: Operation) -> bool:
    return operation.traits.reads_global or operation.name == CALL


def _reads_others(operation: Operation) -> bool:
    if operation.traits.is_foreign:
        return is_impure(operation) and _READ.search(assembly_of(operation)) is not None
    return sees_changes(operation)


def _writes_to_others(operation: Operation) -> bool:
    if operation.traits.is_foreign:
        return is_impure(operation) and _WRITE.search(assembly_of(operation)) is not None
    return operation.traits.is_atomic


def _may_be_polling(operation: Operation) -> bool:
    traits = operation.traits
    computes = traits.is_arithmetic or traits.is_indexing or traits.is_constant or traits.is_move
    holds = traits.regions == "branch" or traits.combines_elements
    waits = traits.is_wait or traits.is_foreign or sees_changes(operation) or operation.name == _ASSERT
    return computes or holds or waits or traits.is_terminator
