"""What is known of a value for all CTAs, iterations and elements at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, GridAxis, IntegerExpr, Mask
from kprof_inject.ttgir.nodes import Operation


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Of a tensor, as TMA takes it: the first address, and of each dimension how many elements it has and how many
    bytes lie between two; None where that is unknown."""

    address: IntegerExpr | None
    shape: tuple[IntegerExpr | None, ...]
    strides_bytes: tuple[IntegerExpr | None, ...]


@dataclass(frozen=True, slots=True)
class SharedMemorySlice:
    """A part of an allocation of shared memory: the ``index``-th along its first dimension, if that is known."""

    allocation: Operation
    index: IntegerExpr | None


Value = IntegerExpr | Mask | Descriptor | SharedMemorySlice | None
"""None is unknown."""


_SYMBOL_RANK = 3


def symbol(number: int) -> IntegerExpr:
    """Stands for a value that is not known yet. It can be added, and multiplied by what is known; whatever else is made
    of it is ``OPEN``."""
    return IntegerExpr((AxisArray((GridAxis(_SYMBOL_RANK, number),), np.ones(1, np.int64)),))


def is_symbol(axis: GridAxis) -> bool:
    return axis.rank == _SYMBOL_RANK


# Twice a symbol that no loop has: no sum of it with others is a symbol by itself.
_OPEN_PART = AxisArray((GridAxis(_SYMBOL_RANK, -1),), np.full(1, 2))
OPEN = IntegerExpr((_OPEN_PART,))
OPEN_MASK = Mask((AxisArray(_OPEN_PART.axes, np.ones(1, bool)),))


def is_settled(value: Value) -> bool:
    """Whether no symbol is in it."""
    if isinstance(value, IntegerExpr):
        return not any(map(is_symbol, value.axes))
    if isinstance(value, Mask):
        return not any(is_symbol(axis) for part in value.factors for axis in part.axes)
    return is_settled(value.index) if isinstance(value, SharedMemorySlice) else True


def size_of(value: Value) -> int:
    """Count the elements of a value's arrays."""
    if isinstance(value, IntegerExpr):
        return sum(part.values.size for part in value.parts)
    return sum(part.values.size for part in value.factors) if isinstance(value, Mask) else 0
