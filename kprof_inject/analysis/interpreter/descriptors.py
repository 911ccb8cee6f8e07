"""Tensor descriptors that a kernel creates, or takes as arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kprof_inject.analysis.interpreter.axis_arrays import Descriptor, IntegerExpr, Value
from kprof_inject.analysis.interpreter.integer_operations import bytes_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import argument_types
from kprof_inject.ttgir.types import types_of

_BRACKETS = re.compile(r"\[([^\]]*)\]")


def made_descriptor(operation: Operation, operands: Sequence[Value]) -> Descriptor | None:
    """Return the descriptor that ``tt.make_tensor_descriptor`` creates, or None if it is malformed."""
    types = types_of(operation)
    sums = [value if isinstance(value, IntegerExpr) else None for value in operands]
    if not types or not sums:
        return None
    rank = (len(sums) - 1) // 2
    element = IntegerExpr.integer(bytes_of(types[0].pointee))
    strides = tuple(size and size * element for size in sums[1 + rank : 1 + 2 * rank])
    return Descriptor(sums[0], tuple(sums[1 : 1 + rank]), strides)


_CREATED = " -> descriptor"


def descriptor_at(name: str) -> str:
    """Return the key of the descriptor in the memory that a pointer names."""
    return f"{name}{_CREATED}"


def is_descriptor_at(name: str) -> bool:
    """Return whether a name is the key of a descriptor in memory."""
    return name.endswith(_CREATED)


def descriptor_in_memory(operation: Operation, operands: Sequence[Value]) -> Descriptor | None:
    """Return the descriptor that ``ttng.tensormap_create`` writes, or None if it is malformed.

    It is printed as ``%to, %base, [box], [shape], [strides in bytes, but for the innermost], [element strides]``, with
    dimensions from the innermost.
    """
    lists = [len(re.findall(r"%", one)) for one in _BRACKETS.findall(operation.tail.partition(" : ")[0])]
    types = types_of(operation)
    if len(lists) != 4 or len(operands) != 2 + sum(lists) or len(types) < 2:
        return None
    sums = [value if isinstance(value, IntegerExpr) else None for value in operands]
    rank = lists[1]
    shape, strides = sums[2 + lists[0] :][:rank], sums[2 + lists[0] + rank :][: rank - 1]
    element = IntegerExpr.integer(bytes_of(types[1].pointee))
    return Descriptor(sums[1], tuple(shape[::-1]), (*strides[::-1], element))


def described_arguments(function: Operation) -> list[tuple[int, int] | None]:
    """Return the rank and the element size in bytes of each argument that is a descriptor, and None for others."""
    found: list[tuple[int, int] | None] = []
    for text in argument_types(function):
        described = _DESCRIBED.match(text)
        if described:
            found.append((described[1].count("x"), bytes_of(described[2])))
        else:
            found.append(None)
    return found


_DESCRIBED = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)([a-z]\w*)")
