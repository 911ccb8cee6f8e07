"""The lines of the TTGIR for which each unit of the SM works, by samples of issued instructions or by computed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.rates import ISSUE, SHARED, TENSOR, rates_of
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import INSTRUCTION_BYTES, NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, min_wavefronts, pipeline_of
from kprof_inject.ttgir.loops import body_of

_ISSUED = "selected"
# Fewer samples of issued instructions say less than executions that are computed.
_MIN_ISSUED = 200


@lru_cache(maxsize=KERNELS_CACHED)
def issued_instructions(
    kernel: Kernel, code: MachineFunction, ran: ExecutedKernel | None
) -> Sequence[tuple[Instruction, float]]:
    """Return the instructions that warps issue, each with its share of all; empty if they are unknown."""
    found = list(_sampled(kernel, code)) or list(_computed(kernel, code, ran))
    whole = sum(count for _, count in found)
    return [(one, count / whole) for one, count in found if count] if whole else []


def _sampled(kernel: Kernel, code: MachineFunction) -> Iterator[tuple[Instruction, int]]:
    record = kernel.measurements.samples if kernel.measurements else None
    if record is None or sum(one.samples.get(_ISSUED, 0) for one in record.instructions) < _MIN_ISSUED:
        return
    for one in record.instructions:
        index = one.address // INSTRUCTION_BYTES
        if index < len(code.instructions):
            yield code.instructions[index], one.samples.get(_ISSUED, 0)


def _computed(kernel: Kernel, code: MachineFunction, ran: ExecutedKernel | None) -> Iterator[tuple[Instruction, int]]:
    if ran is None:
        return
    executions, blocks = block_executions(code, ran, kernel.num_warps).known, blocks_of(code)
    times = {one.operation: one.times for one in ran.operations}
    loops = [one for one in ran.module.walk() if one.traits.is_loop]
    if any(times.get(body_of(loop)[0]) is None for loop in loops):
        return  # outside of its loops, a kernel does too little to show its shares
    for block, count in zip(blocks, executions, strict=True):
        yield from ((one, count or 0) for one in code.instructions[block.first : block.end])


class UnitUse:
    """The share of each unit's work by line."""

    def __init__(
        self, kernel: Kernel, issued: Sequence[tuple[Instruction, float]], requests: Sequence[Requests]
    ) -> None:
        """Take the instructions that warps issue, with their shares, and the requests to the L1."""
        rates = rates_of(kernel.target)
        pipelines = {**(rates.unit_pipelines if rates else {}), TENSOR: (Pipeline.TENSOR,)}
        self._lines: dict[str, defaultdict[int, float]] = {
            unit: defaultdict(float) for unit in (*pipelines, ISSUE, SHARED)
        }
        wavefronts = {(one.line, one.kind): one.wavefronts for one in requests}
        for one, share in issued:
            self._lines[ISSUE][one.line] += share
            access = global_access(one)
            each = wavefronts.get((one.line, access[0])) if access else None
            self._lines[SHARED][one.line] += share * (min_wavefronts(one) if each is None else each)
            for unit, members in pipelines.items():
                if one.predicate != NEVER and pipeline_of(one) in members:
                    self._lines[unit][one.line] += share

    def share_of(self, unit: str, lines: Collection[int]) -> float:
        """Return the part of a unit's work that is done for some lines; 0 if it is unknown."""
        return sum(share for line, share in self.by_line(unit).items() if line in lines)

    def by_line(self, unit: str) -> Mapping[int, float]:
        """Return the parts of a unit's work by line; empty if they are unknown."""
        found: Mapping[int, float] = self._lines.get(unit, {})
        whole = sum(found.values())
        return {line: count / whole for line, count in found.items()} if whole else {}
