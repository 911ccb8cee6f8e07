"""Lower bounds of how often a launch executes each basic block of its machine code, without a GPU.

The entry is executed once by each warp. An operation whose executions the interpreter counts shows how often the block
with its instructions is executed (``_anchors``); so does a register that counts iterations (``_counters``). ptxas
unrolls loops: a block that has ``c`` copies of an operation is executed for every ``c`` executions, without those that
copies in other blocks make, before the loop and for the rest of its iterations. As an operation may have several
instructions, ``c`` is the greatest common divisor of the numbers of all of them.

A block is executed at least as often as another one of the loop around it if no way through the loop with that one
leaves it out. If only some ways from a branch lead to a block without such an operation, its executions are unknown.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from math import gcd, prod

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.interpreter.axis_arrays import CTA, TooLarge, loop_axis
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.machine_code.control_flow import MachineLoop, blocks_of, loops_of, reached
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, bytes_of_thread, pipeline_of
from kprof_inject.ttgir.dialect import WARP_SPECIALIZE
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import constant_of, definition_of, operand_names
from kprof_inject.ttgir.types import bits_of, if_misfit, types_of


class BlockExecutions(Struct, frozen=True):
    """Number of times that the warps of a launch execute each block of its machine code, in all CTAs together."""

    known: list[int | None]  # lower bounds
    possible: list[int | None]
    """The same, but for an unknown block, how often warps execute others of the loop around it."""


@lru_cache(maxsize=KERNELS_CACHED)
def block_executions(function: MachineFunction, ran: ExecutedKernel, warps: int) -> BlockExecutions:
    """Return the executions of each block of ``blocks_of(function)``, which has the lines of ``ran.module``.

    ``warps`` are those of a CTA. Functions that are called without inlining are unknown, and so is a kernel with
    ``ttg.warp_specialize``, where the warps of each partition execute only their own code.
    """
    ways = _Ways(function)
    blocks = len(blocks_of(function))
    ctas = next((one.executed.sizes[CTA] for one in ran.operations if CTA in one.executed.sizes), None)
    if ctas is None or not ways.lead_out or any(one.name == WARP_SPECIALIZE for one in ran.module.walk()):
        return BlockExecutions([None] * blocks, [None] * blocks)
    warps_of_ctas = warps * int(ran.module.attribute("ttg.num-ctas") or 1)
    has_calls = any(one.operation == "CALL" for one in function.instructions)
    known = [None if has_calls or number in ways.whole.blocks else 0 for number in range(blocks)]
    for point, loop, times in ((0, ways.whole, ctas), *_points(function, ran, warps, ways)):
        for number in loop.blocks:
            if times and ways.go_together(number, point, loop):
                known[number] = max(known[number] or 0, times * warps_of_ctas)
    most: Counter[MachineLoop] = Counter()
    for number in ways.whole.blocks:
        loop = ways.around(number)[0]
        most[loop] = max(most[loop], known[number] or 0)
    possible = known.copy()
    for number, count in enumerate(known):
        if count is None:
            possible[number] = next((most[loop] for loop in (*ways.around(number), ways.whole) if most[loop]), None)
    return BlockExecutions(known, possible)


_LEAVES = frozenset(("EXIT", "RET"))


class _Ways:
    """The ways through a function's blocks. ``whole`` has all blocks that are reached, as if it were a loop."""

    def __init__(self, function: MachineFunction) -> None:
        self._blocks = blocks_of(function)
        self._leaving = {
            number
            for number, block in enumerate(self._blocks)
            if not block.successors or function.instructions[block.end - 1].operation in _LEAVES
        }
        self.whole = MachineLoop(0, frozenset(reached([0], lambda number: self._blocks[number].successors)))
        self.lead_out = not self.whole.blocks.isdisjoint(self._leaving)
        self._loops = [*loops_of(self._blocks)[::-1], self.whole]

    def around(self, block: int) -> list[MachineLoop]:
        """Return the loops around a block that is reached, the innermost first, and the whole function."""
        return [loop for loop in self._loops if block in loop.blocks]

    def depth(self, block: int) -> int:
        return len(self.around(block)) - 1

    def leave_out(self, block: int, start: int, ends: Collection[int], loop: MachineLoop) -> bool:
        """Return True if a path from ``start`` to any of ``ends``, in one iteration of a loop, leaves out a block."""

        def inside(number: int) -> Iterator[int]:
            return (one for one in self._blocks[number].successors if one in loop.blocks and one != loop.header)

        return not reached([start], inside, {block}).isdisjoint(ends)

    def _ends(self, loop: MachineLoop) -> tuple[list[int], list[int]]:
        """Return the blocks from which a loop's next iteration begins, and those from which a way leads out of it."""
        after = {number: self._blocks[number].successors for number in loop.blocks}
        latches = [number for number in after if loop is not self.whole and loop.header in after[number]]
        exits = [number for number in after if number in self._leaving or not loop.blocks.issuperset(after[number])]
        return latches, exits

    def go_together(self, block: int, point: int, loop: MachineLoop) -> bool:
        """Return True if each iteration of a loop that executes ``point`` executes the block, too."""
        if not self.leave_out(block, loop.header, [point], loop):
            return True
        latches, exits = self._ends(loop)
        return not self.leave_out(block, point, latches + exits, loop)

    def all_execute(self, block: int) -> bool:
        """Return True if each iteration of the loop around a block executes it, if another one follows."""
        loop = self.around(block)[0]
        latches, exits = self._ends(loop)
        return not self.leave_out(block, loop.header, latches or exits, loop)


class _Copies(Struct, frozen=True):
    """A counted operation of which a block has ``copies``, and ``others`` some, in units of those."""

    counted: CountedOperation
    block: int
    copies: int
    others: Mapping[int, float]
    is_certain: bool  # else the compiler may have merged more copies


def _points(
    function: MachineFunction, ran: ExecutedKernel, warps: int, ways: _Ways
) -> Iterator[tuple[int, MachineLoop, int]]:
    """Yield blocks with the loop around them, and a lower bound of all CTAs' executions."""
    groups: defaultdict[tuple[int, int], list[_Copies]] = defaultdict(list)
    for one in (*_anchors(function, ran, warps, ways), *_counters(function, ran, ways)):
        groups[one.block, one.counted.times or 0].append(one)
    for (block, times), found in groups.items():
        best = [one for one in found if one.is_certain] or found
        copies = gcd(*(one.copies for one in best))
        others = {number: share for one in best for number, share in one.others.items()}
        depth = ways.depth(block)
        trips = _trips(best[0].counted, times) if _loops_around(best[0].counted) == depth else None
        if not others:
            yield block, ways.around(block)[0], times // copies
        elif not trips or max(others.values()) >= 1 or any(ways.depth(one) not in (depth, depth - 1) for one in others):
            continue
        # Iterations before all others.
        first = sum(copies * others[one] for one in others if not ways.leave_out(one, 0, [block], ways.whole))
        rounds = [(int(max(trip - first, 0) // copies), entries) for trip, entries in (trips or {}).items()]
        loop, *outside = ways.around(block)
        yield block, loop, sum(count * entries for count, entries in rounds)
        if outside:
            yield loop.header, outside[0], sum(entries for count, entries in rounds if count)


# Instructions that the compiler neither removes nor merges, with a trait of their operation, as ptxas gives some the
# line of another one. It may move those of the second table out of loops if all iterations would execute the same.
_DOT = "dot"
_ANY = ""
_FIXED = {
    _DOT: "is_dot",
    **dict.fromkeys(("STG", "ST", "ATOMG", "ATOM", "REDG", "RED"), "writes_global"),
    **dict.fromkeys(("LDGSTS", "LDGDEPBAR", "UTMALDG", "UTMASTG"), "starts_async"),
    **dict.fromkeys(("BAR", "STS", "STSM"), _ANY),
}
_MOVABLE = {
    **dict.fromkeys(("LDG", "LD"), "reads_global"),
    **dict.fromkeys(("LDS", "LDSM", "SHFL", "MUFU"), _ANY),
}
# All warps execute these; others may be left out by a warp that masks leave nothing to do.
_OF_ALL_WARPS = {_DOT, "BAR"}
# Instructions that access the bytes of an operation.
_SIZED = {"tt.load": "LDG", "tt.store": "STG", "ttg.async_copy_global_to_local": "LDGSTS"}
_LANES = 32


def _anchors(function: MachineFunction, ran: ExecutedKernel, warps: int, ways: _Ways) -> Iterator[_Copies]:
    """Yield the operations whose instructions show how often a block is executed."""
    lines = Counter(one.line for one in ran.operations)
    counted_at = {one.line: one for one in ran.operations if lines[one.line] == 1 and not one.executed.is_predicated}
    instructions: defaultdict[tuple[int, str], defaultdict[int, list[Instruction]]]
    instructions = defaultdict(lambda: defaultdict(list))
    for number, block in enumerate(blocks_of(function)):
        for one in function.instructions[block.first : block.end]:
            name = _DOT if pipeline_of(one) is Pipeline.TENSOR else one.operation
            if one.predicate != NEVER and (name in _FIXED or name in _MOVABLE):
                instructions[one.line, name][number].append(one)
    for (line, name), where in instructions.items():
        counted = counted_at.get(line)
        if counted is None or not counted.times or not ways.whole.blocks.issuperset(where):
            continue
        trait = {**_FIXED, **_MOVABLE}[name]
        if trait and not getattr(counted.operation.traits, trait):
            continue
        copies = {block: len(found) for block, found in where.items()}
        if _SIZED.get(counted.operation.name) == name:
            each = _min_bytes_of_thread(counted.operation, warps)
            sizes = {block: sum(map(bytes_of_thread, found)) for block, found in where.items()}
            if each and all(size % each == 0 for size in sizes.values()):
                copies = {block: size // each for block, size in sizes.items()}
        main = max(copies, key=lambda block: (ways.depth(block), copies[block]))
        outside = _loops_around(counted) - ways.depth(main)
        has_moved = outside < 0 or (outside > 0 and name in _MOVABLE and copies[main] == 1)
        if not has_moved and (name in _OF_ALL_WARPS or ways.all_execute(main)):
            others = {block: count / copies[main] for block, count in copies.items() if block != main}
            yield _Copies(counted, main, copies[main], others, name in _FIXED)


def _loops_around(counted: CountedOperation) -> int:
    return sum(owner.traits.is_loop for owner in counted.operation.owners())


@if_misfit(None)
def _min_bytes_of_thread(operation: Operation, warps: int) -> int | None:
    """Return the bytes that each thread accesses in an execution, unless several access the same."""
    pointers = next((printed for printed in types_of(operation) if printed.is_pointer), None)
    if pointers is None:
        return None
    element_bytes = bits_of(pointers.pointee) // 8
    return element_bytes * max(pointers.elements // (_LANES * warps) if pointers.shape else 1, 1)


_LOOP = "scf.for"
_ADDITIONS = frozenset(("IADD3", "UIADD3", "VIADD"))
_COMPARISONS = frozenset(("ISETP", "UISETP"))
# ``UR4, UR4, -0x1, URZ``, or ``R2, P1, R2, 0xfffffffc, RZ`` with the carry.
_STEP = re.compile(r"(?P<register>U?R\d+), (?:U?P\d+, )?(?P=register), (?P<added>-?0x[0-9a-f]+)(?:, U?RZ)?$")
_WORD = 1 << 32


def _counters(function: MachineFunction, ran: ExecutedKernel, ways: _Ways) -> Iterator[_Copies]:
    """Yield an operation of each TTGIR loop whose iterations blocks count; a loop with loops in it is not unrolled.

    Such a block ends with the branch to the next iteration, which has the loop's line.
    """
    inside: dict[Operation, CountedOperation] = {}
    for one in ran.operations:
        owner = next(one.operation.owners(), None)
        if owner is not None and owner.name == _LOOP and one.times and not one.executed.is_predicated:
            inside.setdefault(owner, one)
    loop_at = dict(zip(ran.module.line_numbers([loop.start for loop in inside]), inside, strict=True))
    found: defaultdict[Operation, dict[int, int]] = defaultdict(dict)
    for number, block in enumerate(blocks_of(function)):
        code = function.instructions[block.first : block.end]
        loop = loop_at.get(code[-1].line)
        if loop is not None and ways.depth(number) > 0 and ways.around(number)[0].header in block.successors:
            copies = _counted_by(code, loop)
            if copies == 1 or (copies and not any(one.traits.is_loop for one in loop.walk() if one is not loop)):
                found[loop][number] = copies
    for loop, copies_in in found.items():
        main = max(copies_in, key=lambda number: copies_in[number])
        others = {number: copies / copies_in[main] for number, copies in copies_in.items() if number != main}
        yield _Copies(inside[loop], main, copies_in[main], others, False)


def _counted_by(block: Sequence[Instruction], loop: Operation) -> int:
    """Return the number of a loop's iterations that a block counts; 0 if it has no counter, or several."""
    compared = " ".join(one.operands for one in block if one.operation in _COMPARISONS)
    steps = [
        _STEP.match(one.operands)
        for one in block
        if one.line == block[-1].line and one.operation in _ADDITIONS and not one.predicate
    ]
    added = [int(step["added"], 16) for step in steps if step and re.search(rf"\b{step['register']}\b", compared)]
    names = operand_names(loop)
    made = definition_of(names[3], loop) if len(names) > 3 else None
    step_of_loop = (made is not None and constant_of(made)) or 0
    if len(added) != 1 or step_of_loop <= 0:
        return 0
    # A negative number may be printed as one of 32 bits without a sign.
    iterations, rest = divmod(min(abs(added[0]), abs(added[0] - _WORD)), step_of_loop)
    return 0 if rest else iterations


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
    # Recorded iterations may be others.
    return found if sum(trip * count for trip, count in found.items()) == times else None
