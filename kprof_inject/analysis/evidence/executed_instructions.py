"""Compute how often a launch executes each basic block of its machine code, without a GPU.

The interpreter counts the executions of TTGIR operations. Four facts relate them to blocks.

* Flow (``block_flow``): a warp that enters a block also leaves it.
* Anchors: instructions that the compiler neither removes nor merges, such as barriers and stores. If a block has ``c``
  copies of an operation's anchor, each execution of the block executes the operation ``c`` times.
* Unrolled loops: the copies in the machine loop and in the blocks for remaining iterations together execute the
  iterations of the TTGIR loop. ``_UnrolledLoop`` says how often each block is executed.
* Counters: a machine loop adds its iterations to a register (``loop_counters``).

What these equations do not determine is unknown, and everything is if they contradict each other. Loops that are fully
unrolled or predicated are no loops of the machine code, and need no rule.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import gcd, prod

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.evidence.block_flow import BlockFlow, Contradiction, Equations, Terms, added
from kprof_inject.analysis.evidence.loop_counters import loop_counts
from kprof_inject.analysis.interpreter.accesses import Executed
from kprof_inject.analysis.interpreter.axis_arrays import CTA, Mask, TooLarge, loop_axis
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.structure.tensor_layouts import blocked_of, layout_of
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.machine_code.control_flow import Block, blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of
from kprof_inject.machine_code.units import bytes_of_thread as accessed_bytes
from kprof_inject.ttgir.dialect import WARP_SPECIALIZE, Traits
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import bits_of, types_of


class BlockExecutions(Struct, frozen=True):
    """Number of times that the warps of a launch execute each block of its machine code, in all CTAs together.

    ``known`` is None for a block of which that is unknown; ``most`` has an upper bound, None if there is none.
    """

    known: list[int | None]
    most: list[int | None]

    @classmethod
    def unknown(cls, count: int) -> BlockExecutions:
        """Return unknown executions of ``count`` blocks."""
        return cls([None] * count, [None] * count)


@lru_cache(maxsize=KERNELS_CACHED)
def block_executions(function: MachineFunction, ran: ExecutedKernel, warps: int) -> BlockExecutions:
    """Return how often a launch executes each block of ``blocks_of(function)``.

    ``function`` is the kernel's machine code by the lines of ``ran.module``, ``warps`` the number of warps of a CTA.
    Functions that are called without inlining are unknown. So is everything in a kernel with ``ttg.warp_specialize``,
    where the warps of each partition execute only their own code.
    """
    blocks = blocks_of(function)
    ctas = next((one.executed.sizes[CTA] for one in ran.operations if CTA in one.executed.sizes), None)
    if ctas is None or any(one.name == WARP_SPECIALIZE for one in ran.module.walk()):
        return BlockExecutions.unknown(len(blocks))
    # The condition of these is a scalar.
    uniform = [
        one.start
        for one in ran.module.walk()
        if one.traits.is_loop or one.traits.regions == "branch" or one.traits.is_branch or one.traits.is_terminator
    ]
    flow = BlockFlow(function, blocks, set(ran.module.line_numbers(uniform)))
    if not flow.is_complete:
        return BlockExecutions.unknown(len(blocks))
    all_warps = warps * int(ran.module.attribute("ttg.num-ctas") or 1)
    equations = flow.conservation(ctas * all_warps)
    try:
        for anchor in _anchors(function, blocks, flow, ran, warps):
            anchor.add_to(equations, flow, all_warps)
        for counted, copies in loop_counts(function, blocks, ran):
            if flow.unclear.isdisjoint(copies):
                _Anchor(counted, counted.times or 0, copies).add_if_possible(equations, flow, all_warps)
        known = flow.executions(equations)
    except Contradiction:
        return BlockExecutions.unknown(len(blocks))
    return BlockExecutions(known, flow.max_executions(known, ctas * all_warps))


class _Anchor(Struct, frozen=True):
    """An operation, the number of times that all CTAs execute it, and the number of its copies in each block."""

    counted: CountedOperation
    times: int
    copies: Mapping[int, int]

    def add_to(self, equations: Equations, flow: BlockFlow, warps: int) -> None:
        """Add the equations that follow. Raises ``Contradiction``."""
        solutions = self._solutions(flow, warps)
        if solutions == []:
            # There are other copies, which have no such instruction.
            return
        equations.add(*self._total(flow, warps))
        any(map(equations.add_if_possible, solutions or ()))

    def add_if_possible(self, equations: Equations, flow: BlockFlow, warps: int) -> None:
        """Add them unless others exclude them."""
        solutions = self._solutions(flow, warps)
        if solutions != [] and equations.add_if_possible([self._total(flow, warps)]):
            any(map(equations.add_if_possible, solutions or ()))

    def _total(self, flow: BlockFlow, warps: int) -> tuple[Terms, int]:
        """Return the equation that all copies together are executed as often as the operation."""
        total: dict[int, Fraction] = {}
        for block, count in self.copies.items():
            total = added(total, flow.entering(block), Fraction(count))
        return total, self.times * warps

    def _solutions(self, flow: BlockFlow, warps: int) -> list[list[tuple[Terms, int]]] | None:
        """Return the equations of each way to execute an unrolled loop, the most likely one first."""
        loop, trips = _UnrolledLoop.of(self.copies, flow.depth), _trips(self.counted, self.times)
        if loop is None or not trips:
            return None
        return [
            [
                *((flow.entering(block), warps * executions) for block, executions in blocks.items()),
                (flow.entering_loop_of(loop.main), warps * entries),
            ]
            for blocks, entries in loop.solutions(trips)
        ]


def _trips(counted: CountedOperation, times: int) -> dict[int, int] | None:
    """Count the entries of all CTAs into the loop around an operation, by the number of its iterations."""
    loop = next(counted.operation.owners(), None)
    executed = counted.executed
    if loop is None or not loop.traits.is_loop or executed.when is None or executed.when.is_lower_bound:
        return None
    axis = loop_axis(loop.start)
    if axis not in executed.sizes:
        return None
    try:
        joint = executed.when.joint()
    except TooLarge:
        return None
    places = {name: place for place, name in enumerate(joint.axes) if joint.values.shape[place] > 1}
    trips = joint.values.astype(np.int64)
    trips = trips.sum(axis=places[axis]) if axis in places else trips * executed.sizes[axis]
    each = prod(size for name, size in executed.sizes.items() if name not in places and name != axis)
    found = {int(trip): int(count) * each for trip, count in zip(*np.unique(trips, return_counts=True), strict=True)}
    found.pop(0, None)
    # Recorded iterations may be others.
    return found if sum(trip * count for trip, count in found.items()) == times else None


class _UnrolledLoop(Struct, frozen=True):
    """The copies of a TTGIR loop's body: ``unrolled`` of them in the block ``main`` of a machine loop.

    Others are outside of the machine loop (``once``), so that each is executed at most once when the TTGIR loop is, or
    in smaller machine loops (``again``). ptxas has, say, a loop of four iterations, then a block for two, and a loop or
    a block of one for the rest. It may also have a first iteration before the loop. A loop that is not unrolled has one
    copy.
    """

    main: int
    unrolled: int
    once: Mapping[int, int]
    again: Mapping[int, int]

    @classmethod
    def of(cls, copies: Mapping[int, int], depth: Callable[[int], int]) -> _UnrolledLoop | None:
        """Return the loop; None if the copies are not in machine loops of one depth and in blocks outside of them."""
        main = max(copies, key=lambda block: (depth(block), copies[block]))
        others = {block: count for block, count in copies.items() if block != main}
        once = {block: count for block, count in others.items() if depth(block) == depth(main) - 1}
        again = {block: count for block, count in others.items() if depth(block) == depth(main)}
        is_known = depth(main) > 0 and len(once) + len(again) == len(others)
        if not is_known or max(again.values(), default=0) >= copies[main] or sum(once.values()) >= copies[main]:
            return None
        return cls(main, copies[main], once, again)

    def solutions(self, trips: Mapping[int, int]) -> list[tuple[Counter[int], int]]:
        """Return possible execution counts of the blocks and entries of the machine loop, the most likely first.

        ``trips`` has the executions of the TTGIR loop by their number of iterations. What remains of them is executed
        by the largest blocks that fit. In each solution but the first, a block is executed before all others.
        """
        return [one for first in (None, *self.once) if (one := self._with_first(first, trips)) is not None]

    def _with_first(self, first: int | None, trips: Mapping[int, int]) -> tuple[Counter[int], int] | None:
        before = self.once[first] if first is not None else 0
        total, entries = Counter[int](), 0
        for iterations, times in trips.items():
            rounds, rest = divmod(iterations - before, self.unrolled)
            if rounds < 0:
                return None
            total[self.main] += times * rounds
            entries += times if rounds else 0
            if first is not None:
                total[first] += times
            for block, count in sorted({**self.once, **self.again}.items(), key=lambda item: -item[1]):
                if block != first:
                    executed = rest // count if block in self.again else min(rest // count, 1)
                    total[block] += times * executed
                    rest -= executed * count
            if rest:
                return None
        return total, entries


# Instructions that mark an execution of an operation. Each table has the operations that an instruction may be of, as
# ptxas gives some instructions the line of another operation. Those of the second table may leave a loop in which all
# iterations would execute the same.
_FIXED: Mapping[str, Callable[[Traits], bool]] = {
    **dict.fromkeys(("STG", "ST", "ATOMG", "ATOM", "REDG", "RED"), lambda traits: traits.writes_global),
    **dict.fromkeys(("LDGSTS", "LDGDEPBAR", "UTMALDG", "UTMASTG"), lambda traits: traits.starts_async),
    **dict.fromkeys(("BAR", "STS", "STSM"), lambda _: True),
}
_MOVABLE: Mapping[str, Callable[[Traits], bool]] = {
    **dict.fromkeys(("LDG", "LD"), lambda traits: traits.reads_global),
    **dict.fromkeys(("LDS", "LDSM", "SHFL", "MUFU"), lambda _: True),
}
_Instructions = Mapping[int, list[Instruction]]
"""Instructions of one line and name, by block."""


def _anchors(
    function: MachineFunction, blocks: Sequence[Block], flow: BlockFlow, ran: ExecutedKernel, warps: int
) -> Iterator[_Anchor]:
    operations = [*ran.operations, *_skipped(ran)]
    lines = Counter(one.line for one in operations)
    counted_at = {one.line: one for one in operations if lines[one.line] == 1}
    for (line, name), where in _instructions(function, blocks).items():
        counted = counted_at.get(line)
        if counted is None or counted.times is None or counted.executed.is_predicated:
            continue
        if not _marks(name, where, counted.operation.traits) or not flow.reached.issuperset(where):
            continue
        placed = _placed(where, flow, line)
        copies = placed and _copies(placed, _bytes_of_thread(counted.operation, name, ran.module, warps), flow)
        if copies and not _has_moved(name, copies, counted.operation, flow):
            yield _Anchor(counted, counted.times, copies)


def _skipped(ran: ExecutedKernel) -> Iterator[CountedOperation]:
    """Yield the operations of loops that no CTA enters: the interpreter does not return them."""
    found = {one.operation for one in ran.operations}
    for loop in (one for one in ran.module.walk() if one.traits.is_loop):
        inside = [one for one in loop.walk() if not (one.regions or one.traits.is_terminator)]
        if found.isdisjoint(inside):
            found.update(inside)
            for line, one in zip(ran.module.line_numbers([one.start for one in inside]), inside, strict=True):
                yield CountedOperation(line, Executed(one, (), {}, Mask.of_bit(False)), None, 0)


def _instructions(function: MachineFunction, blocks: Sequence[Block]) -> dict[tuple[int, str], _Instructions]:
    """Return the instructions by line and name, without those that are never executed."""
    found: defaultdict[tuple[int, str], defaultdict[int, list[Instruction]]] = defaultdict(lambda: defaultdict(list))
    for number, block in enumerate(blocks):
        for one in function.instructions[block.first : block.end]:
            if one.predicate != NEVER:
                found[one.line, one.operation][number].append(one)
    return dict(found)


def _marks(name: str, where: _Instructions, traits: Traits) -> bool:
    one = next(iter(where.values()))[0]
    if pipeline_of(one) is Pipeline.TENSOR:
        return traits.is_dot
    is_of = _FIXED.get(name) or _MOVABLE.get(name)
    return is_of is not None and is_of(traits)


def _placed(where: _Instructions, flow: BlockFlow, line: int) -> _Instructions | None:
    """Return the instructions by clear block; None if some belong to none."""
    placed: defaultdict[int, list[Instruction]] = defaultdict(list)
    for block, found in where.items():
        home = flow.home_of(block, line)
        if home is None:
            return None
        placed[home] += found
    return dict(placed)


def _copies(where: _Instructions, bytes_of_thread: int | None, flow: BlockFlow) -> dict[int, int] | None:
    """Return the number of an operation's copies in each block that has any; None if it is ambiguous.

    Accesses of known size are counted by bytes. Otherwise, the numbers of instructions must have no common divisor, so
    that a copy has one. A copy of several may be in several blocks, but not inside of a loop and outside.
    """
    if bytes_of_thread:
        sizes = {block: sum(map(accessed_bytes, found)) for block, found in where.items()}
        is_whole = all(size % bytes_of_thread == 0 for size in sizes.values())
        return {block: size // bytes_of_thread for block, size in sizes.items()} if is_whole else None
    counts = {block: len(found) for block, found in where.items()}
    is_apart = len(set(map(flow.depth, counts))) == len(counts)
    return counts if is_apart and gcd(*counts.values()) == 1 else None


# Instructions that access the bytes of an operation.
_SIZED = {"tt.load": "LDG", "tt.store": "STG", "ttg.async_copy_global_to_local": "LDGSTS"}


def _bytes_of_thread(operation: Operation, name: str, module: Module, warps: int) -> int | None:
    """Return how many bytes each thread accesses with instructions of a name in an execution.

    It is known for a scalar, and for a tensor of which no two threads have the same elements.
    """
    pointers = next((printed for printed in types_of(operation) if printed.is_pointer), None)
    if pointers is None or _SIZED.get(operation.name) != name:
        return None
    element_bytes = bits_of(pointers.pointee) // 8
    if not pointers.shape:
        return element_bytes
    layout = blocked_of(layout_of(pointers, module.aliases))
    if layout is None or len(layout.order) != len(pointers.shape) or prod(layout.warps) != warps:
        return None
    tiles = map(prod, zip(layout.elements, layout.lanes, layout.warps, strict=True))
    if any(size % tile for size, tile in zip(pointers.shape, tiles, strict=True)):
        return None
    return element_bytes * pointers.elements // (prod(layout.lanes) * warps)


def _has_moved(name: str, copies: Mapping[int, int], operation: Operation, flow: BlockFlow) -> bool:
    """Return whether the instructions of an operation may have moved into a loop, or out of one."""
    machine_loops = max(map(flow.depth, copies))
    loops = sum(owner.traits.is_loop for owner in operation.owners())
    # Several copies are those of an unrolled loop.
    is_single = set(copies.values()) == {1}
    return machine_loops > loops or (machine_loops < loops and name in _MOVABLE and is_single)
