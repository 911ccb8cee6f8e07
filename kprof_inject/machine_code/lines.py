"""Machine code by the lines that it was compiled from: a summary, and what moved across the records of a scope.

LLVM and ptxas may move instructions across a record, such as a load to its use. Their time then moves to that scope.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from enum import Enum

from msgspec import Struct

from kprof_inject.machine_code.control_flow import blocks_of, followers, loops_of, reached, waits_in
from kprof_inject.machine_code.instructions import NEVER, SPILL, MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of


class Awaited(Struct, frozen=True, order=True):
    """Instructions of a line that others wait for: their line and operation, such as ``LDG``."""

    line: int
    operation: str


class LineCode(Struct, frozen=True):
    """Instructions of one line: their number by pipeline, and the instructions that they wait for, each once."""

    line: int  # 0 if unknown
    pipelines: Mapping[Pipeline, int]
    awaited: Mapping[Awaited, int]

    @property
    def instructions(self) -> int:
        """Number of instructions."""
        return sum(self.pipelines.values())


class LoopCode(Struct, frozen=True):
    """A loop: the line of its first instruction, the lines that it has instructions of, and their number."""

    line: int
    lines: tuple[int, ...]
    instructions: int


class CodeSummary(Struct, frozen=True):
    """A function's machine code: the code of each line, and of each loop, outer loops first."""

    function: MachineFunction
    lines: tuple[LineCode, ...]
    loops: tuple[LoopCode, ...]


def summary_of(function: MachineFunction) -> CodeSummary:
    """Summarise a function's machine code; loops include the instructions of inner loops."""
    code, blocks = function.instructions, blocks_of(function)
    pipelines: defaultdict[int, Counter[Pipeline]] = defaultdict(Counter)
    for one in code:
        pipelines[one.line][pipeline_of(one)] += 1
    awaited: defaultdict[int, Counter[Awaited]] = defaultdict(Counter)
    for line, index in {(code[wait.waiting].line, wait.awaited) for wait in waits_in(function)}:
        awaited[line][Awaited(code[index].line, code[index].operation)] += 1
    loops = []
    for loop in loops_of(blocks):
        inside = [one for number in loop.blocks for one in code[blocks[number].first : blocks[number].end]]
        first = code[blocks[loop.header].first]
        loops.append(LoopCode(first.line, tuple(sorted({one.line for one in inside})), len(inside)))
    lines = (LineCode(line, counts, dict(sorted(awaited[line].items()))) for line, counts in sorted(pipelines.items()))
    return CodeSummary(function, tuple(lines), tuple(loops))


# Sources: CUDA Binary Utilities, "Instruction Set Reference"; for AMD, Proton's lowering, which reads the cycle counter
# by ``llvm.amdgcn.s.memtime`` or, for gfx1250, by ``llvm.readcyclecounter``.
_CLOCK_READ = re.compile(r".*\bSR_CLOCKLO\b|s_memtime\b|s_get_shader_cycles_u64\b")
# Other instructions, such as those that compute addresses, take little time wherever they are.
_OF_INTEREST = frozenset((Pipeline.TENSOR, Pipeline.XU, Pipeline.LSU, Pipeline.TMA))
# Spilled values, and the index of the next record, which is in local memory: of no operation. AMD calls that scratch.
_LOCAL = re.compile(rf"LDL\b|STL\b|scratch_|.*\b{SPILL}\b")


class RecordedLines(Struct, frozen=True):
    """A scope in the lines of a module: those of its records, and those of the operations between them.

    ``function`` are all lines of the function except records'. ``copies`` are lines of operations that only copy
    memory: a special function with such a line is another operation's.
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

    def sentence_on(self, scope: str) -> str:
        """Describe the move: ``math.exp: all 64 MUFU of line 247 are after its end``."""
        verb = "is" if self.count == 1 else "are"
        what = f"{self.operation} of line {self.line}"
        if self.side is Side.INSIDE:
            return f"{scope}: {self.count} {what}, which is outside, {verb} in it"
        how_many = f"{self.count} of {self.total}"
        if self.count == self.total:
            how_many = "the" if self.total == 1 else f"all {self.total}"
        return f"{scope}: {how_many} {what} {verb} {self.side.value}"


def moved_in(function: MachineFunction, scope: RecordedLines) -> list[Moved] | None:
    """Return the moves out of a scope and into it; None if the code has no clock read for its start or end."""
    code = function.instructions
    reads = [index for index, one in enumerate(code) if _CLOCK_READ.match(one.text)]
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
        if pipeline_of(one) not in _OF_INTEREST or _LOCAL.match(one.text) or one.predicate == NEVER:
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
