"""Which operations a scope around source lines reaches for: those that do work, not those that compute addresses.

Of integer arithmetic, where its values come from and where they go tells which of the two it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kprof_inject.ttgir.dialect import data_operands_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, without_strings

_FLOAT_TENSOR = re.compile(r"tensor<[^<>,]*x(?:bf|tf|f)[0-9]")


def is_anchor(operation: Operation) -> bool:
    """Whether the operation does work by itself: it has a region or an effect, moves data, or computes with tensors of
    floats. Of integers, what they are for decides (see ``integer_work``)."""
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
    """Whether the operation computes with tensors of integers alone."""
    return (
        operation.traits.computes_integers
        and not operation.traits.is_constant
        and _INTEGER_TENSOR.search(operation.tail) is not None
        and not is_anchor(operation)
    )


def integer_work(module: Module, function: Operation) -> frozenset[int]:
    """Where the integer arithmetic of a function begins that depends on data and that no address or mask depends on.

    Data is the tensors that other work gives: a load, an atomic, a reduction, arithmetic on floats; and what random
    numbers are made of. A scalar that was loaded is none: it is a length or an offset more often than not. The time
    that it takes is in proportion to the function's length."""
    graph = ValueGraph(module, function)
    of_data = _reached(_data(graph), graph.uses)
    of_addresses = _reached(_addresses(graph), graph.operands)
    return frozenset(
        leaf.operation.start
        for leaf in graph.leaves
        if leaf.node in of_data and leaf.node not in of_addresses and is_integer_arithmetic(leaf.operation)
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


def _reached(begin: Iterable[int], following: Sequence[Sequence[int]]) -> set[int]:
    reached = set(begin)
    pending = list(reached)
    while pending:
        for node in following[pending.pop()]:
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
