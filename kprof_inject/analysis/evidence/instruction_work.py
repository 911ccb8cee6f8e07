"""Warp instructions that a launch and its scopes execute in each pipeline, and cycles that bank conflicts add to them.

An instruction belongs to all scopes that cover its line of the TTGIR. Instructions whose number of executions is
unknown are not included, so work and utilization are lower bounds; ``unknown_share`` says how many are missing.
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
from kprof_inject.analysis.structure.banks import SIDES, shared_cycles
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, max_wavefronts, min_wavefronts, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import if_misfit, types_of


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


_Executed = tuple[Instruction, int | None]


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


_REDUCTION = "tt.reduce"
# Each warp writes its part of a result to shared memory once; one warp reads it, and all read the result.
_MAX_EACH = 3
# Scattered copies take longer than their words of one bank: on an H100, Nsight Compute counted up to 6 times as many
# cycles.
_COPY = "ttg.async_copy_global_to_local"
# Triton chooses the layout in shared memory to avoid bank conflicts: ``optimalSwizzling`` of its
# ``GenericSwizzling.cpp``, from 3.5 on.
_WITHOUT_CONFLICTS = "ttg.convert_layout"
# A shuffle uses no banks, and local memory has the words of a warp's threads next to each other (CUDA C++ Programming
# Guide, "Local Memory").
_NEVER_CONFLICT = frozenset(("SHFL", "LDL", "STL"))
_OWN = frozenset(("LDS", "LDSM", "STS", "STSM"))
"""Instructions that only access shared memory."""


class SharedWavefronts(Struct, frozen=True):
    """Accesses to shared memory whose conflicts follow from types and layouts, by the TTGIR line.

    ``uncounted`` are the cycles that a launch takes beyond those of its instructions without conflicts; negative if
    threads read the same words. ``max_uncounted`` has upper bounds where no more is known.
    """

    uncounted: Mapping[int, float]
    max_uncounted: Mapping[int, float]


def disabled_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], known: Collection[tuple[int, str]], lines: Collection[int]
) -> Counter[int]:
    """Return the cycles without conflicts of accesses that predicates may disable in whole warps, by line.

    Those of ``known`` requests, by line and kind, are counted by their masks, and those of ``lines`` by their layouts.
    """
    found: Counter[int] = Counter()
    for one, times in _executed(code, executions):
        if times and one.predicate and one.line not in lines:
            access = global_access(one)
            if access is None or (one.line, access[0]) not in known:
                found[one.line] += times * min_wavefronts(one)
    return found


def shared_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], ran: ExecutedKernel, warps: int
) -> SharedWavefronts:
    """Return the conflicts of a launch.

    ``executions`` are those of the code's blocks, and ``warps`` the number of warps of a CTA.
    """
    counted = _counted(code, executions)
    uncounted: dict[int, float] = {}
    most: dict[int, float] = {}
    for one in ran.operations:
        name, times = one.operation.name, one.times
        if name == _WITHOUT_CONFLICTS:
            most[one.line] = 0.0
        elif name == _REDUCTION and times is not None:
            most[one.line] = times * _MAX_EACH * warps * _results_of(one.operation)
        elif name in SIDES and times is not None and (found := shared_cycles(one.operation, ran.module.aliases)):
            own = times * found.cycles - counted[one.line] if counted[one.line] else 0.0
            extra = found.cycles - found.least
            uncounted[one.line] = (one.whole_times or 0) * extra if name == _COPY else own
            if name != _COPY or not extra:
                most[one.line] = 0.0
    return SharedWavefronts(uncounted, most)


@if_misfit(1 << 20)
def _results_of(reduction: Operation) -> int:
    """Return the number of elements of a reduction's results, of which there is one for each operand."""
    types = types_of(reduction)
    return sum(one.elements for one in types[len(types) // 2 :])


def _counted(code: MachineFunction, executions: Sequence[int | None]) -> Counter[int]:
    """Return the cycles without conflicts of the instructions that only access shared memory, by line."""
    found: Counter[int] = Counter()
    for block, times in zip(blocks_of(code), executions, strict=True):
        for one in code.instructions[block.first : block.end]:
            if one.operation in _OWN:
                found[one.line] += (times or 0) * min_wavefronts(one)
    return found


def unclear_wavefronts(
    code: MachineFunction,
    max_executions: Sequence[int | None],
    shared: SharedWavefronts,
    known: Sequence[Requests],
    possible: Sequence[Requests],
) -> float:
    """Return an upper bound of the cycles that conflicts may add where neither layouts nor addresses show them.

    ``max_executions`` are upper bounds of those of the blocks. ``known`` are the requests whose addresses and masks
    are known; of ``possible`` ones, only the addresses are.
    """
    are_known = {(one.line, one.kind) for one in known}
    of_request = {(one.line, one.kind): one.wavefronts for one in possible}
    most: Counter[int] = Counter()
    for block, times in zip(blocks_of(code), max_executions, strict=True):
        for one in code.instructions[block.first : block.end] if times else ():
            access, least = global_access(one), min_wavefronts(one)
            key = (one.line, access[0]) if access else None
            if least and key not in are_known and one.operation not in _NEVER_CONFLICT:
                each = of_request.get(key) if key else None
                most[one.line] += (times or 0) * max(round(each or max_wavefronts(one)) - least, 0)
    return sum(min(cycles, shared.max_uncounted.get(line, cycles)) for line, cycles in most.items())
