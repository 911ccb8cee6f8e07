"""Interpreter that runs a kernel for all CTAs of a launch at once, and records the integer operands of its operations.

Loaded values are unknown, and so is everything computed from them, but for integers in memory that is known. For a
loop, it first determines how each value changes from iteration to iteration.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod

import numpy as np

from kprof_inject.analysis.interpreter.accesses import Executed, predicate_of
from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    CTA,
    NEVER,
    OPEN,
    AxisArray,
    AxisArrays,
    GridAxis,
    IntegerExpr,
    Mask,
    SharedMemorySlice,
    TooLarge,
    Value,
    counting,
    dimension,
    is_settled,
    joined,
    loop_axis,
)
from kprof_inject.analysis.interpreter.control_flow import (
    Arrivals,
    Changes,
    CountedLoop,
    Steps,
    at_iteration,
    both_ways,
    chosen,
    same_memory,
    stacked,
)
from kprof_inject.analysis.interpreter.loaded_integers import Memory, deciding_loads, loaded
from kprof_inject.analysis.interpreter.operations import (
    described,
    descriptor_in_memory,
    descriptor_of,
    float_value_of,
    value_of,
)
from kprof_inject.capture.schema import Grid
from kprof_inject.ttgir.dialect import PARTITIONS, PROGRAM_ID, WARP_SPECIALIZE
from kprof_inject.ttgir.nodes import Block, Module, Operation, Region
from kprof_inject.ttgir.ssa_values import (
    argument_names,
    argument_types,
    bound_names,
    loop_arguments,
    makers_of,
    operand_names,
    result_names,
)
from kprof_inject.ttgir.types import MISFITS, if_misfit, types_of

_MAX_DEPTH = 40
# A loop's body is interpreted two or three times to determine how its values change, and so is each loop in it. This
# bounds the total of operations, and thousands of elements of their results, to about a second.
_MAX_TAKEN = 1 << 17
_MAX_TAKEN_EACH = 32  # the same for large modules, per operation
# A loop is interpreted iteration by iteration if nothing else shows how its values change.
_MAX_STEPS = 1 << 12
_MAX_STEPPED = 1 << 15  # operations of all these iterations: about half a second


def executed(
    module: Module,
    function: Operation,
    grid: Grid,
    arguments: Sequence[int | None] = (),
    memory: Memory | None = None,
    ctas: Sequence[int] = (),
) -> list[Executed]:
    """Return all operations of a function that have no regions, in the order of the text.

    ``arguments`` are the function's, as a capture has them; empty if unknown. ``memory`` has known integers that the
    function does not change. ``ctas`` are the linear ids of the CTAs along the axis ``CTA``; all if empty.
    """
    walk = _Interpreter(module, grid, memory, ctas)
    with np.errstate(all="ignore"):  # integers of random numbers and the like overflow
        walk.function(function, arguments)
    return walk.found


_BOUNDS = re.compile(r"\s*(%[\w$.-]+) = (%[\w$.#-]+) to (%[\w$.#-]+) step (%[\w$.#-]+)")
_CARRIED = re.compile(r"\biter_args\(([^)]*)\)")
_BOUND_NAME = re.compile(r"(%[\w$.-]+) = (%[\w$.#-]+)")
_WHICH = re.compile(r"\s*([xyz])\b")
_CREATED = " -> descriptor"  # after the name of a pointer: the descriptor in the memory there


class _Interpreter:
    def __init__(self, module: Module, grid: Grid, memory: Memory | None, ctas: Sequence[int]) -> None:
        self.found: list[Executed] = []
        self._module, self._grid, self._ctas, self._memory = module, grid, ctas, memory
        self._values: dict[str, Value] = {}
        self._depth = 0
        self._taken = 0
        self._max_taken = max(_MAX_TAKEN, _MAX_TAKEN_EACH * module.text.count("\n"))
        self._has_float_indices = "arith.fpto" in module.text
        self._known_loads: frozenset[Operation] = frozenset()

    def function(self, function: Operation, arguments: Sequence[int | None]) -> None:
        if self._memory is not None:
            self._known_loads = deciding_loads(self._module, function)
        names, types = argument_names(self._module, function), argument_types(function)
        if len(arguments) == len(names):
            for name, kind, argument in zip(names, types, arguments, strict=True):
                if argument is not None and kind == "i1":
                    self._values[name] = ALWAYS if argument else NEVER
                elif argument is not None:
                    self._values[name] = IntegerExpr.integer(argument)
            for place, facts in enumerate(map(described, types)):
                if facts is not None:  # the tensor's shape and strides follow the descriptor
                    rank, element_bytes = facts
                    values = [self._values.get(name) for name in names[place : place + 1 + 2 * rank]]
                    self._values[names[place]] = descriptor_of(values, rank, element_bytes)
        if function.regions:
            self._region(function.regions[0], ALWAYS, {CTA: len(self._ctas) or prod(self._grid)})

    def _region(self, region: Region, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        if len(region.blocks) == 1:
            return self._block(region.blocks[0], when, sizes)
        arrivals = Arrivals(self._module, region, when)
        begun = len(self.found)
        for block in arrivals.blocks:
            arriving = arrivals.when(block)
            self._values |= arrivals.arguments(block)
            self._block(block, arriving, sizes)
            arrivals.leave(block, arriving, self._values)
        # The text may have a block before one that branches to it.
        self.found[begun:] = sorted(self.found[begun:], key=lambda one: one.operation.start)
        return []

    def _block(self, block: Block, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        passed: list[Value] = []
        for operation in block.operations:
            passed = self._take(operation, when, sizes)
        return passed

    def _take(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> list[Value]:
        """Interpret an operation; return its operands if it is a terminator."""
        self._taken += 1
        if operation.regions and not operation.traits.combines_elements:
            if self._depth >= _MAX_DEPTH or self._taken > self._max_taken:
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
        predicate = ALWAYS if (name := predicate_of(operation)) is None else self._values.get(name)
        has_effect = predicate if isinstance(predicate, Mask) else None
        self.found.append(Executed(operation, tuple(operands), sizes, when, has_effect))
        names, results = result_names(operation), self._results(operation, operands, when)
        self._values |= {**dict.fromkeys(names), **dict(zip(names, results, strict=False))}
        arrays = (part for result in results if isinstance(result, AxisArrays) for part in result.parts)
        self._taken += sum(part.values.size for part in arrays) // 1024
        return []

    @if_misfit(())
    def _results(self, operation: Operation, operands: Sequence[Value], when: Mask | None) -> Sequence[Value]:
        name = operation.name
        with suppress(TooLarge):
            if operation in self._known_loads and self._memory is not None:
                return [loaded(operation, operands, when, self._memory) if all(map(is_settled, operands)) else OPEN]
            if name in (PROGRAM_ID, "tt.get_num_programs"):
                found = _WHICH.match(operation.tail)
                return [self._of_grid(name, "xyz".index(found[1]))] if found else ()
            if name == "tt.split":
                last = dimension(len(types_of(operation)[0].shape) - 1)
                return [at_iteration(operands[0], last, place) for place in (0, 1)]
            if name == "ttng.tensormap_create":  # it has no result
                self._values[operand_names(operation)[0] + _CREATED] = descriptor_in_memory(operation, operands)
            if name == "ttng.reinterpret_tensor_descriptor":
                return [self._values.get(operand_names(operation)[0] + _CREATED)]
            value = value_of(operation, operands)
            return [float_value_of(operation, operands) if value is None and self._has_float_indices else value]
        return ()

    def _of_grid(self, name: str, which: int) -> IntegerExpr:
        size = self._grid[which]
        if name == "tt.get_num_programs" or size == 1:
            return IntegerExpr.integer(size if name == "tt.get_num_programs" else 0)
        ids = np.array(self._ctas, np.int64) if self._ctas else counting(CTA, prod(self._grid)).values
        programs = ids // prod(self._grid[:which]) % size
        return IntegerExpr((AxisArray((CTA,), programs),))

    def _nest(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> None:
        begun = len(self.found)
        try:
            results = _NESTS.get(operation.name, _Interpreter._unknown)(self, operation, when, sizes)
        except (TooLarge, *MISFITS):
            del self.found[begun:]
            results = self._unknown(operation, when, sizes)
        self._values |= zip(result_names(operation), results, strict=False)

    @contextmanager
    def _names(self, bound: Mapping[str, Value]) -> Iterator[None]:
        """Bind names in a nested region; they are unknown again after it."""
        around = self._values
        self._values = {**around, **bound}
        try:
            yield
        finally:
            # After the region, the memory may or may not hold the descriptor that was written inside.
            changed = {name for name in around if name.endswith(_CREATED) and self._values[name] is not around[name]}
            self._values = {**around, **dict.fromkeys(changed)}

    def _rewritten(self, loop: Operation) -> dict[str, Value]:
        # Each iteration may find another descriptor in memory.
        inside = (one for one in loop.walk() if one.name == "ttng.tensormap_create")
        return {name + _CREATED: None for one in inside for name in operand_names(one)[:1]}

    @contextmanager
    def _trial(self) -> Iterator[None]:
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
        loop = self._loop(operation, [self._values.get(name) for name in found.groups()[1:]]) if found else None
        if found is None or loop is None or (when is None and not loop.is_even):
            unknown: dict[str, Value] = dict.fromkeys(loop_arguments(self._module, operation))
            with self._trial(), self._names(unknown):
                passed_on = self._region(operation.regions[-1], None, sizes)
            carried_on = {name: same_memory(*both) for name, *both in zip(names, initial, passed_on, strict=False)}
            with self._names({**unknown, **carried_on}):
                self._region(operation.regions[-1], None, sizes)
            return [carried_on.get(name) for name in names]
        if not loop.most:
            return initial
        counter = {**self._rewritten(operation), found[1]: loop.first + loop.step * loop.places}

        def passed(values: Sequence[Value], when: Mask | None) -> list[Value]:
            with self._names({**counter, **dict(zip(names, values, strict=True))}):
                return self._region(operation.regions[-1], when, {**sizes, loop.axis: loop.most})

        changes = Changes(loop, initial)
        with self._trial():
            changes.settle(passed(changes.symbols, None))
        if changes.open and loop.most <= _MAX_STEPS:
            self._step(operation, found[1], names, changes)
        # A loop-carried slice of shared memory may depend on a value that was open.
        if any(isinstance(value, SharedMemorySlice) and value.index is None for value in changes.values):
            with self._trial():
                changes.settle_slots(passed(changes.values, None))
        return changes.results(passed(changes.values, when & loop.when() if when else None))

    def _unknown(self, operation: Operation, _: Mask | None, sizes: Mapping[GridAxis, int]) -> Sequence[Value]:
        bound = bound_names(operation)
        for region in operation.regions:
            with self._names(dict.fromkeys([*bound, *argument_names(self._module, region)])):
                self._region(region, None, sizes)
        return ()

    def _while(self, operation: Operation, when: Mask | None, sizes: Mapping[GridAxis, int]) -> Sequence[Value]:
        # The condition passes values to the body and to the results, the body to the condition's block: the two lists
        # may differ in number and type.
        before, after = operation.regions
        # The arguments of the block with the condition, and their first values; the generic form has them in a label.
        bound, operands = bound_names(operation), operand_names(operation)
        names, given = loop_arguments(self._module, operation), argument_names(self._module, after)
        initial = [self._values.get(name) for name in (operands[1::2] if bound else operands)]
        steps = self._steps(before, after, names, initial, given) if when is not None else None
        if when is None or steps is None:
            return self._unknown(operation, when, sizes)
        axes = loop_axis(before.end), loop_axis(operation.start)
        for region, its, (loop, values) in zip((before, after), (names, given), steps.rounds(*axes), strict=True):
            if not loop.most:
                continue
            in_round = None
            with suppress(TooLarge):
                in_round = when & loop.when()
            with self._names({**self._rewritten(operation), **dict(zip(its, values, strict=True))}):
                self._region(region, in_round, {**sizes, loop.axis: loop.most})
        return steps.results

    def _steps(
        self, before: Region, after: Region, names: Sequence[str], values: Sequence[Value], given: Sequence[str]
    ) -> Steps | None:
        """Interpret a ``scf.while`` iteration by iteration; None if the condition is unknown in some iteration."""
        if len(before.blocks) != 1 or len(after.blocks) != 1:
            return None
        steps = Steps()
        while len(steps) < _MAX_STEPS and self._taken < self._max_taken:
            condition, *passed = self._passed(before, dict(zip(names, values, strict=True)), None)
            if not isinstance(condition, Mask) or condition.is_lower_bound or not is_settled(condition):
                return None
            if not steps.take(values, condition, passed):
                return steps
            values = self._passed(after, dict(zip(given, passed, strict=True)), values)
        return None

    def _passed(self, region: Region, given: Mapping[str, Value], before: Sequence[Value] | None) -> list[Value]:
        """Return the operands of a block's terminator if known; those that were unknown ``before`` are not computed."""
        operations = region.blocks[0].operations
        names = operand_names(operations[-1]) if operations else []
        asked = names
        if before is not None:
            asked = [name for name, value in zip(names, before, strict=True) if value is not None]
        return self._computed(names, makers_of(operations, asked), given)

    def _computed(self, names: Sequence[str], makers: Sequence[Operation], given: Mapping[str, Value]) -> list[Value]:
        with self._trial(), self._names(given):
            for one in makers:
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
        loop, body = changes.loop, operation.regions[-1]
        if len(body.blocks) != 1:
            return
        operations = body.blocks[0].operations
        passed_names = operand_names(operations[-1]) if operations else []
        places = sorted(changes.open)
        open_names, passed = [names[place] for place in places], [passed_names[place] for place in places]
        makers = makers_of(operations, passed)
        if loop.most * sum(1 for one in makers for _ in one.walk()) > _MAX_STEPPED:
            return
        settled = {name: value for name, value in zip(names, changes.values, strict=True) if value is not None}
        rounds = [[changes.initial[place] for place in places]]
        for number in range(loop.most):
            given = {name: at_iteration(value, loop.axis, number) for name, value in settled.items()}
            given[counter] = loop.first + loop.step * IntegerExpr.integer(number)
            rounds.append(self._computed(passed, makers, given | dict(zip(open_names, rounds[-1], strict=True))))
            if any(value is None for value in rounds[-1]):
                return
        for place, values in zip(places, zip(*rounds[:-1], strict=True), strict=True):
            changes.values[place] = stacked(values, loop.axis)


_NESTS: Mapping[str, Callable[[_Interpreter, Operation, Mask | None, Mapping[GridAxis, int]], Sequence[Value]]] = {
    "scf.for": _Interpreter._for,
    "scf.if": _Interpreter._if,
    "scf.while": _Interpreter._while,
    **dict.fromkeys((WARP_SPECIALIZE, PARTITIONS), _Interpreter._partitions),
}
