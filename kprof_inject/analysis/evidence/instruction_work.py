"""Warp instructions that a launch and its scopes execute in each pipeline, and the utilization that follows.

An instruction belongs to all scopes that cover its line of the TTGIR. Instructions whose number of executions is
unknown are not included, so work and utilization are lower bounds; ``unknown_share`` says how many are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.evidence.block_flow import Alternatives
from kprof_inject.analysis.roofs.pipeline_rates import PipelineRates
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, min_wavefronts, pipeline_of


class InstructionWork(Struct, frozen=True):
    """Executions of instructions by the warps of all CTAs.

    ``instructions`` is the number of instructions in the machine code, without those that no warp reaches. Of these,
    ``unknown`` have an unknown number of executions. An instruction is issued even if its predicate disables all
    threads. It counts in ``pipelines``, too, unless its predicate is always false. ``wavefronts`` are the cycles of the
    L1's data path without conflicts.
    """

    issued: int
    pipelines: Mapping[Pipeline, int]
    wavefronts: int
    instructions: int
    unknown: int

    @property
    def unknown_share(self) -> float:
        """Share of the machine code's instructions whose executions are not included."""
        return self.unknown / self.instructions if self.instructions else 0.0

    def plus_min(self, ways: Sequence[InstructionWork]) -> InstructionWork:
        """Add what each of several ways does at least. Which one is taken remains unknown."""
        least = {
            pipeline: min(way.pipelines.get(pipeline, 0) for way in ways)
            for pipeline in {name for way in ways for name in way.pipelines}
        }
        return replace(
            self,
            issued=self.issued + min(way.issued for way in ways),
            pipelines={**self.pipelines, **{name: self.pipelines.get(name, 0) + more for name, more in least.items()}},
            wavefronts=self.wavefronts + min(way.wavefronts for way in ways),
        )

    def utilization(self, sm_cycles: int, rates: PipelineRates) -> Utilization:
        """Return the utilization in ``sm_cycles``, the cycles in which any warp ran the scope, summed over the SMs."""
        if not sm_cycles:
            return Utilization(0.0, 0.0, {})
        pipelines = {
            pipeline: count / rates.pipelines[pipeline] / sm_cycles
            for pipeline, count in self.pipelines.items()
            if pipeline in rates.pipelines
        }
        return Utilization(self.issued / rates.issue / sm_cycles, self.wavefronts / sm_cycles, pipelines)


class Utilization(Struct, frozen=True):
    """Lower bounds of the share of an SM's peak rates that a scope uses.

    They are those of instruction issue, of the L1's data path, and of pipelines. A share above 1 shows that work and
    cycles are not those of the same scope. Pipelines without a known rate are left out.
    """

    issue: float
    l1: float
    pipelines: Mapping[Pipeline, float]


_Executed = tuple[Instruction, int | None]


def launch_work(
    function: MachineFunction, executions: Sequence[int | None], alternatives: Sequence[Alternatives] = ()
) -> InstructionWork:
    """Return the work of a launch.

    ``executions`` are those of the function's blocks. Of ``alternatives``, the smallest counts for each unit.
    """
    total = _work(_executed(function, executions))
    blocks = blocks_of(function)
    for one in alternatives:
        ways = [function.instructions[blocks[number].first : blocks[number].end] for number in one.blocks]
        total = total.plus_min([_work((instruction, one.times) for instruction in way) for way in ways])
    return total


def scope_work(
    function: MachineFunction, executions: Sequence[int | None], scope_map: ScopeMap
) -> dict[int, InstructionWork]:
    """Return the work of each scope that has instructions, by the scope's index.

    ``executions`` are those of the function's blocks.
    """
    scopes: dict[int, list[int]] = {}
    found: dict[int, list[_Executed]] = {}
    for one, count in _executed(function, executions):
        if one.line not in scopes:
            scopes[one.line] = scope_map.covering((one.line, one.line))
        for index in scopes[one.line]:
            found.setdefault(index, []).append((one, count))
    return {index: _work(found[index]) for index in sorted(found)}


def issued_share(
    function: MachineFunction, executions: Sequence[int | None], counted: Callable[[Instruction], bool]
) -> float:
    """Return the share of these instructions among all that are known to be issued; 0 if none is known."""
    counts = [(one, count) for one, count in _executed(function, executions) if count is not None]
    whole = sum(count for _, count in counts)
    return sum(count * counted(one) for one, count in counts) / whole if whole else 0.0


def _executed(function: MachineFunction, executions: Sequence[int | None]) -> Iterator[_Executed]:
    """Yield the instructions that are not known to be never executed, with their executions."""
    for block, count in zip(blocks_of(function), executions, strict=True):
        if count != 0:
            yield from ((one, count) for one in function.instructions[block.first : block.end])


def _work(executed: Iterable[_Executed]) -> InstructionWork:
    pipelines: Counter[Pipeline] = Counter()
    issued = instructions = unknown = wavefronts = 0
    for one, count in executed:
        instructions += 1
        if count is None:
            unknown += 1
            continue
        issued += count
        wavefronts += count * min_wavefronts(one)
        if one.predicate != NEVER:
            pipelines[pipeline_of(one)] += count
    return InstructionWork(issued, dict(pipelines), wavefronts, instructions, unknown)
