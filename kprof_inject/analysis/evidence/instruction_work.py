"""Warp instructions that a launch and its scopes execute in each pipeline, and cycles that bank conflicts add to them.

An instruction belongs to all scopes that cover its line of the TTGIR. Instructions whose number of executions is
unknown are not included, so work and utilization are lower bounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.rates import ISSUE, SHARED, UnitRates
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.structure.layouts import SIDES, shared_cycles
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, min_wavefronts, pipeline_of


class InstructionWork(Struct, frozen=True):
    """Executions of instructions by the warps of all CTAs.

    An instruction is issued even if its predicate disables all threads. It counts in ``pipelines``, too, unless its
    predicate is always false. ``wavefronts`` are the cycles of the L1's data path without conflicts.
    """

    issued: int
    pipelines: Mapping[Pipeline, int]
    wavefronts: int

    def with_wavefronts(self, requests: Sequence[Requests], uncounted: Iterable[float]) -> InstructionWork:
        """Add the cycles of the L1 for uncoalesced requests and conflicts of banks, which are ``uncounted``.

        Masks remove some.
        """
        more = sum(one.uncounted_wavefronts for one in requests) + sum(uncounted)
        return replace(self, wavefronts=max(self.wavefronts + round(more), 0))

    def parts(self, sm_cycles: int, rates: UnitRates) -> dict[str, float]:
        """Return the part of ``sm_cycles`` that each unit is busy: cycles in which any warp ran the scope, on all SMs.

        A part above 1 shows that work and cycles are not those of the same scope.
        """
        rate_of = rates.pipelines
        used = {one: count / rate_of[one] / sm_cycles for one, count in self.pipelines.items() if one in rate_of}
        parts = {unit: sum(used.get(one, 0.0) for one in members) for unit, members in rates.unit_pipelines.items()}
        return {**parts, ISSUE: self.issued / rates.warp_issue / sm_cycles, SHARED: self.wavefronts / sm_cycles}


_Executed = tuple[Instruction, int]


def launch_work(function: MachineFunction, executions: Sequence[int | None]) -> InstructionWork:
    """Return the work of a launch; ``executions`` are those of the function's blocks."""
    return _work(_executed(function, executions))


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


def _executed(function: MachineFunction, executions: Sequence[int | None]) -> Iterator[_Executed]:
    """Yield the instructions that are known to be executed, with their executions."""
    for block, count in zip(blocks_of(function), executions, strict=True):
        if count:
            yield from ((one, count) for one in function.instructions[block.first : block.end])


def _work(executed: Iterable[_Executed]) -> InstructionWork:
    pipelines: Counter[Pipeline] = Counter()
    issued = wavefronts = 0
    for one, count in executed:
        issued += count
        wavefronts += count * min_wavefronts(one)
        if one.predicate != NEVER:
            pipelines[pipeline_of(one)] += count
    return InstructionWork(issued, dict(pipelines), wavefronts)


# Scattered copies take longer than their words of one bank: on an H100, Nsight Compute counted up to 6 times as many
# cycles.
_COPY = "ttg.async_copy_global_to_local"
_OWN = frozenset(("LDS", "LDSM", "STS", "STSM"))
"""Instructions that only access shared memory."""


def disabled_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], known: Collection[tuple[int, str]], lines: Collection[int]
) -> Counter[int]:
    """Return the cycles without conflicts of accesses that predicates may disable in whole warps, by line.

    Those of ``known`` requests, by line and kind, are counted by their masks, and those of ``lines`` by their layouts.
    """
    found: Counter[int] = Counter()
    for one, times in _executed(code, executions):
        if one.predicate and one.line not in lines:
            access = global_access(one)
            if access is None or (one.line, access[0]) not in known:
                found[one.line] += times * min_wavefronts(one)
    return found


def shared_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], ran: ExecutedKernel
) -> Mapping[int, float]:
    """Return the cycles that accesses to shared memory take beyond those of their instructions, by the TTGIR line.

    They follow from types and layouts: conflicts of banks, and less than none if threads read the same words.
    ``executions`` are those of the code's blocks.
    """
    counted: Counter[int] = Counter()
    for one, times in _executed(code, executions):
        if one.operation in _OWN:
            counted[one.line] += times * min_wavefronts(one)
    found: dict[int, float] = {}
    for accessing in ran.operations:
        name, all_times = accessing.operation.name, accessing.times
        if name not in SIDES or all_times is None:
            continue
        if cycles := shared_cycles(accessing.operation, ran.module.aliases):
            own = all_times * cycles.cycles - counted[accessing.line] if counted[accessing.line] else 0.0
            extra = (accessing.whole_times or 0) * (cycles.cycles - cycles.least)
            found[accessing.line] = extra if name == _COPY else own
    return found
