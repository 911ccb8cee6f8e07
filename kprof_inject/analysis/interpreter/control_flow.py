"""Control flow of an interpreted kernel: which blocks are reached, and how loop-carried values change."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from graphlib import CycleError, TopologicalSorter
from math import prod

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    MAX_ELEMENTS,
    OPEN,
    AxisArray,
    GridAxis,
    IntegerExpr,
    Mask,
    SharedMemorySlice,
    TooLarge,
    Value,
    constant,
    counting,
    is_settled,
    joined,
    symbol,
    where,
)
from kprof_inject.ttgir.nodes import Block, Module, Region
from kprof_inject.ttgir.ssa_values import block_arguments, operand_names, successors_of

Condition = Mask | None  # none is unknown


class Arrivals:
    """The conditions and arguments with which the blocks of a region are reached; unknown if branches lead back.

    ``blocks`` has each block after its predecessors, which must be interpreted before it.
    """

    def __init__(self, module: Module, region: Region, when: Condition) -> None:
        """Start with a region whose first block runs under the condition ``when``, without arguments."""
        self._module, self._region = module, region
        self._arrivals: dict[str, list[tuple[Condition, Sequence[Value]]]] = defaultdict(list)
        self._arrivals[region.blocks[0].label].append((when, ()))
        by_label = {block.label: block for block in region.blocks}
        order = TopologicalSorter[str](dict.fromkeys(by_label, ()))
        for block in region.blocks:
            for label, _ in _ways_from(block):
                order.add(label, block.label)
        self._goes_back = False
        self.blocks: Sequence[Block] = region.blocks
        try:
            self.blocks = [by_label[label] for label in order.static_order() if label in by_label]
        except CycleError:
            self._goes_back = True

    def when(self, block: Block) -> Condition:
        """Return the condition under which a block runs."""
        conditions = [condition for condition, _ in self._arrivals[block.label]]
        if self._goes_back or not conditions:
            return None
        if len(conditions) == 1:
            return conditions[0]
        known = [one for one in conditions if one is not None and not one.is_lower_bound]
        with suppress(TooLarge):
            if len(known) == len(conditions):
                return Mask((joined(lambda *values: reduce(np.logical_or, values), *(one.joint() for one in known)),))
        return None

    def arguments(self, block: Block) -> dict[str, Value]:
        """Return a block's arguments."""
        names = block_arguments(self._module, self._region, block)
        found: dict[str, Value] = dict.fromkeys(names)
        arrivals = [] if self._goes_back else self._arrivals[block.label]
        by_argument = zip(*(values for _, values in arrivals), strict=False)
        for name, (value, *others) in zip(names, by_argument, strict=False):
            for (condition, _), other in zip(arrivals[1:], others, strict=True):
                value = chosen(condition, other, value)
            found[name] = value
        return found

    def leave(self, block: Block, when: Condition, values: Mapping[str, Value]) -> None:
        """Record the branches at the end of a block, with the values bound there."""
        ways = _ways_from(block)
        conditions: Sequence[Condition] = [ALWAYS if len(ways) < 2 else None] * len(ways)
        names = operand_names(block.operations[-1]) if len(ways) == 2 else []
        if names and block.operations[-1].name == "cf.cond_br":
            conditions = both_ways(values.get(names[0]))
        for (label, passed), condition in zip(ways, conditions, strict=True):
            arriving = when & condition if when is not None and condition is not None else None
            self._arrivals[label].append((arriving, [values.get(name) for name in passed]))


def _ways_from(block: Block) -> list[tuple[str, list[str]]]:
    last = block.operations[-1:]
    return successors_of(last[0]) if last and last[0].traits.is_branch else []


def both_ways(condition: Value) -> tuple[Condition, Condition]:
    """Return a condition and its negation, each None if unknown."""
    if isinstance(condition, Mask):
        with suppress(TooLarge):
            return condition, condition.inverted()
    return None, None


def chosen(condition: Condition, one: Value, other: Value) -> Value:
    """Return ``one`` where a condition holds, and ``other`` elsewhere."""
    if condition is None or condition.is_lower_bound:
        return None
    if not isinstance(one, IntegerExpr) or not isinstance(other, IntegerExpr):
        return None
    if not (is_settled(condition) and is_settled(one) and is_settled(other)):
        return OPEN
    with suppress(TooLarge):
        return where(condition, one, other)
    return None


class CountedLoop(Struct):
    """A loop that is being interpreted. ``trips`` may differ between CTAs; ``most`` is their maximum."""

    axis: GridAxis
    first: IntegerExpr
    step: IntegerExpr
    trips: AxisArray
    most: int

    @property
    def places(self) -> IntegerExpr:
        """The number of each iteration, from 0. Raises ``TooLarge``."""
        return IntegerExpr((counting(self.axis, self.most),))

    @property
    def is_even(self) -> bool:
        """True if all CTAs have equally many iterations."""
        return bool((self.trips.values == self.most).all())

    def when(self) -> Mask:
        """Return the CTAs that execute each iteration. Raises ``TooLarge``."""
        return ALWAYS if self.is_even else Mask((joined(np.less, self.places.joint(), self.trips),))


_MAX_CARRIED = 1 << 12  # loop-carried values of one loop; each has a placeholder of its own


class Changes:
    """The loop-carried values of one loop, in all its iterations; ``open`` are positions of undetermined ones."""

    def __init__(self, loop: CountedLoop, initial: Sequence[Value]) -> None:
        """Start with a placeholder for each integer among the ``initial`` values. Raises ``TooLarge``."""
        self.loop = loop
        self.initial = initial
        if len(initial) > _MAX_CARRIED:
            raise TooLarge
        self._first_symbol = loop.axis.number * _MAX_CARRIED
        self.symbols: list[Value] = [
            symbol(self._first_symbol + place) if isinstance(value, IntegerExpr) else None
            for place, value in enumerate(initial)
        ]
        self.values: list[Value] = [None] * len(initial)
        self.open: set[int] = set()

    def settle(self, passed: Sequence[Value]) -> None:
        """Determine values from what one iteration passes on, as expressions of the placeholders."""
        self.settle_slots(passed)
        waiting: list[tuple[int, IntegerExpr, int | None, IntegerExpr]] = []
        for place, (initial, value) in enumerate(zip(self.initial, passed, strict=False)):
            if not isinstance(value, IntegerExpr) or not isinstance(initial, IntegerExpr):
                continue
            source, rest = self._of_symbol(value)
            if rest is None:
                self.open.add(place)
            elif source == place:
                self.values[place] = self._growing(initial, rest)
            else:
                waiting.append((place, initial, source, rest))
        for place, initial, source, rest in waiting:
            from_where = IntegerExpr.integer(0) if source is None else self.values[source]
            if isinstance(from_where, IntegerExpr):
                with suppress(TooLarge):
                    self.values[place] = self._following(initial, from_where + rest)
            else:
                self.open.add(place)

    def settle_slots(self, passed: Sequence[Value]) -> None:
        """Determine slices of shared memory from what one iteration passes on."""
        for place, (initial, value) in enumerate(zip(self.initial, passed, strict=False)):
            if isinstance(value, SharedMemorySlice) and isinstance(initial, SharedMemorySlice):
                same = self.values[place] = same_memory(initial, value)
                if same is not None and initial.index is not None and value.index is not None and is_settled(value):
                    with suppress(TooLarge):
                        self.values[place] = replace(same, index=self._following(initial.index, value.index))

    def _of_symbol(self, value: IntegerExpr) -> tuple[int | None, IntegerExpr | None]:
        """Split a value into a placeholder of this loop and a remainder; None if it has another form."""
        source, rest = None, []
        for part in value.parts:
            mine = [axis.number - self._first_symbol for axis in part.axes if axis.is_symbol]
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
        axis = self.loop.axis
        try:
            if axis not in change.axes:
                return initial + change * self.loop.places
            joint = change.joint()
        except TooLarge:
            return None
        place = joint.axes.index(axis)
        return initial + IntegerExpr((AxisArray(joint.axes, np.cumsum(joint.values, axis=place) - joint.values),))

    def _following(self, initial: IntegerExpr, passed: IntegerExpr) -> IntegerExpr:
        """Return the initial value, then what each iteration but the last passes on."""
        numbers = self.loop.places.joint()
        each = joined(lambda value, _: value, passed.joint(), numbers)
        rolled = np.roll(each.values, 1, axis=each.axes.index(self.loop.axis))
        is_first = Mask((AxisArray(numbers.axes, numbers.values == 0),))
        return where(is_first, initial, IntegerExpr((AxisArray(each.axes, rolled),)))

    def results(self, passed: Sequence[Value]) -> list[Value]:
        """Return the values after the loop, from what each iteration passes on."""
        if self.loop.is_even:
            return [at_iteration(value, self.loop.axis, self.loop.most - 1) for value in passed]
        return [self._last(*both) for both in zip(self.initial, passed, strict=False)]

    def _last(self, initial: Value, passed: Value) -> Value:
        if not isinstance(passed, IntegerExpr) or not isinstance(initial, IntegerExpr):
            return same_memory(initial, passed)
        if not is_settled(passed):
            return OPEN
        trips = self.loop.trips
        with suppress(TooLarge):
            return where(Mask((AxisArray(trips.axes, trips.values > 0),)), passed.each(self._in_last), initial)
        return None

    def _in_last(self, part: AxisArray) -> AxisArray:
        axis, trips = self.loop.axis, self.loop.trips
        if axis not in part.axes:
            return part
        last = AxisArray(trips.axes, np.maximum(trips.values - 1, 0))
        is_last = joined(np.equal, self.loop.places.joint(), last)
        only_last = joined(np.multiply, part, is_last)
        place = only_last.axes.index(axis)
        axes = (*only_last.axes[:place], *only_last.axes[place + 1 :])
        return AxisArray(axes, only_last.values.sum(axis=place))


def same_memory(one: Value, other: Value) -> SharedMemorySlice | None:
    """Return an unknown slice of the allocation that both values belong to, or None."""
    if not isinstance(one, SharedMemorySlice) or not isinstance(other, SharedMemorySlice):
        return None
    return SharedMemorySlice(one.allocation, None) if one.allocation is other.allocation else None


def at_iteration(value: Value, axis: GridAxis, number: int) -> Value:
    """Return a value in one iteration."""
    return value and value.each(lambda part: part.at(axis, number))


def stacked(values: Sequence[Value], axis: GridAxis) -> Value:
    """Combine the values of all iterations into one value with their axis."""
    sums = [value for value in values if isinstance(value, IntegerExpr)]
    if len(sums) < len(values):
        return None
    by_axes = [{part.axes: part.values for part in value.parts} for value in sums]
    found = []
    for axes in dict.fromkeys(axes for one in by_axes for axes in one):
        of_iterations = [one.get(axes, np.zeros([1] * len(axes), np.int64)) for one in by_axes]
        shape = np.broadcast_shapes(*(one.shape for one in of_iterations))
        if len(sums) * prod(shape) > MAX_ELEMENTS:
            return None
        place = sum(other < axis for other in axes)
        together = np.stack([np.broadcast_to(one, shape) for one in of_iterations], axis=place)
        found.append(AxisArray((*axes[:place], axis, *axes[place:]), together))
    return IntegerExpr.of(*found)


class Steps:
    """The iterations of a ``scf.while``. ``results`` are the values with which each CTA leaves it."""

    def __init__(self) -> None:
        self.results: list[Value] = []
        self._given: list[Sequence[Value]] = []
        self._passed: list[Sequence[Value]] = []
        self._going = [ALWAYS]

    def take(self, given: Sequence[Value], condition: Mask, passed: Sequence[Value]) -> bool:
        """Add an evaluation of the condition's block; return True if any CTA goes on. Raises ``TooLarge``."""
        before = self._going[-1]
        self.results = [chosen(before, *both) for both in zip(passed, self.results or passed, strict=True)]
        self._given.append(given)
        goes_on = (before & condition).joint()
        if not goes_on.values.any():
            return False
        self._passed.append(passed)
        self._going.append(Mask((goes_on,)))
        return True

    def __len__(self) -> int:
        return len(self._passed)

    def rounds(self, before: GridAxis, after: GridAxis) -> Iterator[tuple[CountedLoop, list[Value]]]:
        """Yield the executions of the condition's block, then of the body, with the arguments in each round."""
        zero, one = IntegerExpr.integer(0), IntegerExpr.integer(1)
        trips = reduce(partial(joined, np.add), (going.joint() for going in self._going[1:]), constant(0))
        for axis, values, extra in ((before, self._given, 1), (after, self._passed, 0)):
            loop = CountedLoop(axis, zero, one, joined(np.add, trips, constant(extra)), len(values))
            yield loop, [stacked(value, axis) for value in zip(*values, strict=True)]
