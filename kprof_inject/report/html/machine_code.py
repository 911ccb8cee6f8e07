"""Machine code of each line of the TTGIR: its instructions, how often they are executed, and what they wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.unjudged import Unevaluated, evaluating
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.errors import printable
from kprof_inject.machine_code.control_flow import Block, blocks_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.lines import LineCode, summary_of
from kprof_inject.report.html.page_schema import AwaitedResult, CompiledLine, Listing, MachineCode
from kprof_inject.report.html.pictures import packed

MAX_LISTED = 20_000
"""Maximum number of instructions that the page lists for a launch, which take about 220 kB."""


def launch_machine_code(report: LaunchAnalysis, max_listed: int = MAX_LISTED) -> MachineCode | None:
    """Return the machine code of a launch's kernel; None if the capture does not have it, or if it is damaged.

    There is no listing of more than ``max_listed`` instructions.
    """
    function = report.machine_code
    if function is None or not function.instructions:
        return None
    try:
        with evaluating():
            return _machine_code(function, _executions(report, function), max_listed)
    except Unevaluated:
        return None


@lru_cache(maxsize=KERNELS_CACHED)
def _machine_code(function: MachineFunction, executions: tuple[int | None, ...], max_listed: int) -> MachineCode:
    blocks = blocks_of(function)
    executed, unknown = _by_line(function, blocks, executions)
    # Each warp executes the first block once, unless that is in a loop.
    is_repeated = any(0 in block.successors for block in blocks)
    return MachineCode(
        instructions=len(function.instructions),
        warps=None if is_repeated else executions[0] or None,
        lines=[_line(code, executed.get(code.line), unknown[code.line]) for code in summary_of(function).lines],
        listing=_listing(function, blocks, executions) if len(function.instructions) <= max_listed else None,
    )


def _executions(report: LaunchAnalysis, function: MachineFunction) -> tuple[int | None, ...]:
    """Return how often all warps execute each block; None if unknown."""
    if report.executed is not None:
        kernel = report.launch.kernel
        try:
            with evaluating():
                return tuple(block_executions(function, report.executed, kernel.requested_warps).known)
        except Unevaluated:
            pass
    return (None,) * len(blocks_of(function))


def _by_line(
    function: MachineFunction, blocks: Sequence[Block], executions: Sequence[int | None]
) -> tuple[Mapping[int, int], Mapping[int, int]]:
    """Return the executed instructions of each line, and its number of instructions with unknown executions.

    Lines of which nothing is known are only in the second.
    """
    executed: Counter[int] = Counter()
    unknown: Counter[int] = Counter()
    for block, count in zip(blocks, executions, strict=True):
        for one in function.instructions[block.first : block.end]:
            if count is None:
                unknown[one.line] += 1
            else:
                executed[one.line] += count
    return executed, unknown


def _line(code: LineCode, executed: int | None, unknown: int) -> CompiledLine:
    pipelines = sorted(code.pipelines.items(), key=lambda entry: -entry[1])
    awaited = sorted(code.awaited.items(), key=lambda entry: -entry[1])
    return CompiledLine(
        line=code.line,
        pipelines=[(pipeline.value, count) for pipeline, count in pipelines],
        awaited=[AwaitedResult(one.line, printable(one.operation), count) for one, count in awaited],
        executed=executed,
        unknown=unknown,
    )


def _listing(function: MachineFunction, blocks: Sequence[Block], executions: Sequence[int | None]) -> Listing:
    code = function.instructions
    return Listing(
        texts=[printable(" ".join(filter(None, (one.predicate, one.opcode, one.operands)))) for one in code],
        line_of=packed(np.array([one.line for one in code], dtype=np.int64), "i4"),
        address_step=function.instruction_set.address_step,
        blocks=[(block.first, count) for block, count in zip(blocks, executions, strict=True)],
    )
