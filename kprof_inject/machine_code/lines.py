"""Summarise a function's machine code by the lines that it was compiled from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from kprof_inject.machine_code import scoreboards, wait_counters
from kprof_inject.machine_code.control_flow import Block, MachineLoop, blocks_of, loops_of
from kprof_inject.machine_code.instructions import InstructionSet, MachineFunction
from kprof_inject.machine_code.scoreboards import Wait
from kprof_inject.machine_code.units import Pipeline, pipeline_of

_WAITS_IN = {
    InstructionSet.NVIDIA: scoreboards.waits_in,
    InstructionSet.GFX9: wait_counters.waits_in,
    InstructionSet.GFX10: wait_counters.waits_in,
    InstructionSet.GFX12: wait_counters.waits_in,
}


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


def lines_of(function: MachineFunction, waits: Sequence[Wait]) -> list[LineCode]:
    """Return the code of each line that has any, in the order of the lines."""
    code = function.instructions
    pipelines: defaultdict[int, Counter[Pipeline]] = defaultdict(Counter)
    for one in code:
        pipelines[one.line][pipeline_of(one)] += 1
    awaited: defaultdict[int, Counter[Awaited]] = defaultdict(Counter)
    for line, index in {(code[wait.waiting].line, wait.awaited) for wait in waits}:
        awaited[line][Awaited(code[index].line, code[index].operation)] += 1
    return [LineCode(line, counts, dict(sorted(awaited[line].items()))) for line, counts in sorted(pipelines.items())]


def loop_codes(function: MachineFunction, blocks: Sequence[Block], loops: Sequence[MachineLoop]) -> list[LoopCode]:
    """Return what is in each loop, including the loops inside of it."""
    found = []
    for loop in loops:
        indices = [index for number in loop.blocks for index in range(blocks[number].first, blocks[number].end)]
        lines = sorted({function.instructions[index].line for index in indices})
        found.append(LoopCode(function.instructions[blocks[loop.header].first].line, tuple(lines), len(indices)))
    return found


class CodeSummary(Struct, frozen=True):
    """A function's machine code: the code of each line, and of each loop, outer loops first."""

    function: MachineFunction
    lines: tuple[LineCode, ...]
    loops: tuple[LoopCode, ...]


def summary_of(function: MachineFunction) -> CodeSummary:
    """Summarise a function's machine code."""
    blocks = blocks_of(function)
    waits = _WAITS_IN[function.instruction_set](function, blocks)
    lines = lines_of(function, waits)
    return CodeSummary(function, tuple(lines), tuple(loop_codes(function, blocks, loops_of(blocks))))
