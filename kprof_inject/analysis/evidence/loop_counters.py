"""Machine loops that count iterations: how many of a TTGIR loop's they execute in one of theirs.

That tells how often a loop of arithmetic is executed, in which no instruction marks an operation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.machine_code.control_flow import Block, loops_of
from kprof_inject.machine_code.instructions import Instruction, MachineFunction
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import constant_of, definition_of, operand_names

_LOOP = "scf.for"
_ADDITIONS = frozenset(("IADD3", "UIADD3", "VIADD"))
_COMPARISONS = frozenset(("ISETP", "UISETP"))
# ``UR4, UR4, -0x1, URZ``, or ``R2, P1, R2, 0xfffffffc, RZ`` with the carry: the register that is written, the one that
# is read, and what is added to it.
_STEP = re.compile(r"(?P<written>U?R\d+), (?:U?P\d+, )?(?P<read>U?R\d+), (?P<added>-?0x[0-9a-f]+)(?:, U?RZ)?$")
_WORD = 1 << 32
# The number of a loop's instructions in a block, in units of those of one copy of its body, may deviate that far from a
# whole number: copies share some computations, and what is the same in all iterations is computed before the loop.
_MAX_DEVIATION = 0.3


def loop_counts(
    function: MachineFunction, blocks: Sequence[Block], ran: ExecutedKernel
) -> Iterator[tuple[CountedOperation, dict[int, int]]]:
    """Yield an operation of each TTGIR loop whose iterations a machine loop counts, and its copies in each block.

    A loop with loops in it must not be unrolled.
    """
    inside = _operations_of_loops(ran)
    begins = ran.module.line_numbers([loop.start for loop in inside])
    by_line = {line: loop for line, loop in zip(begins, inside, strict=True) if begins.count(line) == 1}
    for machine_loop in loops_of(blocks):
        for number in machine_loop.blocks:
            block = blocks[number]
            loop = by_line.get(function.instructions[block.end - 1].line)
            if loop is None or machine_loop.header not in block.successors:
                continue
            unrolled = _unrolled(function.instructions[block.first : block.end], loop)
            lines = {one.line for one in inside[loop]}
            is_innermost = sum(one.traits.is_loop for one in loop.walk()) == 1
            copies = _copies(function, blocks, number, lines, unrolled) if is_innermost else {number: 1}
            if copies and (is_innermost or unrolled == 1):
                yield inside[loop][0], copies


def _operations_of_loops(ran: ExecutedKernel) -> Mapping[Operation, list[CountedOperation]]:
    """Return the operations directly in each loop that all of its iterations execute."""
    found: dict[Operation, list[CountedOperation]] = {}
    for one in ran.operations:
        owner = next(one.operation.owners(), None)
        if owner is not None and owner.name == _LOOP and one.times is not None and not one.executed.is_predicated:
            found.setdefault(owner, []).append(one)
    return found


def _unrolled(block: Sequence[Instruction], loop: Operation) -> int:
    """Return how many iterations a block counts: 0 if it has no counter, or several."""
    compared = " ".join(one.operands for one in block if one.operation in _COMPARISONS)
    of_loop = [one for one in block if one.line == block[-1].line]
    steps = [_STEP.match(one.operands) for one in of_loop if one.operation in _ADDITIONS and not one.predicate]
    added = [
        int(step["added"], 16)
        for step in steps
        if step and step["written"] == step["read"] and re.search(rf"\b{step['written']}\b", compared)
    ]
    names = operand_names(loop)
    made = definition_of(names[3], loop) if len(names) > 3 else None
    step_of_loop = (made is not None and constant_of(made)) or 0
    if len(added) != 1 or step_of_loop <= 0:
        return 0
    # A negative number may be printed as one of 32 bits without a sign.
    iterations, rest = divmod(min(abs(added[0]), abs(added[0] - _WORD)), step_of_loop)
    return 0 if rest else iterations


def _copies(
    function: MachineFunction, blocks: Sequence[Block], main: int, lines: Collection[int], unrolled: int
) -> dict[int, int]:
    """Return the copies of a loop with these lines in each block that has any, of which ``main`` has ``unrolled``."""
    counts = [sum(one.line in lines for one in function.instructions[block.first : block.end]) for block in blocks]
    if not counts[main] or not unrolled:
        return {}
    each = [unrolled * count / counts[main] for count in counts]
    is_clear = all(abs(count - round(count)) <= _MAX_DEVIATION for count in each)
    return {block: round(count) for block, count in enumerate(each) if round(count)} if is_clear else {}
