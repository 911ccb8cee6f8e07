"""How the values change that a loop hands from iteration to iteration, in counted loops and in while loops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    MOST_ELEMENTS,
    OPEN,
    AxisArray,
    Descriptor,
    GridAxis,
    IntegerExpr,
    Mask,
    SharedMemorySlice,
    TooLarge,
    Value,
    counting,
    is_settled,
    is_symbol,
    joined,
    symbol,
    where,
)
from kprof_inject.analysis.interpreter.branches import chosen

# Values that a loop hands on, at most.
_MOST_CARRIED = 1 << 12


@dataclass(slots=True)
class CountedLoop:
    """A loop that is being gone through. ``trips`` may differ between CTAs; ``most`` is the greatest of them."""

    axis: GridAxis
    first: IntegerExpr
    step: IntegerExpr
    trips: AxisArray
    most: int

    @property
    def places(self) -> IntegerExpr:
        """Raises ``TooLarge``."""
        return IntegerExpr((counting(self.axis, self.most),))

    @property
    def is_even(self) -> bool:
        """All CTAs go round as often."""
        return bool((self.trips.values == self.most).all())

    def when(self) -> Mask:
        if self.is_even:
            return Mask()
        places = self.places.joint()
        return Mask((joined(np.less, places, self.trips),))


class Changes:
    """How the values change that a loop hands from iteration to iteration. ``values`` are those in all iterations;
    ``open`` are those of which nothing is known yet. Raises ``TooLarge``."""

    def __init__(self, loop: CountedLoop, initial: Sequence[Value]) -> None:
        self.loop = loop
        self.initial = initial
        if len(initial) > _MOST_CARRIED:
            raise TooLarge
        self._first_symbol = loop.axis.number * _MOST_CARRIED
        self.symbols: list[Value] = [
            symbol(self._first_symbol + place) if isinstance(value, IntegerExpr) else None
            for place, value in enumerate(initial)
        ]
        self.values: list[Value] = [None] * len(initial)
        self.open: set[int] = set()

    def settle(self, passed: Sequence[Value]) -> None:
        """By what an iteration passes on of the symbols."""
        self.settle_slots(passed)
        waiting: dict[int, tuple[int | None, IntegerExpr]] = {}
        for place, value in enumerate(passed[: len(self.values)]):
            initial = self.initial[place]
            if not isinstance(value, IntegerExpr) or not isinstance(initial, IntegerExpr):
                continue
            source, rest = self._of_symbol(value)
            if rest is None:
                self.open.add(place)
            elif source == place:
                self.values[place] = self._growing(initial, rest)
            else:
                waiting[place] = (source, rest)
        for place, (source, rest) in waiting.items():
            from_where = IntegerExpr.integer(0) if source is None else self.values[source]
            if isinstance(from_where, IntegerExpr):
                with suppress(TooLarge):
                    self.values[place] = self._following(self.initial[place], from_where + rest)
            else:
                self.open.add(place)

    @property
    def has_open_slots(self) -> bool:
        """Which slots are handed on may hang on values that were open."""
        return any(isinstance(value, SharedMemorySlice) and value.index is None for value in self.values)

    def settle_slots(self, passed: Sequence[Value]) -> None:
        for place, value in enumerate(passed[: len(self.values)]):
            initial = self.initial[place]
            if isinstance(value, SharedMemorySlice) and isinstance(initial, SharedMemorySlice):
                self.values[place] = self._rotating(initial, value)

    def _of_symbol(self, value: IntegerExpr) -> tuple[int | None, IntegerExpr | None]:
        """The symbol of this loop that a value is, but for a sum without any of them; the sum is None if it is not of
        that kind."""
        source, rest = None, []
        for part in value.parts:
            mine = [axis.number - self._first_symbol for axis in part.axes if is_symbol(axis)]
            if OPEN.axes & set(part.axes):
                return None, None
            if not any(0 <= place < len(self.initial) for place in mine):
                rest.append(part)
            elif len(part.axes) == 1 and source is None and part.values[0] == 1:
                source = mine[0]
            else:
                return None, None
        return source, IntegerExpr(tuple(rest)) if rest else IntegerExpr.integer(0)

    def _growing(self, initial: IntegerExpr, change: IntegerExpr) -> Value:
        """Each iteration adds ``change``."""
        axis = self.loop.axis
        try:
            if axis not in change.axes:
                return initial + change * self.loop.places
            joint = change.joint()
        except TooLarge:
            return None
        place = joint.axes.index(axis)
        return initial + IntegerExpr((AxisArray(joint.axes, np.cumsum(joint.values, axis=place) - joint.values),))

    def _rotating(self, initial: SharedMemorySlice, passed: SharedMemorySlice) -> Value:
        """The slots of one allocation, one after the other."""
        same = same_memory(initial, passed)
        if same is None or initial.index is None or passed.index is None or not is_settled(passed):
            return same
        with suppress(TooLarge):
            index = self._following(initial.index, passed.index)
            return SharedMemorySlice(initial.allocation, index if isinstance(index, IntegerExpr) else None)
        return same

    def _following(self, initial: Value, passed: IntegerExpr) -> Value:
        """Each iteration has what the one before passed on."""
        if not isinstance(initial, IntegerExpr):
            return None
        both = joined(np.add, passed.joint(), AxisArray((self.loop.axis,), np.zeros(self.loop.most, np.int64)))
        place = both.axes.index(self.loop.axis)
        rolled = IntegerExpr((AxisArray(both.axes, np.roll(both.values, 1, axis=place)),))
        is_first = Mask((AxisArray((self.loop.axis,), np.arange(self.loop.most) == 0),))
        return where(is_first, initial, rolled)

    def results(self, passed: Sequence[Value]) -> list[Value]:
        """Behind the loop: what the last iteration passed on."""
        if self.loop.is_even:
            return [at_iteration(value, self.loop.axis, self.loop.most - 1) for value in passed]
        return [self._last(*both) for both in zip(self.initial, passed, strict=False)]

    def _last(self, initial: Value, passed: Value) -> Value:
        """Of each CTA, by its own last iteration; what it had before if there was none."""
        if not isinstance(passed, IntegerExpr) or not isinstance(initial, IntegerExpr):
            return same_memory(initial, passed)
        if not is_settled(passed):
            return OPEN
        with suppress(TooLarge):
            last = IntegerExpr.of(*(self._part_in_last(part) for part in passed.parts))
            return where(Mask((AxisArray(self.loop.trips.axes, self.loop.trips.values > 0),)), last, initial)
        return None

    def _part_in_last(self, part: AxisArray) -> AxisArray:
        """Raises ``TooLarge``."""
        axis, trips = self.loop.axis, self.loop.trips
        if axis not in part.axes:
            return part
        iterations = np.arange(self.loop.most)
        is_last = joined(
            np.equal, AxisArray((axis,), iterations), AxisArray(trips.axes, np.maximum(trips.values - 1, 0))
        )
        chosen = joined(np.multiply, part, is_last)
        place = chosen.axes.index(axis)
        return AxisArray((*chosen.axes[:place], *chosen.axes[place + 1 :]), chosen.values.sum(axis=place))


def same_memory(one: Value, other: Value) -> SharedMemorySlice | None:
    """Any slot of the allocation that both are of."""
    if (
        isinstance(one, SharedMemorySlice)
        and isinstance(other, SharedMemorySlice)
        and one.allocation is other.allocation
    ):
        return SharedMemorySlice(one.allocation, None)
    return None


def at_iteration(value: Value, axis: GridAxis, number: int) -> Value:
    """In one iteration."""
    if isinstance(value, IntegerExpr):
        return _sum_at(value, axis, number)
    if isinstance(value, Mask):
        return Mask(tuple(_part_at(part, axis, number) for part in value.factors), value.is_least)
    if isinstance(value, SharedMemorySlice):
        return SharedMemorySlice(value.allocation, value.index and _sum_at(value.index, axis, number))
    if isinstance(value, Descriptor):
        shape, strides = (
            tuple(one and _sum_at(one, axis, number) for one in sums) for sums in (value.shape, value.strides_bytes)
        )
        return Descriptor(value.address and _sum_at(value.address, axis, number), shape, strides)
    return value


def _sum_at(value: IntegerExpr, axis: GridAxis, number: int) -> IntegerExpr:
    return IntegerExpr.of(*(_part_at(part, axis, number) for part in value.parts))


def _part_at(part: AxisArray, axis: GridAxis, number: int) -> AxisArray:
    if axis not in part.axes:
        return part
    place = part.axes.index(axis)
    return AxisArray((*part.axes[:place], *part.axes[place + 1 :]), part.values.take(number, axis=place))


def stacked(values: Sequence[Value], axis: GridAxis) -> Value:
    """The values of all iterations as one."""
    sums = [value for value in values if isinstance(value, IntegerExpr)]
    if len(sums) < len(values):
        return None
    by_axes = [{part.axes: part.values for part in value.parts} for value in sums]
    found = []
    for axes in dict.fromkeys(axes for one in by_axes for axes in one):
        of_iterations = [one.get(axes, np.zeros([1] * len(axes), np.int64)) for one in by_axes]
        shape = np.broadcast_shapes(*(one.shape for one in of_iterations))
        if len(sums) * prod(shape) > MOST_ELEMENTS:
            return None
        together = np.stack([np.broadcast_to(one, shape) for one in of_iterations])
        place = sum(other < axis for other in axes)
        found.append(AxisArray((*axes[:place], axis, *axes[place:]), np.moveaxis(together, 0, place)))
    return IntegerExpr.of(*found)


@dataclass(slots=True)
class LoopRounds:
    """How often CTAs go through a block of a loop, and what it is given in each round."""

    loop: CountedLoop
    values: list[Value]


class Steps:
    """Of a loop that goes on while a condition holds, one iteration after the other. ``results`` are what each CTA had
    when its condition did not hold."""

    def __init__(self) -> None:
        self.results: list[Value] = []
        self._given: list[Sequence[Value]] = []
        self._passed: list[Sequence[Value]] = []
        self._going = [ALWAYS]

    def take(self, given: Sequence[Value], condition: Mask, passed: Sequence[Value]) -> bool:
        """What the condition was made of, and what the block before it passed on; returns whether any CTA goes on.
        Raises ``TooLarge``."""
        before = self._going[-1]
        self.results = [chosen(before, *both) for both in zip(passed, self.results or passed, strict=True)]
        self._given.append(given)
        goes_on = (before & condition).joint()
        if goes_on.values.any():
            self._passed.append(passed)
            self._going.append(Mask((goes_on,)))
        return bool(goes_on.values.any())

    def __len__(self) -> int:
        """How many iterations there are."""
        return len(self._passed)

    def checks(self, axis: GridAxis) -> LoopRounds:
        """Those of the condition."""
        return self._rounds(axis, self._given, 1)

    def inside(self, axis: GridAxis) -> LoopRounds:
        """Those of the body."""
        return self._rounds(axis, self._passed, 0)

    def _rounds(self, axis: GridAxis, values: Sequence[Sequence[Value]], more: int) -> LoopRounds:
        trips = AxisArray((), np.array(more))
        for going in self._going[1:]:
            trips = joined(np.add, trips, going.joint())
        loop = CountedLoop(axis, IntegerExpr.integer(0), IntegerExpr.integer(1), trips, len(values))
        return LoopRounds(loop, [stacked(one, axis) for one in zip(*values, strict=True)])
