"""How the values change that a loop hands from iteration to iteration."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod

import numpy as np

from kprof_inject.analysis.evaluation.grids import (
    MOST_ELEMENTS,
    GridAxis,
    Mask,
    Part,
    Sum,
    TooLarge,
    counting,
    joined,
    where,
)
from kprof_inject.analysis.evaluation.values import OPEN, Descriptor, Slot, Value, is_settled, is_symbol, symbol

# Values that a loop hands on, at most.
_MOST_CARRIED = 1 << 12


@dataclass(slots=True)
class CountedLoop:
    """A loop that is being gone through. ``trips`` may differ between CTAs; ``most`` is the greatest of them."""

    axis: GridAxis
    first: Sum
    step: Sum
    trips: Part
    most: int

    @property
    def places(self) -> Sum:
        """Raises ``TooLarge``."""
        return Sum((counting(self.axis, self.most),))

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
            symbol(self._first_symbol + place) if isinstance(value, Sum) else None
            for place, value in enumerate(initial)
        ]
        self.values: list[Value] = [None] * len(initial)
        self.open: set[int] = set()

    def settle(self, passed: Sequence[Value]) -> None:
        """By what an iteration passes on of the symbols."""
        self.settle_slots(passed)
        waiting: dict[int, tuple[int | None, Sum]] = {}
        for place, value in enumerate(passed[: len(self.values)]):
            initial = self.initial[place]
            if not isinstance(value, Sum) or not isinstance(initial, Sum):
                continue
            source, rest = self._of_symbol(value)
            if rest is None:
                self.open.add(place)
            elif source == place:
                self.values[place] = self._growing(initial, rest)
            else:
                waiting[place] = (source, rest)
        for place, (source, rest) in waiting.items():
            from_where = Sum.integer(0) if source is None else self.values[source]
            if isinstance(from_where, Sum):
                with suppress(TooLarge):
                    self.values[place] = self._following(self.initial[place], from_where + rest)
            else:
                self.open.add(place)

    @property
    def has_open_slots(self) -> bool:
        """Which slots are handed on may hang on values that were open."""
        return any(isinstance(value, Slot) and value.index is None for value in self.values)

    def settle_slots(self, passed: Sequence[Value]) -> None:
        for place, value in enumerate(passed[: len(self.values)]):
            initial = self.initial[place]
            if isinstance(value, Slot) and isinstance(initial, Slot):
                self.values[place] = self._rotating(initial, value)

    def _of_symbol(self, value: Sum) -> tuple[int | None, Sum | None]:
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
        return source, Sum(tuple(rest)) if rest else Sum.integer(0)

    def _growing(self, initial: Sum, change: Sum) -> Value:
        """Each iteration adds ``change``."""
        axis = self.loop.axis
        try:
            if axis not in change.axes:
                return initial + change * self.loop.places
            joint = change.joint()
        except TooLarge:
            return None
        place = joint.axes.index(axis)
        return initial + Sum((Part(joint.axes, np.cumsum(joint.values, axis=place) - joint.values),))

    def _rotating(self, initial: Slot, passed: Slot) -> Value:
        """The slots of one allocation, one after the other."""
        same = same_memory(initial, passed)
        if same is None or initial.index is None or passed.index is None or not is_settled(passed):
            return same
        with suppress(TooLarge):
            index = self._following(initial.index, passed.index)
            return Slot(initial.allocation, index if isinstance(index, Sum) else None)
        return same

    def _following(self, initial: Value, passed: Sum) -> Value:
        """Each iteration has what the one before passed on."""
        if not isinstance(initial, Sum):
            return None
        both = joined(np.add, passed.joint(), Part((self.loop.axis,), np.zeros(self.loop.most, np.int64)))
        place = both.axes.index(self.loop.axis)
        rolled = Sum((Part(both.axes, np.roll(both.values, 1, axis=place)),))
        is_first = Mask((Part((self.loop.axis,), np.arange(self.loop.most) == 0),))
        return where(is_first, initial, rolled)

    def results(self, passed: Sequence[Value]) -> list[Value]:
        """Behind the loop: what the last iteration passed on."""
        if self.loop.is_even:
            return [at_iteration(value, self.loop.axis, self.loop.most - 1) for value in passed]
        return [self._last(*both) for both in zip(self.initial, passed, strict=False)]

    def _last(self, initial: Value, passed: Value) -> Value:
        """Of each CTA, by its own last iteration; what it had before if there was none."""
        if not isinstance(passed, Sum) or not isinstance(initial, Sum):
            return same_memory(initial, passed)
        if not is_settled(passed):
            return OPEN
        with suppress(TooLarge):
            last = Sum.of(*(self._part_in_last(part) for part in passed.parts))
            return where(Mask((Part(self.loop.trips.axes, self.loop.trips.values > 0),)), last, initial)
        return None

    def _part_in_last(self, part: Part) -> Part:
        """Raises ``TooLarge``."""
        axis, trips = self.loop.axis, self.loop.trips
        if axis not in part.axes:
            return part
        iterations = np.arange(self.loop.most)
        is_last = joined(np.equal, Part((axis,), iterations), Part(trips.axes, np.maximum(trips.values - 1, 0)))
        chosen = joined(np.multiply, part, is_last)
        place = chosen.axes.index(axis)
        return Part((*chosen.axes[:place], *chosen.axes[place + 1 :]), chosen.values.sum(axis=place))


def same_memory(one: Value, other: Value) -> Slot | None:
    """Any slot of the allocation that both are of."""
    if isinstance(one, Slot) and isinstance(other, Slot) and one.allocation is other.allocation:
        return Slot(one.allocation, None)
    return None


def at_iteration(value: Value, axis: GridAxis, number: int) -> Value:
    """In one iteration."""
    if isinstance(value, Sum):
        return _sum_at(value, axis, number)
    if isinstance(value, Mask):
        return Mask(tuple(_part_at(part, axis, number) for part in value.factors), value.is_least)
    if isinstance(value, Slot):
        return Slot(value.allocation, value.index and _sum_at(value.index, axis, number))
    if isinstance(value, Descriptor):
        shape, strides = (
            tuple(one and _sum_at(one, axis, number) for one in sums) for sums in (value.shape, value.strides_bytes)
        )
        return Descriptor(value.address and _sum_at(value.address, axis, number), shape, strides)
    return value


def _sum_at(value: Sum, axis: GridAxis, number: int) -> Sum:
    return Sum.of(*(_part_at(part, axis, number) for part in value.parts))


def _part_at(part: Part, axis: GridAxis, number: int) -> Part:
    if axis not in part.axes:
        return part
    place = part.axes.index(axis)
    return Part((*part.axes[:place], *part.axes[place + 1 :]), part.values.take(number, axis=place))


def stacked(values: Sequence[Value], axis: GridAxis) -> Value:
    """The values of all iterations as one."""
    sums = [value for value in values if isinstance(value, Sum)]
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
        found.append(Part((*axes[:place], axis, *axes[place:]), np.moveaxis(together, 0, place)))
    return Sum.of(*found)
