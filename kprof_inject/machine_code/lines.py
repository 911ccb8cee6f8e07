"""Summarise a function's machine code by the lines that it was compiled from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from msgspec import Struct

from kprof_inject.machine_code.control_flow import blocks_of, loops_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline, pipeline_of
from kprof_inject.machine_code.waits import waits_in


class Awaited(Struct, frozen=True, order=True):
    """Instructions of a line that others wait for: their line and operation, such as ``LDG``."""

    line: int
    operation: str


class LineCode(Struct, frozen=True):
    """Instructions of one line, 0 for those of no known line: their number by pipeline, and what they wait for.

    Each instruction that is waited for counts once.
    """

    line: int
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
    """Summarise a function's machine code; its lines and loops have their instructions, including inner loops'."""
    code, blocks = function.instructions, blocks_of(function)
    pipelines: defaultdict[int, Counter[Pipeline]] = defaultdict(Counter)
    for one in code:
        pipelines[one.line][pipeline_of(one)] += 1
    awaited: defaultdict[int, Counter[Awaited]] = defaultdict(Counter)
    for line, index in {(code[wait.waiting].line, wait.awaited) for wait in waits_in(function, blocks)}:
        awaited[line][Awaited(code[index].line, code[index].operation)] += 1
    loops = []
    for loop in loops_of(blocks):
        inside = [one for number in loop.blocks for one in code[blocks[number].first : blocks[number].end]]
        first = code[blocks[loop.header].first]
        loops.append(LoopCode(first.line, tuple(sorted({one.line for one in inside})), len(inside)))
    lines = (LineCode(line, counts, dict(sorted(awaited[line].items()))) for line, counts in sorted(pipelines.items()))
    return CodeSummary(function, tuple(lines), tuple(loops))
