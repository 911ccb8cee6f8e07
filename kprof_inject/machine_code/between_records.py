"""Compare what is between a scope's clock reads in the machine code with the operations that the scope is about.

LLVM and ptxas may move instructions across a record: a load to where its result is used, say. The time of the scope
then leaves it out, and the scope that it went to has it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from enum import Enum

from msgspec import Struct

from kprof_inject.machine_code.amd_assembly import SPILL
from kprof_inject.machine_code.control_flow import followers, reached
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of

# Sources: CUDA Binary Utilities, "Instruction Set Reference"; for AMD, Proton's lowering, which reads the cycle counter
# by ``llvm.amdgcn.s.memtime`` or, for gfx1250, by ``llvm.readcyclecounter``.
_CLOCK_READ = re.compile(r".*\bSR_CLOCKLO\b|s_memtime\b|s_get_shader_cycles_u64\b")
# Other instructions, such as those that compute addresses, take little time wherever they are.
_OF_INTEREST = frozenset((Pipeline.TENSOR, Pipeline.XU, Pipeline.LSU, Pipeline.TMA))
# Spilled values, and the index of the next record, which is in local memory: of no operation. AMD calls that scratch.
_LOCAL = re.compile(rf"LDL\b|STL\b|scratch_|.*\b{SPILL}\b")


class RecordedLines(Struct, frozen=True):
    """A scope in the lines of a module: those of its records, and those of the operations between them.

    ``function`` are all lines of the function, without those of records. ``copies`` are those of operations that only
    copy, to or from memory: a special function with such a line is another operation's.
    """

    name: str
    starts: frozenset[int]
    ends: frozenset[int]
    operations: frozenset[int]
    function: frozenset[int]
    copies: frozenset[int] = frozenset()


class Side(Enum):
    """Place of instructions that are outside of their own scope, or in one that they do not belong to."""

    BEFORE = "before its start"
    AFTER = "after its end"
    INSIDE = "in it"


class Moved(Struct, frozen=True):
    """Instructions of one line and operation, such as ``LDG``: ``count`` of ``total`` are on the other side."""

    line: int
    operation: str
    count: int
    total: int
    side: Side


def moved_in(function: MachineFunction, scope: RecordedLines) -> list[Moved] | None:
    """Return what moved out of a scope and into it; None if the code has no clock read for its start or its end.

    Only memory accesses, tensor operations and special functions count.
    """
    code = function.instructions
    reads = [index for index, one in enumerate(code) if _CLOCK_READ.match(_text(one))]
    starts = [index for index in reads if code[index].line in scope.starts]
    ends = {index for index in reads if code[index].line in scope.ends}
    if not starts or not ends:
        return None
    following = [list(followers(function, index)) for index in range(len(code))]
    leading: defaultdict[int, list[int]] = defaultdict(list)
    for index, others in enumerate(following):
        for other in others:
            leading[other].append(index)
    after_starts = [index for start in starts for index in following[start]]
    inside, foreign = reached(after_starts, following.__getitem__, ends), scope.function - scope.operations
    # What is in neither is code of other warps, such as that of another partition.
    after = reached(after_starts, following.__getitem__)
    before = reached([index for start in starts for index in leading[start]], leading.__getitem__)
    totals: Counter[tuple[int, str]] = Counter()
    moved: Counter[tuple[int, str, Side]] = Counter()
    for index, one in enumerate(code):
        if pipeline_of(one) not in _OF_INTEREST or _LOCAL.match(_text(one)) or one.predicate == NEVER:
            continue
        if one.line in scope.copies and pipeline_of(one) is Pipeline.XU:
            continue
        totals[one.line, one.operation] += 1
        if one.line in scope.operations and index not in inside:
            if index in before or index in after:
                is_before = index not in after or (index in before and index < starts[0])
                moved[one.line, one.operation, Side.BEFORE if is_before else Side.AFTER] += 1
        elif one.line in foreign and index in inside:
            moved[one.line, one.operation, Side.INSIDE] += 1
    return [
        Moved(line, operation, count, totals[line, operation], side) for (line, operation, side), count in moved.items()
    ]


def _text(one: Instruction) -> str:
    return f"{one.opcode} {one.operands}"
