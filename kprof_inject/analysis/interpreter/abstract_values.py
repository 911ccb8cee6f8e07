"""Abstract values of the interpreter: what is known of a value in all CTAs, iterations and elements at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, GridAxis, IntegerExpr, Mask
from kprof_inject.ttgir.nodes import Operation


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A tensor descriptor for TMA: the base address, and the shape and strides of each dimension. None is unknown."""

    address: IntegerExpr | None
    shape: tuple[IntegerExpr | None, ...]
    strides_bytes: tuple[IntegerExpr | None, ...]


@dataclass(frozen=True, slots=True)
class SharedMemorySlice:
    """A slice of a shared memory allocation along its first dimension. The ``index`` is None if unknown."""

    allocation: Operation
    index: IntegerExpr | None


Value = IntegerExpr | Mask | Descriptor | SharedMemorySlice | None
"""None is unknown."""


_SYMBOL_RANK = 3


def symbol(number: int) -> IntegerExpr:
    """Return a placeholder for a value that is not known yet.

    It can be added, and multiplied by known values; all other operations on it give ``OPEN``.
    """
    return IntegerExpr((AxisArray((GridAxis(_SYMBOL_RANK, number),), np.ones(1, np.int64)),))


def is_symbol(axis: GridAxis) -> bool:
    """Return whether an axis marks a placeholder."""
    return axis.rank == _SYMBOL_RANK


# Twice a symbol that no loop has: no sum of it with others is a symbol by itself.
_OPEN_PART = AxisArray((GridAxis(_SYMBOL_RANK, -1),), np.full(1, 2))
OPEN = IntegerExpr((_OPEN_PART,))
OPEN_MASK = Mask((AxisArray(_OPEN_PART.axes, np.ones(1, bool)),))


def is_settled(value: Value) -> bool:
    """Return whether a value contains no placeholder."""
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
