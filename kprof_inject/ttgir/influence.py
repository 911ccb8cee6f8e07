"""Judge whether a kernel does the same work if some of its values are different.

It does if the values reach floating-point data alone: no address, index, mask, branch, loop bound, barrier or atomic
operation. Values that are stored may come back by a load. Through shared memory, any load may return them; through
global memory, loads of floating-point numbers do: no kernel stores a number and loads it as an index.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kprof_inject.ttgir.dialect import CALL, FUNCTION, data_operands_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph
from kprof_inject.ttgir.types import types_of

# They pass values on to the results or arguments that ``ValueGraph`` links.
_PASSING = frozenset(
    ("scf.yield", "cf.br", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "ttg.warp_yield")
)
_LOCAL_WRITES = frozenset(
    (
        "ttg.async_copy_global_to_local",
        "ttg.local_alloc",
        "ttg.local_scatter",
        "ttg.local_store",
        "ttng.tmem_alloc",
        "ttng.tmem_store",
    )
)
_GLOBAL_WRITES = frozenset(("tt.store", "tt.descriptor_store"))
_LOOP_BOUNDS = 3
_IMPURE = "pure = false"
# The compiler may do anything where it does not hold.
_ASSUME = "llvm.intr.assume"


def objection_to_other_values(module: Module, operations: Sequence[Operation]) -> str:
    """Return why a kernel may do other work if these operations had other results; empty if it does the same.

    The same if a store among them stored other numbers, and if a loop among them, which may have results of any kind,
    ended early. The reason is a sentence part that follows *because*.
    """
    entry = [one for one in module.walk() if one.name == FUNCTION]
    if len(entry) != 1 or any(one.name == CALL for one in module.walk()):
        return "the kernel has functions that are not inlined"
    for one in operations:
        if not (one.traits.is_loop or gives_floats(one)):
            return f"{_place(module, one)} does not give floating-point numbers"
    graph = ValueGraph(module, entry[0])
    changed = _changed(graph, operations)
    for leaf in graph.leaves:
        if not changed.isdisjoint(leaf.values) and not _is_data(leaf, changed):
            return f"{_place(module, leaf.operation)} may depend on it, which is no floating-point data"
    for nest, values in graph.nests:
        if not changed.isdisjoint(_deciding(nest, values)):
            return f"{_place(module, nest)} may depend on it, which decides what the kernel does"
    return ""


def gives_floats(operation: Operation) -> bool:
    """Return whether an operation's results, or what it stores, are floating-point numbers by the printed types."""
    types = types_of(operation)
    return bool(types) and types[-1].pointee.startswith(("f", "bf"))


def _place(module: Module, operation: Operation) -> str:
    return f"{operation.name} in TTGIR line {module.line_numbers([operation.start])[0]}"


def _nodes_of(graph: ValueGraph, operations: Iterable[Operation]) -> set[int]:
    wanted = set(operations)
    nodes = {leaf.node for leaf in graph.leaves if leaf.operation in wanted}
    nodes.update(node for operation, results in graph.results if operation in wanted for node in results)
    return nodes


def _changed(graph: ValueGraph, operations: Sequence[Operation]) -> set[int]:
    """Return all values that depend on the results of operations, also by way of memory."""
    writes = {*_LOCAL_WRITES, *_GLOBAL_WRITES}  # their results are no values, but tokens
    removed = {inner.name for one in operations for inner in one.walk()}
    changed, known = _nodes_of(graph, (one for one in operations if one.name not in writes)), -1
    while known != len(changed):
        known = len(changed)
        pending = list(changed)
        while pending:
            for node in graph.uses[pending.pop()]:
                if node not in changed:
                    changed.add(node)
                    pending.append(node)
        writing = {leaf.operation.name for leaf in graph.leaves if not changed.isdisjoint(leaf.values)}
        changed |= _loaded_again(graph, writing.union(removed))
    return changed


def _loaded_again(graph: ValueGraph, writing: set[str]) -> set[int]:
    """Return the values that may come from memory to which the named operations write changed ones."""
    is_local, is_global = not writing.isdisjoint(_LOCAL_WRITES), not writing.isdisjoint(_GLOBAL_WRITES)
    found = set[int]()
    for leaf in graph.leaves:
        traits = leaf.operation.traits
        is_load = traits.reads_memory and not traits.is_allocation
        if is_local and (traits.is_dot or (is_load and not traits.reads_global)):
            found.add(leaf.node)
        if is_global and is_load and gives_floats(leaf.operation):
            found.add(leaf.node)
    return found


def _is_data(leaf: Leaf, changed: set[int]) -> bool:
    """Return whether an operation takes changed values as data alone, and does nothing else that depends on them."""
    operation, traits = leaf.operation, leaf.operation.traits
    if operation.name in _PASSING:
        return True
    if traits.takes_addresses:
        places = data_operands_of(operation.name, is_generic=operation.tail.startswith("("))
        data = {place % len(leaf.values) for place in places}
        others = (value for place, value in enumerate(leaf.values) if place not in data)
        return not traits.is_atomic and operation.name in (*_GLOBAL_WRITES, "tt.gather") and changed.isdisjoint(others)
    if operation.name in _LOCAL_WRITES:
        return True
    if operation.name == _ASSUME:
        return False
    if traits.is_foreign:
        return _IMPURE not in operation.tail
    return traits.is_arithmetic or traits.is_indexing or traits.is_move or traits.is_of_dot or traits.keeps_elements


def _deciding(nest: Operation, values: Sequence[int]) -> Sequence[int]:
    """Return the operands of an operation with regions that decide how often, or which of them, are executed."""
    if nest.traits.combines_elements or nest.name == FUNCTION:
        return []
    return values[:_LOOP_BOUNDS] if nest.name == "scf.for" else [] if nest.name == "scf.while" else values
