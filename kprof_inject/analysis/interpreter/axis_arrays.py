"""Abstract values of a kernel: what is known of a value in all CTAs, iterations and elements at once.

An integer is a sum of arrays with few axes each: an address is a term that depends on the CTA, plus one that depends on
the row, plus one that depends on the iteration. So billions of numbers stay as small as the kernel's text made them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.ttgir.nodes import Operation

MAX_ELEMENTS = 1 << 22
"""Maximum size of an array of integers."""

_BITS_EACH = 8
"""So many booleans take the memory of an integer."""


class TooLarge(Exception):
    """An array would have more than ``MAX_ELEMENTS``, or the shapes of its terms do not match."""


class GridAxis(NamedTuple):
    """An axis along which values differ. Axes are ordered as an array's dimensions are."""

    rank: int
    number: int


CTA = GridAxis(0, 0)


def loop_axis(number: int) -> GridAxis:
    """Return the axis of a loop's iterations. An inner loop has a larger number than the loops around it."""
    return GridAxis(1, number)


_DIMENSION_RANK = 2


def dimension(number: int) -> GridAxis:
    """Return the axis of a tensor's dimension."""
    return GridAxis(_DIMENSION_RANK, number)


Axes = tuple[GridAxis, ...]
Array = NDArray[Any]


class AxisArray(Struct, frozen=True):
    """An array and the axes of its dimensions, in ascending order."""

    axes: Axes
    values: Array

    def over(self, axes: Axes) -> Array:
        """Return the values with a dimension for each of ``axes``: of size 1 where they do not differ."""
        sizes = self.sizes
        return self.values.reshape([sizes.get(axis, 1) for axis in axes])

    @property
    def sizes(self) -> dict[GridAxis, int]:
        """The size of each axis."""
        return dict(zip(self.axes, self.values.shape, strict=True))


def joined(compute: Callable[..., Array], *parts: AxisArray, are_bits: bool = False) -> AxisArray:
    """Combine arrays into one, of integers or booleans, that has the axes of all of them. Raises ``TooLarge``."""
    axes = tuple(sorted({axis for part in parts for axis in part.axes}))
    sizes: dict[GridAxis, int] = {}
    for part in parts:
        for axis, size in part.sizes.items():
            # A size of 1 may be a value that the tensor repeats.
            if size > 1 and sizes.get(axis, 1) not in (1, size):
                raise TooLarge
            sizes[axis] = max(size, sizes.get(axis, 0)) if size else 0
    if prod(sizes.values()) > (_BITS_EACH if are_bits else 1) * MAX_ELEMENTS:
        raise TooLarge
    values = compute(*(part.over(axes) for part in parts))
    return AxisArray(axes, np.broadcast_to(values, [sizes[axis] for axis in axes]))


def counting(axis: GridAxis, size: int, first: int = 0) -> AxisArray:
    """Make integers that increase by one along an axis. Raises ``TooLarge``."""
    if size > MAX_ELEMENTS:
        raise TooLarge
    return AxisArray((axis,), np.arange(first, first + size))


def constant(value: int | bool) -> AxisArray:
    """Return a value that is the same everywhere."""
    return AxisArray((), np.array(value))


class IntegerExpr(Struct, frozen=True):
    """A sum of arrays, no two of which have the same axes. Floats are one array of that type."""

    parts: tuple[AxisArray, ...]

    @classmethod
    def of(cls, *parts: AxisArray) -> IntegerExpr:
        """Return the sum of arrays, some of which may have the same axes."""
        found: dict[Axes, Array] = {}
        for part in parts:
            known = found.get(part.axes)
            found[part.axes] = part.values if known is None else known + part.values
        return cls(tuple(AxisArray(axes, values) for axes, values in found.items()))

    @classmethod
    def integer(cls, value: int) -> IntegerExpr:
        """Return a number that is the same everywhere."""
        return cls((constant(value),))

    def __add__(self, other: IntegerExpr) -> IntegerExpr:
        """Add two sums."""
        return IntegerExpr.of(*self.parts, *other.parts)

    def __neg__(self) -> IntegerExpr:
        """Negate each part of the sum."""
        return IntegerExpr(tuple(AxisArray(part.axes, -part.values) for part in self.parts))

    def __sub__(self, other: IntegerExpr) -> IntegerExpr:
        """Return the difference of two sums, without the terms that are zero everywhere."""
        difference = self + -other
        return IntegerExpr.of(constant(0), *(part for part in difference.parts if part.values.any()))

    def __mul__(self, other: IntegerExpr) -> IntegerExpr:
        """Multiply two sums. Raises ``TooLarge``."""
        return IntegerExpr.of(*(joined(np.multiply, one, another) for one in self.parts for another in other.parts))

    def joint(self) -> AxisArray:
        """Return the sum as one array. Raises ``TooLarge``."""
        return reduce(lambda one, another: joined(np.add, one, another), self.parts)

    @property
    def axes(self) -> frozenset[GridAxis]:
        """The axes along which the value may differ."""
        return frozenset(axis for part in self.parts for axis in part.axes)

    def bounds(self) -> tuple[int, int]:
        """Return a lower and an upper bound of all values."""
        if not all(part.values.size for part in self.parts):
            return 0, 0
        return sum(int(part.values.min()) for part in self.parts), sum(int(part.values.max()) for part in self.parts)

    def only(self) -> int | None:
        """Return the value if it is the same everywhere, else None."""
        low, high = self.bounds()
        return low if low == high else None

    def moved(self, places: Callable[[int], int]) -> IntegerExpr:
        """Renumber the tensor's dimensions."""
        return IntegerExpr.of(*(_moved(part, places) for part in self.parts))

    def reshaped(self, before: Sequence[int], after: Sequence[int]) -> IntegerExpr:
        """Reshape the tensor; the order of its elements stays the same. Raises ``TooLarge``."""
        return IntegerExpr.of(*(_reshaped(part, before, after) for part in self.parts))


class Mask(Struct, frozen=True):
    """A conjunction of boolean arrays. ``is_lower_bound``: it may be true in more places."""

    factors: tuple[AxisArray, ...] = ()
    is_lower_bound: bool = False

    @classmethod
    def of_bit(cls, bit: bool) -> Mask:
        """Return a mask that is the same everywhere."""
        return cls() if bit else cls((constant(False),))

    def __and__(self, other: Mask) -> Mask:
        """Return the conjunction of two masks; it is a lower bound if either is."""
        return Mask((*self.factors, *other.factors), self.is_lower_bound or other.is_lower_bound)

    def joint(self) -> AxisArray:
        """Return the mask as one array. Raises ``TooLarge``."""
        return reduce(
            lambda one, another: joined(np.logical_and, one, another, are_bits=True),
            self.factors,
            constant(True),
        )

    def inverted(self) -> Mask | None:
        """Return the negation, or None if the mask is only a lower bound. Raises ``TooLarge``."""
        joint = self.joint()
        return None if self.is_lower_bound else Mask((AxisArray(joint.axes, ~joint.values),))

    def moved(self, places: Callable[[int], int]) -> Mask:
        """Renumber the tensor's dimensions."""
        return Mask(tuple(_moved(part, places) for part in self.factors), self.is_lower_bound)

    def reshaped(self, before: Sequence[int], after: Sequence[int]) -> Mask:
        """Reshape the tensor; the order of its elements stays the same. Raises ``TooLarge``."""
        return Mask(tuple(_reshaped(part, before, after) for part in self.factors), self.is_lower_bound)

    def count(self, sizes: Mapping[GridAxis, int]) -> int:
        """Count the places where the mask is true, along axes of these sizes. Raises ``TooLarge``."""
        axes = set(sizes)
        times = 1
        for group in groups_of(self.factors):
            inside = Mask(tuple(group)).joint()
            times *= int(np.count_nonzero(inside.values))
            axes -= {axis for axis, size in inside.sizes.items() if size != 1}
        return times * prod(sizes[axis] for axis in axes)


ALWAYS = Mask()


def where(condition: Mask, one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    """Return ``one`` where the condition holds, and ``other`` elsewhere. Raises ``TooLarge``."""
    chosen = condition.joint()
    if not chosen.axes:
        return one if chosen.values else other
    return IntegerExpr((joined(np.where, chosen, one.joint(), other.joint()),))


def compared(compare: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> Mask:
    """Return where a comparison holds. Raises ``TooLarge``.

    If the array would be too large and the comparison is an order, the mask is a lower bound: the places where it holds
    along all dimensions of the tensor.
    """
    # A comparison that holds at both ends of an interval holds between them.
    is_order = compare in (np.less, np.less_equal, np.greater, np.greater_equal)
    difference, zero = one - other, np.array(0)
    if is_order and all(bool(compare(np.array(end), zero)) for end in difference.bounds()):
        return Mask()
    if difference.axes < one.axes | other.axes:
        one, other = difference, IntegerExpr.integer(0)
    try:
        return Mask((joined(compare, one.joint(), other.joint(), are_bits=True),))
    except TooLarge:
        if not is_order:
            raise
    ends = []
    for end in (np.min, np.max):
        parts = []
        for part in difference.parts:
            inside = tuple(place for place, axis in enumerate(part.axes) if axis.rank == _DIMENSION_RANK)
            outside = tuple(axis for axis in part.axes if axis.rank != _DIMENSION_RANK)
            parts.append(AxisArray(outside, end(part.values, axis=inside)))
        ends.append(IntegerExpr.of(*parts).joint())
    everywhere = joined(lambda low, high: compare(low, zero) & compare(high, zero), *ends)
    return Mask((everywhere,), is_lower_bound=True)


def groups_of(parts: Sequence[AxisArray]) -> list[list[AxisArray]]:
    """Group arrays that share axes, directly or through other arrays."""
    groups: list[tuple[set[GridAxis], list[AxisArray]]] = []
    for part in parts:
        axes, members = set(part.axes), [part]
        apart = []
        for group in groups:
            if group[0].isdisjoint(axes):
                apart.append(group)
            else:
                axes |= group[0]
                members = [*group[1], *members]
        groups = [*apart, (axes, members)]
    return [members for _, members in groups]


def _moved(part: AxisArray, places: Callable[[int], int]) -> AxisArray:
    axes = [dimension(places(axis.number)) if axis.rank == _DIMENSION_RANK else axis for axis in part.axes]
    order = sorted(range(len(axes)), key=lambda place: axes[place])
    return AxisArray(tuple(axes[place] for place in order), part.values.transpose(order))


def _reshaped(part: AxisArray, before: Sequence[int], after: Sequence[int]) -> AxisArray:
    axes = [axis for axis in part.axes if axis.rank != _DIMENSION_RANK]
    sizes, taken, given = [part.sizes[axis] for axis in axes], [], []
    for mine, others in _regrouped(before, after):
        if any(dimension(number) in part.axes for number in mine):
            taken += mine
            given += others
    spread = part.over((*axes, *map(dimension, taken)))
    shape = (*sizes, *(before[number] for number in taken))
    if prod(shape) > MAX_ELEMENTS:
        raise TooLarge
    values = np.broadcast_to(spread, shape).reshape((*sizes, *(after[number] for number in given)))
    return AxisArray((*axes, *map(dimension, given)), values)


def _regrouped(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Match the smallest groups of dimensions of two shapes that have equally many elements. Size 1 is skipped."""
    mine, others = ([number for number, size in enumerate(shape) if size > 1] for shape in (before, after))
    found: list[tuple[list[int], list[int]]] = []
    while mine and others:
        one, another = [mine.pop(0)], [others.pop(0)]
        while (left := prod(before[number] for number in one)) != (right := prod(after[number] for number in another)):
            if not (mine if left < right else others):
                raise TooLarge
            (one if left < right else another).append((mine if left < right else others).pop(0))
        found.append((one, another))
    return found


class Descriptor(Struct, frozen=True):
    """A tensor descriptor for TMA: the base address, and the shape and strides of each dimension. None is unknown."""

    address: IntegerExpr | None
    shape: tuple[IntegerExpr | None, ...]
    strides_bytes: tuple[IntegerExpr | None, ...]


class SharedMemorySlice(Struct, frozen=True):
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
