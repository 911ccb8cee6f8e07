"""Abstract values of a kernel: a value in all CTAs, iterations and elements at once.

An integer is a sum of arrays with few axes each: an address is a term that depends on the CTA, plus one that depends on
the row, plus one that depends on the iteration. So billions of numbers take little memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.ttgir.nodes import Operation

MAX_ELEMENTS = 1 << 22  # maximum size of an array of integers
_BITS_EACH = 8  # booleans in the memory of an integer


class TooLarge(Exception):
    """An array would have more than ``MAX_ELEMENTS``, or the shapes of its terms do not match."""


_CTA, _LOOP, _DIMENSION, _SYMBOL = range(4)


class GridAxis(NamedTuple):
    """An axis along which values differ. Axes are ordered as an array's dimensions are."""

    rank: int
    number: int

    @property
    def is_dimension(self) -> bool:
        """True for a tensor's dimension."""
        return self.rank == _DIMENSION

    @property
    def is_symbol(self) -> bool:
        """True for an axis that marks a placeholder (``symbol``)."""
        return self.rank == _SYMBOL


CTA = GridAxis(_CTA, 0)


def loop_axis(number: int) -> GridAxis:
    """Return the axis of a loop's iterations. An inner loop has a larger number than the loops around it."""
    return GridAxis(_LOOP, number)


def dimension(number: int) -> GridAxis:
    """Return the axis of a tensor's dimension."""
    return GridAxis(_DIMENSION, number)


Axes = tuple[GridAxis, ...]
Array = NDArray[Any]


class AxisArray(Struct, frozen=True):
    """An array and the axes of its dimensions, in ascending order."""

    axes: Axes
    values: Array

    @property
    def sizes(self) -> dict[GridAxis, int]:
        """The size of each axis."""
        return dict(zip(self.axes, self.values.shape, strict=True))

    def over(self, axes: Axes) -> Array:
        """Return the values with a dimension for each of ``axes``: of size 1 where they do not differ."""
        sizes = self.sizes
        return self.values.reshape([sizes.get(axis, 1) for axis in axes])

    def at(self, axis: GridAxis, number: int) -> AxisArray:
        """Return the values at a place of an axis."""
        if axis not in self.axes:
            return self
        place = self.axes.index(axis)
        return AxisArray((*self.axes[:place], *self.axes[place + 1 :]), self.values.take(number, axis=place))

    def moved(self, places: Callable[[int], int]) -> AxisArray:
        """Renumber the tensor's dimensions."""
        axes = [dimension(places(axis.number)) if axis.is_dimension else axis for axis in self.axes]
        order = sorted(range(len(axes)), key=lambda place: axes[place])
        return AxisArray(tuple(axes[place] for place in order), self.values.transpose(order))

    def reshaped(self, before: Sequence[int], after: Sequence[int]) -> AxisArray:
        """Reshape the tensor; the order of its elements stays the same. Raises ``TooLarge``."""
        axes = [axis for axis in self.axes if not axis.is_dimension]
        sizes, taken, given = [self.sizes[axis] for axis in axes], [], []
        # The smallest groups of dimensions with equally many elements; those of size 1 are skipped. By the dimension,
        # the number of elements up to and including it.
        upto = [{n: prod(shape[: n + 1]) for n, size in enumerate(shape) if size > 1} for shape in (before, after)]
        begin = 1
        for end in sorted(set(upto[0].values()).intersection(upto[1].values())):
            mine, others = ([number for number, elements in one.items() if begin < elements <= end] for one in upto)
            begin = end
            if any(dimension(number) in self.axes for number in mine):
                taken += mine
                given += others
        spread = self.over((*axes, *map(dimension, taken)))
        shape = (*sizes, *(before[number] for number in taken))
        if prod(shape) > MAX_ELEMENTS:
            raise TooLarge
        values = np.broadcast_to(spread, shape).reshape((*sizes, *(after[number] for number in given)))
        return AxisArray((*axes, *map(dimension, given)), values)


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


class AxisArrays(Struct, frozen=True):
    """Arrays that together are one value."""

    parts: tuple[AxisArray, ...] = ()

    @property
    def axes(self) -> frozenset[GridAxis]:
        """The axes along which the value may differ."""
        return frozenset(axis for part in self.parts for axis in part.axes)

    def each(self, change: Callable[[AxisArray], AxisArray]) -> Self:
        """Change each array by itself."""
        return replace(self, parts=tuple(map(change, self.parts)))


class IntegerExpr(AxisArrays, frozen=True):
    """A sum of arrays, no two of which have the same axes. Floats are one array of that type."""

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

    def each(self, change: Callable[[AxisArray], AxisArray]) -> IntegerExpr:
        """Change each array by itself; they may have the same axes afterwards."""
        return IntegerExpr.of(*map(change, self.parts))

    def __add__(self, other: IntegerExpr) -> IntegerExpr:
        return IntegerExpr.of(*self.parts, *other.parts)

    def __neg__(self) -> IntegerExpr:
        return self.each(lambda part: AxisArray(part.axes, -part.values))

    def __sub__(self, other: IntegerExpr) -> IntegerExpr:
        """Return the difference of two sums, without the terms that are zero everywhere."""
        difference = self + -other
        return IntegerExpr.of(constant(0), *(part for part in difference.parts if part.values.any()))

    def __mul__(self, other: IntegerExpr) -> IntegerExpr:
        return IntegerExpr.of(*(joined(np.multiply, one, another) for one in self.parts for another in other.parts))

    def joint(self) -> AxisArray:
        """Return the sum as one array. Raises ``TooLarge``."""
        return reduce(partial(joined, np.add), self.parts)

    def bounds(self) -> tuple[int, int]:
        """Return lower and upper bounds of all values."""
        if not all(part.values.size for part in self.parts):
            return 0, 0
        return sum(int(part.values.min()) for part in self.parts), sum(int(part.values.max()) for part in self.parts)

    def only(self) -> int | None:
        """Return the value if it is the same everywhere, else None."""
        low, high = self.bounds()
        return low if low == high else None


class Mask(AxisArrays, frozen=True):
    """A conjunction of boolean arrays. ``is_lower_bound``: it may be true in more places."""

    is_lower_bound: bool = False

    def __and__(self, other: Mask) -> Mask:
        return Mask((*self.parts, *other.parts), self.is_lower_bound or other.is_lower_bound)

    def joint(self) -> AxisArray:
        """Return the mask as one array. Raises ``TooLarge``."""
        return reduce(partial(joined, np.logical_and, are_bits=True), self.parts, constant(True))

    def inverted(self) -> Mask | None:
        """Return the negation, or None if the mask is only a lower bound. Raises ``TooLarge``."""
        joint = self.joint()
        return None if self.is_lower_bound else Mask((AxisArray(joint.axes, ~joint.values),))

    def count(self, sizes: Mapping[GridAxis, int]) -> int:
        """Count the places where the mask is true, along axes of these sizes. Raises ``TooLarge``."""
        axes = set(sizes)
        times = 1
        for group in groups_of(self.parts):
            inside = Mask(tuple(group)).joint()
            times *= int(np.count_nonzero(inside.values))
            axes -= {axis for axis, size in inside.sizes.items() if size != 1}
        return times * prod(sizes[axis] for axis in axes)


ALWAYS, NEVER = Mask(), Mask((constant(False),))


def where(condition: Mask, one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    """Return ``one`` where the condition holds, and ``other`` elsewhere. Raises ``TooLarge``."""
    chosen = condition.joint()
    if not chosen.axes:
        return one if chosen.values else other
    return IntegerExpr((joined(np.where, chosen, one.joint(), other.joint()),))


def compared(compare: Callable[..., Array], one: IntegerExpr, other: IntegerExpr) -> Mask:
    """Return where a comparison holds. Raises ``TooLarge``.

    If the array of an ordering would be too large, the mask is a lower bound: where it holds for the whole tensor.
    """
    # A comparison that holds at both ends of an interval holds between them.
    is_order = compare in (np.less, np.less_equal, np.greater, np.greater_equal)
    difference = one - other
    if is_order and all(compare(end, 0) for end in difference.bounds()):
        return ALWAYS
    if difference.axes < one.axes | other.axes:
        one, other = difference, IntegerExpr.integer(0)
    try:
        return Mask((joined(compare, one.joint(), other.joint(), are_bits=True),))
    except TooLarge:
        if not is_order:
            raise
    least, most = (difference.each(partial(_over_tensor, end)).joint() for end in (np.min, np.max))
    everywhere = joined(lambda low, high: compare(low, 0) & compare(high, 0), least, most)
    return Mask((everywhere,), is_lower_bound=True)


def _over_tensor(combine: Callable[..., Array], part: AxisArray) -> AxisArray:
    inside = tuple(place for place, axis in enumerate(part.axes) if axis.is_dimension)
    outside = tuple(axis for axis in part.axes if not axis.is_dimension)
    return AxisArray(outside, combine(part.values, axis=inside))


def groups_of(parts: Iterable[AxisArray], along: Set[GridAxis] | None = None) -> list[list[AxisArray]]:
    """Group arrays that share axes, directly or through other arrays; with ``along``, only these axes count."""
    groups: list[tuple[set[GridAxis], list[AxisArray]]] = []
    for part in parts:
        axes = {axis for axis in part.axes if along is None or axis in along}
        sharing = [group for group in groups if not axes.isdisjoint(group[0])]
        groups = [group for group in groups if axes.isdisjoint(group[0])]
        groups.append((axes.union(*(its for its, _ in sharing)), [*(one for _, its in sharing for one in its), part]))
    return [members for _, members in groups]


class Descriptor(Struct, frozen=True):
    """A tensor descriptor for TMA: the base address, and the shape and strides of each dimension. None is unknown."""

    address: IntegerExpr | None
    shape: tuple[IntegerExpr | None, ...]
    strides_bytes: tuple[IntegerExpr | None, ...]

    def each(self, change: Callable[[AxisArray], AxisArray]) -> Descriptor:
        """Change each array by itself."""
        address, *sums = (one and one.each(change) for one in (self.address, *self.shape, *self.strides_bytes))
        return Descriptor(address, tuple(sums[: len(self.shape)]), tuple(sums[len(self.shape) :]))


class SharedMemorySlice(Struct, frozen=True):
    """A slice of a shared memory allocation along its first dimension. The ``index`` is None if unknown."""

    allocation: Operation
    index: IntegerExpr | None

    def each(self, change: Callable[[AxisArray], AxisArray]) -> SharedMemorySlice:
        """Change each array by itself."""
        return replace(self, index=self.index and self.index.each(change))


Value = IntegerExpr | Mask | Descriptor | SharedMemorySlice | None  # none is unknown


def symbol(number: int) -> IntegerExpr:
    """Return a placeholder that can be added, and multiplied by known values; other operations on it give ``OPEN``."""
    return IntegerExpr((AxisArray((GridAxis(_SYMBOL, number),), np.ones(1, np.int64)),))


# Twice a symbol that no loop has: no sum of it with others is a symbol by itself.
_OPEN_PART = AxisArray((GridAxis(_SYMBOL, -1),), np.full(1, 2))
OPEN = IntegerExpr((_OPEN_PART,))
OPEN_MASK = Mask((AxisArray(_OPEN_PART.axes, np.ones(1, bool)),))


def is_settled(value: Value) -> bool:
    """Return whether a value contains no placeholder."""
    if isinstance(value, SharedMemorySlice):
        return is_settled(value.index)
    return not (isinstance(value, AxisArrays) and any(axis.is_symbol for axis in value.axes))
