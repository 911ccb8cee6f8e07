"""Goes through a kernel as all CTAs of a launch do, and tells the integers that its operations are given.

What was loaded is unknown, and so is what hangs on it; of loops, how each value changes from iteration to iteration is
found out first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    CTA,
    AxisArray,
    Descriptor,
    GridAxis,
    IntegerExpr,
    Mask,
    TooLarge,
    Value,
    counting,
    is_settled,
    joined,
    loop_axis,
    size_of,
)
from kprof_inject.analysis.interpreter.branches import Arrivals, both_ways, chosen
from kprof_inject.analysis.interpreter.descriptors import (
    described_arguments,
    descriptor_at,
    descriptor_in_memory,
    is_descriptor_at,
    made_descriptor,
)
from kprof_inject.analysis.interpreter.executed_operation import Executed, predicate_of
from kprof_inject.analysis.interpreter.integer_operations import value_of
from kprof_inject.analysis.interpreter.recurrences import (
    Changes,
    CountedLoop,
    LoopRounds,
    Steps,
    at_iteration,
    same_memory,
    stacked,
)
from kprof_inject.ttgir.dialect import PARTITIONS, WARP_SPECIALIZE
from kprof_inject.ttgir.misfits import MISFITS, if_misfit
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region
from kprof_inject.ttgir.ssa_values import (
    argument_names,
    argument_types,
    bound_names,
    makers_of,
    operand_names,
    result_names,
)

_MOST_DEPTH = 40
# A loop's body is gone through twice or three times, to find out how its values change, and so is each loop in it: how
# often in all, only this bounds. Operations, and elements of what they give in thousands: about a second, or for large
# modules so often each operation.
_MAX_TAKEN = 1 << 17
_MAX_TAKEN_EACH = 32
# A loop is gone through one by one where nothing else tells how its values change.
_MOST_STEPS = 1 << 12
# Operations of all these steps: about half a second.
_MOST_STEPPED = 1 << 15


Grid = tuple[int, int, int]


def executed(module: Module, function: Operation, grid: Grid, arguments: Sequence[int | None] = ()) -> list[Executed]:
    """All operations of a function but those that hold others, in the order of the text. ``arguments`` are its own, as
    a capture has them; empty if they are unknown."""
    walk = _Interpreter(module, grid)
    with np.errstate(all="ignore"):  # integers of random numbers and the like overflow
        walk.function(function, arguments)
    return walk.found


_BOUNDS = re.compile(r"\s*(%[\w$.-]+) = (%[\w$.#-]+) to (%[\w$.#-]+) step (%[\w$.#-]+)")
_CARRIED = re.compile(r"\biter_args\(([^)]*)\)")
_BOUND_NAME = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
_WHICH = re.compile(r"\s*([xyz])\b")


class _Interpreter:
    def __init__(self, module: Module, grid: Grid) -> None:
        self.found: list[Executed] = []
        self._module = module
        self._grid = grid
        self._values: dict[str, Value] = {}
        self._depth = 0
        self._taken = 0
        self._max_taken = max(_MAX_TAKEN, _MAX_TAKEN_EACH * module.text.count("\n"))

    def function(self, function: Operation, arguments: Sequence[int | None]) -> None:
        names = argument_names(self._module, function)
        if len(arguments) == len(names):
            for name, kind, argument in zip(names, argument_types(function), arguments, strict=True):
                if argument is not None:
                    self._values[name] = Mask.of_bit(bool(argument)) if kind == "i1" else IntegerExpr.integer(argument)
            self._describe(function, names)
        if function.regions:
            self._region(function.regions[0], Mask(), {CTA: prod(self._grid)})

    def _describe(self, function: Operation, names: Sequence[str]) -> None:
        """Behind a descriptor stand the sizes and the strides of its tensor."""
        for place, one in enumerate(described_arguments(function)):
            if one is not None and place < len(names):
                rank, element_bytes = one
                behind = [self._values.get(name) for name in names[place + 1 : place + 1 + 2 * rank]]
                sums = [value if isinstance(value, IntegerExpr) else None for value in behind]
                address = self._values.get(names[place])
                strides = tuple(size and size * IntegerExpr.integer(element_bytes) for size in sums[rank:])
                self._values[names[place]] = Descriptor(
                    address if isinstance(address, IntegerExpr) else None, tuple(sums[:rank]), strides
                )

    def _region(self, region: Region, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        """What its end passes on, if that is one block's."""
        if len(region.blocks) == 1:
            return self._block(region.blocks[0], when, sizes)
        arrivals = Arrivals(self._module, region, when)
        for block in region.blocks:
            arriving = arrivals.when(block)
            self._values |= arrivals.arguments(block)
            self._block(block, arriving, sizes)
            arrivals.leave(block, arriving, self._values)
        return []

    def _block(self, block: Block, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        """What its end passes on."""
        passed: list[Value] = []
        for operation in block.operations:
            passed = self._take(operation, when, sizes)
        return passed

    def _take(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        """Returns what a terminator passes on."""
        self._taken += 1
        if operation.regions and not operation.traits.combines_elements:
            if self._depth >= _MOST_DEPTH or self._taken > self._max_taken:
                unknown = [Executed.unknown(one) for one in operation.walk() if not one.traits.is_terminator]
                self.found += unknown
                self._taken += len(unknown)
                return []
            self._depth += 1
            self._nest(operation, when, sizes)
            self._depth -= 1
            return []
        operands = [self._values.get(name) for name in operand_names(operation)]
        if operation.traits.is_terminator:
            return operands
        self.found.append(Executed(operation, tuple(operands), sizes, when, self._predicate(operation)))
        names = result_names(operation)
        if len(names) == 1:
            self._values[names[0]] = value = self._value(operation, operands)
            self._taken += size_of(value) // 1024
        self._create(operation, operands)
        return []

    @if_misfit(None)
    def _predicate(self, operation: Operation) -> Mask | None:
        name = predicate_of(operation)
        value = ALWAYS if name is None else self._values.get(name)
        return value if isinstance(value, Mask) else None

    @if_misfit(None)
    def _value(self, operation: Operation, operands: Sequence[Value]) -> Value:
        """Return None if the value would be too large, or if the operands do not fit the operation."""
        with suppress(TooLarge):
            return self._known_value(operation, operands)
        return None

    def _known_value(self, operation: Operation, operands: Sequence[Value]) -> Value:
        if operation.name in ("tt.get_program_id", "tt.get_num_programs"):
            found = _WHICH.match(operation.tail)
            return self._of_grid(operation.name, "xyz".index(found[1])) if found else None
        if operation.name == "tt.make_tensor_descriptor":
            return made_descriptor(operation, operands)
        if operation.name == "ttng.reinterpret_tensor_descriptor":
            return self._values.get(descriptor_at(operand_names(operation)[0]))
        return value_of(operation, operands)

    def _of_grid(self, name: str, which: int) -> IntegerExpr:
        size = self._grid[which]
        if name == "tt.get_num_programs" or size == 1:
            return IntegerExpr.integer(size if name == "tt.get_num_programs" else 0)
        programs = counting(CTA, prod(self._grid)).values // prod(self._grid[:which]) % size
        return IntegerExpr((AxisArray((CTA,), programs),))

    @if_misfit(None)
    def _create(self, operation: Operation, operands: Sequence[Value]) -> None:
        """A descriptor in memory: its operation gives no value, and names dimensions from the innermost."""
        if operation.name == "ttng.tensormap_create":
            self._values[descriptor_at(operand_names(operation)[0])] = descriptor_in_memory(operation, operands)

    def _nest(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> None:
        begun = len(self.found)
        try:
            results = _NESTS.get(operation.name, _Interpreter._unknown)(self, operation, when, sizes)
        except (TooLarge, *MISFITS):
            del self.found[begun:]
            results = self._unknown(operation, when, sizes)
        for name, value in zip(result_names(operation), results, strict=False):
            self._values[name] = value

    @contextmanager
    def _names(self, bound: Mapping[str, Value]) -> Iterator[None]:
        """What is named inside is unknown behind it."""
        around = self._values
        self._values = {**around, **bound}
        try:
            yield
        finally:
            # Memory that was written inside holds another descriptor behind it, or not.
            changed = {name for name in around if is_descriptor_at(name) and self._values[name] is not around[name]}
            self._values = {**around, **dict.fromkeys(changed)}

    def _rewritten(self, loop: Operation) -> dict[str, Value]:
        """The memory in which a loop makes descriptors anew: what an iteration finds there, nobody knows."""
        inside = (one for one in loop.walk() if one.name == "ttng.tensormap_create")
        return {descriptor_at(name): None for one in inside for name in operand_names(one)[:1]}

    @contextmanager
    def _in_secret(self) -> Iterator[None]:
        """What is executed inside is only tried."""
        found, self.found = self.found, []
        try:
            yield
        finally:
            self.found = found

    def _partitions(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> Sequence[Value]:
        captured = [self._values.get(name) for name in operand_names(operation)]
        for region in operation.regions:
            names = argument_names(self._module, region)
            with self._names(dict(zip(names, captured, strict=False))):
                self._region(region, when, sizes)
        return ()

    def _if(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        names = operand_names(operation)
        condition = self._values.get(names[0]) if names else None
        passed = []
        for region, its in zip(operation.regions, both_ways(condition), strict=False):
            with self._names({}):
                passed.append(self._region(region, when & its if when and its else None, sizes))
        if len(passed) < 2 or not isinstance(condition, Mask):
            return []
        return [chosen(condition, one, other) for one, other in zip(*passed, strict=False)]

    def _for(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        found = _BOUNDS.match(operation.tail)
        carried = _CARRIED.search(operation.tail)
        pairs = _BOUND_NAME.findall(carried[1]) if carried else []
        names = [name for name, _ in pairs]
        initial = [self._values.get(value) for _, value in pairs]
        body = operation.regions[-1]
        loop = self._loop(operation, [self._values.get(name) for name in found.groups()[1:]]) if found else None
        if found is None or loop is None or (when is None and not loop.is_even):
            unknown: dict[str, Value] = dict.fromkeys([*names, *(found.groups()[:1] if found else ())])
            with self._in_secret(), self._names(unknown):
                passed = self._region(body, None, sizes)
            carried_on = {name: same_memory(*both) for name, *both in zip(names, initial, passed, strict=False)}
            with self._names({**unknown, **carried_on}):
                self._region(body, None, sizes)
            return [carried_on.get(name) for name in names]
        if not loop.most:
            return initial
        inside = {**sizes, loop.axis: loop.most}
        counter = {**self._rewritten(operation), found[1]: loop.first + loop.step * loop.places}
        changes = Changes(loop, initial)
        with self._in_secret(), self._names({**counter, **dict(zip(names, changes.symbols, strict=True))}):
            changes.settle(self._region(body, None, inside))
        if changes.open and loop.most <= _MOST_STEPS:
            self._step(operation, found[1], names, changes)
        if changes.has_open_slots:
            with self._in_secret(), self._names({**counter, **dict(zip(names, changes.values, strict=True))}):
                changes.settle_slots(self._region(body, None, inside))
        with self._names({**counter, **dict(zip(names, changes.values, strict=True))}):
            passed = self._region(body, when & loop.when() if when else None, inside)
        return changes.results(passed)

    def _unknown(self, operation: Operation, _: Mask | None, sizes: Mapping[GridAxis, int]) -> Sequence[Value]:
        """Nobody knows whether its regions are executed, or with what."""
        bound = bound_names(operation)
        for region in operation.regions:
            with self._names(dict.fromkeys([*bound, *argument_names(self._module, region)])):
                self._region(region, None, sizes)
        return ()

    def _while(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> Sequence[Value]:
        """Go through a loop with a condition. The condition passes values to the body and to the loop's results, the
        body to the block of the condition: these may differ in number and type."""
        before, after = operation.regions
        names, initial = self._begins_with(operation)
        given = argument_names(self._module, after)
        steps = self._steps(before, after, names, initial, given) if when is not None else None
        if steps is None:
            return self._unknown(operation, when, sizes)
        self._goes_round(operation, before, names, steps.checks(loop_axis(before.end)), when, sizes)
        self._goes_round(operation, after, given, steps.inside(loop_axis(operation.start)), when, sizes)
        return steps.results

    def _begins_with(self, loop: Operation) -> tuple[Sequence[str], Sequence[Value]]:
        """Return the arguments of the block with a loop's condition, and their first values."""
        names = bound_names(loop)
        operands = operand_names(loop)
        if names:
            operands = operands[1::2]
        else:  # the generic form has them in a label
            names = argument_names(self._module, loop.regions[0])
        return names, [self._values.get(name) for name in operands]

    def _goes_round(
        self,
        operation: Operation,
        region: Region,
        names: Sequence[str],
        rounds: LoopRounds,
        when: Mask | None,
        sizes: Mapping[GridAxis, int],
    ) -> None:
        """One of the two regions of a loop with a condition."""
        loop, in_round = rounds.loop, None
        if not loop.most:
            return
        with suppress(TooLarge):
            in_round = when & loop.when() if when else None
        with self._names({**self._rewritten(operation), **dict(zip(names, rounds.values, strict=True))}):
            self._region(region, in_round, {**sizes, loop.axis: loop.most})

    def _steps(
        self, before: Region, after: Region, names: Sequence[str], values: Sequence[Value], given: Sequence[str]
    ) -> Steps | None:
        """Go through a loop with a condition one by one, from the first ``values`` on; None if that is not known of all
        iterations. Raises ``TooLarge``, and ``MISFITS`` if the regions pass on more or less than each other takes."""
        if len(before.blocks) != 1 or len(after.blocks) != 1:
            return None
        steps = Steps()
        while len(steps) < _MOST_STEPS and self._taken < self._max_taken:
            condition, *passed = self._passed(before, dict(zip(names, values, strict=True)), None)
            if not isinstance(condition, Mask) or condition.is_least or not is_settled(condition):
                return None
            if not steps.take(values, condition, passed):
                return steps
            values = self._passed(after, dict(zip(given, passed, strict=True)), values)
        return None

    def _passed(self, region: Region, given: Mapping[str, Value], before: Sequence[Value] | None) -> list[Value]:
        """What the end of a block passes on, as far as scalars and addresses make it. Where nothing was known
        ``before``, nothing is asked. Raises ``ValueError`` if it passes on another number than it was."""
        operations = region.blocks[0].operations
        names = operand_names(operations[-1]) if operations else []
        asked = names
        if before is not None:
            asked = [name for name, value in zip(names, before, strict=True) if value is not None]
        with self._in_secret(), self._names(given):
            for one in makers_of(operations, asked):
                self._take(one, None, {})
            return [self._values.get(name) for name in names]

    def _loop(self, operation: Operation, bounds: Sequence[Value]) -> CountedLoop | None:
        first, last, step = bounds
        if not (isinstance(first, IntegerExpr) and isinstance(last, IntegerExpr) and isinstance(step, IntegerExpr)):
            return None
        if not all(map(is_settled, bounds)) or step.bounds()[0] <= 0:
            return None
        distance = (last + -first).joint()
        trips = joined(lambda distance, step: np.maximum(-(-distance // step), 0), distance, step.joint())
        return CountedLoop(loop_axis(operation.start), first, step, trips, int(trips.values.max(initial=0)))

    def _step(self, operation: Operation, counter: str, names: Sequence[str], changes: Changes) -> None:
        """Go through a loop one by one for what could not be settled, as far as that is needed."""
        loop, body = changes.loop, operation.regions[-1]
        if len(body.blocks) != 1:
            return
        operations = body.blocks[0].operations
        passed_names = operand_names(operations[-1]) if operations else []
        open_now = sorted(changes.open)
        needed = makers_of(operations, [passed_names[place] for place in open_now if place < len(passed_names)])
        if loop.most * sum(1 for one in needed for _ in one.walk()) > _MOST_STEPPED:
            return
        current = {names[place]: changes.initial[place] for place in open_now}
        found: dict[int, list[Value]] = {place: [] for place in open_now}
        settled = {name: value for place, name in enumerate(names) if (value := changes.values[place]) is not None}
        for number in range(loop.most):
            for place in open_now:
                found[place].append(current[names[place]])
            at = {name: at_iteration(value, loop.axis, number) for name, value in settled.items()}
            at[counter] = loop.first + loop.step * IntegerExpr.integer(number)
            with self._in_secret(), self._names({**at, **current}):
                for one in needed:
                    self._take(one, None, {})
                current = {names[place]: self._values.get(passed_names[place]) for place in open_now}
            if any(value is None for value in current.values()):
                return
        for place, values in found.items():
            changes.values[place] = stacked(values, loop.axis)


_NESTS: Mapping[str, Callable[[_Interpreter, Operation, Mask | None, Mapping[GridAxis, int]], Sequence[Value]]] = {
    "scf.for": _Interpreter._for,
    "scf.if": _Interpreter._if,
    "scf.while": _Interpreter._while,
    **dict.fromkeys((WARP_SPECIALIZE, PARTITIONS), _Interpreter._partitions),
}
