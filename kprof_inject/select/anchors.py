"""Operations that a scope around source lines is meant for: those that do work, not those that compute addresses.

For integer arithmetic, the origin and the uses of its values decide.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kprof_inject.ttgir.dialect import data_operands_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, without_strings

_FLOAT_TENSOR = re.compile(r"tensor<[^<>,]*x(?:bf|tf|f)[0-9]")


def is_anchor(operation: Operation) -> bool:
    """Return whether the operation does work by itself.

    It has a region or an effect, moves data, or computes with tensors of floats. For integers, their purpose decides
    (see ``integer_work``).
    """
    if operation.regions:
        return True
    traits = operation.traits
    if traits.is_indexing or traits.is_terminator or traits.is_constant:
        return False
    if traits.is_allocation:
        return "%" in operation.tail
    return not traits.is_arithmetic or _FLOAT_TENSOR.search(operation.tail) is not None


_INTEGER_TENSOR = re.compile(r"tensor<[^<>,]*xi[0-9]")


def is_integer_arithmetic(operation: Operation) -> bool:
    """Return whether the operation computes only with tensors of integers."""
    return (
        operation.traits.computes_integers
        and not operation.traits.is_constant
        and _INTEGER_TENSOR.search(operation.tail) is not None
        and not is_anchor(operation)
    )


def integer_work(module: Module, function: Operation) -> frozenset[int]:
    """Return the offsets of a function's integer arithmetic that depends on data and that no address or mask uses.

    Data is every tensor that other work produces (a load, an atomic, a reduction, arithmetic on floats) and the
    operands of random numbers. A loaded scalar is not: it usually is a length or an offset. The time taken is
    proportional to the function's length.
    """
    graph = ValueGraph(module, function)
    from_data = _reached(_data(graph), graph.uses)
    for_addresses = _reached(_addresses(graph), graph.operands)
    return frozenset(
        leaf.operation.start
        for leaf in graph.leaves
        if leaf.node in from_data and leaf.node not in for_addresses and is_integer_arithmetic(leaf.operation)
    )


def _data(graph: ValueGraph) -> Iterator[int]:
    for leaf in graph.leaves:
        if _gives_data(leaf.operation):
            yield leaf.node
    for operation, results in graph.results:
        if operation.traits.combines_elements and _gives_tensor(operation.closing):
            yield from results


def _gives_data(operation: Operation) -> bool:
    if operation.traits.is_random:
        return is_integer_arithmetic(operation)
    return not operation.traits.is_move and is_anchor(operation) and _gives_tensor(without_strings(operation.tail))


def _addresses(graph: ValueGraph) -> Iterator[int]:
    for leaf in graph.leaves:
        if leaf.operation.traits.takes_addresses:
            yield from _without_data(leaf)


def _reached(start: Iterable[int], successors: Sequence[Sequence[int]]) -> set[int]:
    reached = set(start)
    pending = list(reached)
    while pending:
        for node in successors[pending.pop()]:
            if node not in reached:
                reached.add(node)
                pending.append(node)
    return reached


def _gives_tensor(types: str) -> bool:
    return "tensor<" in types.rpartition("->")[2]


def _without_data(leaf: Leaf) -> list[int]:
    operation, values = leaf.operation, leaf.values
    places = data_operands_of(operation.name, is_generic=operation.tail.startswith("("))
    data = {place % len(values) for place in places if values}
    return [value for place, value in enumerate(values) if place not in data]
