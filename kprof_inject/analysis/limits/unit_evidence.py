"""Utilization of each unit by each kind of evidence, and lower bounds of it by the machine code.

An instruction belongs to all scopes that cover its line of the TTGIR. Instructions whose number of executions is
unknown are not included, so work and utilization are lower bounds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.analysis.limits.limit import CodeBounds
from kprof_inject.analysis.limits.rates import ISSUE, SHARED, SHOWN_UNITS, TENSOR, UNIT_NAMES, UnitRates, rates_of
from kprof_inject.analysis.limits.speed_of_light import MAX_POSSIBLE
from kprof_inject.analysis.limits.stalls import ISSUED, sampled
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.structure.layouts import SIDES, shared_cycles
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.machine_code.control_flow import blocks_of
from kprof_inject.machine_code.instructions import NEVER, Instruction, MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, min_wavefronts, pipeline_of
from kprof_inject.quantities import percent
from kprof_inject.ttgir.loops import body_of

# Counts of the hardware vary by less from pass to pass, and small shares do not matter.
_MAX_RATIO, _MAX_EXCESS = 1.05, 0.02
_MIN_ISSUED = 200  # fewer samples of issued instructions say less than executions that are computed
# On an H100, Nsight Compute counted up to 6 times as many cycles for scattered copies as their words of one bank take.
_COPY = "ttg.async_copy_global_to_local"
_SHARED_MEMORY = frozenset(("LDS", "LDSM", "STS", "STSM"))


class UnitEvidence(Struct, frozen=True):
    """Utilization of a unit, as part of the launch's time; None where it is unknown.

    ``computed`` (from TTGIR) and ``code`` (from the machine code) are lower bounds; ``measured`` was counted by the
    hardware.
    """

    unit: str
    computed: float | None
    code: float | None
    measured: float | None

    @property
    def best(self) -> float:
        """The figure with the strongest evidence."""
        return self.lower_bound if self.measured is None else self.measured

    @property
    def lower_bound(self) -> float:
        """The larger lower bound; 0 if there is none."""
        return max(self.computed or 0.0, self.code or 0.0)


def unit_evidence(
    computed: Mapping[str, float], code: Mapping[str, float], measured: Mapping[str, float], scale: float
) -> tuple[UnitEvidence, ...]:
    """Return the evidence on units; ``scale`` is the ratio of the recorded kernel's cycles to those of ``measured``."""
    computed, code = ({unit: scale * part for unit, part in parts.items() if part} for parts in (computed, code))
    found = (UnitEvidence(unit, computed.get(unit), code.get(unit), measured.get(unit)) for unit in SHOWN_UNITS)
    return tuple(one for one in found if (one.computed, one.code, one.measured) != (None, None, None))


def disagreements(units: Sequence[UnitEvidence]) -> list[str]:
    """Return a sentence for each lower bound that exceeds what was measured: our count of the work is wrong."""
    return [
        f"kprof-inject contradicts itself: {UNIT_NAMES[one.unit]} would be busy for at least "
        f"{percent(one.lower_bound)} of the time, but {percent(one.measured)} were measured; please report it"
        for one in units
        if one.measured is not None and one.lower_bound > _MAX_RATIO * one.measured + _MAX_EXCESS
    ]


def code_evidence(
    kernel: Kernel,
    code: MachineFunction,
    ran: ExecutedKernel,
    requests: Sequence[Requests],
    sm_cycles: int,
    scope_cycles: Mapping[int, int],
) -> CodeBounds | None:
    """Return the utilization of the units by the machine code, if the target's rates are known.

    ``sm_cycles`` are those in which any warp ran the kernel, summed over the SMs; ``scope_cycles`` those of each scope.
    """
    rates = rates_of(kernel.target)
    if rates is None or not rates.pipelines:
        return None
    work, unknown_share, works = _code_work(code, ran, kernel.num_warps, tuple(requests))

    def parts(work: InstructionWork, cycles: int) -> dict[str, float]:
        # Units that would need more than all cycles are left out: the work or the cycles are not the scope's.
        found = work.parts(cycles, rates)
        return {unit: min(share, 1.0) for unit, share in found.items() if 0 < share <= MAX_POSSIBLE}

    scopes = {index: parts(one, scope_cycles[index]) for index, one in works.items() if index in scope_cycles}
    return CodeBounds(parts(work, sm_cycles), unknown_share, scopes)


class InstructionWork(Struct, frozen=True):
    """Executions of instructions by the warps of all CTAs.

    Instructions that are never enabled count in ``issued`` alone. ``wavefronts`` are cycles of the L1's data path.
    """

    issued: int
    pipelines: Mapping[Pipeline, int]
    wavefronts: int

    def parts(self, sm_cycles: int, rates: UnitRates) -> dict[str, float]:
        """Return the part of ``sm_cycles`` in which each unit is busy: above 1 if they are of another scope."""
        rate_of = rates.pipelines
        used = {one: count / rate_of[one] / sm_cycles for one, count in self.pipelines.items() if one in rate_of}
        parts = {unit: sum(used.get(one, 0.0) for one in members) for unit, members in rates.unit_pipelines.items()}
        issue = self.issued / (rates.issue / THREADS_PER_WARP) / sm_cycles
        return {**parts, ISSUE: issue, SHARED: self.wavefronts / sm_cycles}


@lru_cache(maxsize=KERNELS_CACHED)
def _code_work(
    code: MachineFunction, ran: ExecutedKernel, warps: int, requests: tuple[Requests, ...]
) -> tuple[InstructionWork, float, Mapping[int, InstructionWork]]:
    """Return lower bounds of a launch's work, ``CodeBounds.unknown_share``, and lower bounds by the scopes' index."""
    executions = block_executions(code, ran, warps)
    uncounted = defaultdict(float, uncounted_wavefronts(code, executions.known, ran, requests))
    for one in requests:
        uncounted[one.line] += one.uncounted_wavefronts
    lines = sorted(uncounted)

    def completed(work: InstructionWork, rows: range) -> InstructionWork:
        more = sum(uncounted[lines[row]] for row in rows)
        return replace(work, wavefronts=max(work.wavefronts + round(more), 0))

    scopes = scope_work(code, executions.known, ran.scope_map)
    work, possible = launch_work(code, executions.known), launch_work(code, executions.possible)
    return (
        completed(work, range(len(lines))),
        1 - work.issued / possible.issued if possible.issued else 1.0,
        {index: completed(one, ran.scope_map.rows_in(index, lines)) for index, one in scopes.items()},
    )


_Executed = tuple[Instruction, int]


def launch_work(function: MachineFunction, executions: Sequence[int | None]) -> InstructionWork:
    """Return the work of a launch, by the executions of the function's blocks."""
    return _work(_executed(function, executions))


def scope_work(
    function: MachineFunction, executions: Sequence[int | None], scope_map: ScopeMap
) -> dict[int, InstructionWork]:
    """Return the work of each scope that has instructions, by the scope's index."""
    found: defaultdict[int, list[_Executed]] = defaultdict(list)
    for one, count in _executed(function, executions):
        for index in scope_map.covering((one.line, one.line)):
            found[index].append((one, count))
    return {index: _work(found[index]) for index in sorted(found)}


def _executed(function: MachineFunction, executions: Sequence[int | None]) -> Iterator[_Executed]:
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


def uncounted_wavefronts(
    code: MachineFunction, executions: Sequence[int | None], ran: ExecutedKernel, requests: Iterable[Requests]
) -> dict[int, float]:
    """Return the L1 cycles that accesses take beyond those of their instructions, by the TTGIR line.

    They are negative if threads read the same words of shared memory. Accesses that predicates may disable count as
    nothing, unless masks of ``requests`` show the enabled part.
    """
    counted_by_masks = {(one.line, one.kind) for one in requests}
    shared: Counter[int] = Counter()
    disabled: Counter[int] = Counter()
    for one, times in _executed(code, executions):
        if one.operation in _SHARED_MEMORY:
            shared[one.line] += times * min_wavefronts(one)
        access = global_access(one)
        if one.predicate and (access is None or (one.line, access[0]) not in counted_by_masks):
            disabled[one.line] -= times * min_wavefronts(one)
    found: dict[int, float] = {}
    for accessing in ran.operations:
        name, all_times = accessing.operation.name, accessing.times
        if name not in SIDES or all_times is None:
            continue
        if cycles := shared_cycles(accessing.operation, ran.module.aliases):
            own = all_times * cycles.cycles - shared[accessing.line] if shared[accessing.line] else 0.0
            extra = (accessing.whole_times or 0) * (cycles.cycles - cycles.least)
            found[accessing.line] = extra if name == _COPY else own
    return found | {line: cycles for line, cycles in disabled.items() if line not in found}


@lru_cache(maxsize=KERNELS_CACHED)
def issued_instructions(
    kernel: Kernel, code: MachineFunction, ran: ExecutedKernel | None
) -> Sequence[tuple[Instruction, float]]:
    """Return the instructions that warps issue, each with its share of all: sampled, or else computed."""
    record = kernel.measurements.samples if kernel.measurements else None
    samples = sampled(record, code) if record else ()
    found = [(code.instructions[index], reasons.get(ISSUED, 0)) for index, reasons in samples]
    if sum(count for _, count in found) < _MIN_ISSUED:
        times = {one.operation: one.times for one in ran.operations} if ran else {}
        loops = [one for one in ran.module.walk() if one.traits.is_loop] if ran else []
        # Outside of its loops, a kernel does too little to show its shares.
        if ran is None or any(times.get(body_of(loop)[0]) is None for loop in loops):
            return []
        found = list(_executed(code, block_executions(code, ran, kernel.num_warps).known))
    whole = sum(count for _, count in found)
    return [(one, count / whole) for one, count in found if count]


class UnitUse:
    """The share of each unit's work by line of the TTGIR."""

    def __init__(
        self, kernel: Kernel, issued: Sequence[tuple[Instruction, float]], requests: Sequence[Requests]
    ) -> None:
        """Take the instructions that warps issue, with their shares, and the requests to the L1."""
        rates = rates_of(kernel.target)
        pipelines = {**(rates.unit_pipelines if rates else {}), TENSOR: (Pipeline.TENSOR,)}
        self._lines: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
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
        """Return the part of a unit's work that is done for some lines; 0 if unknown."""
        return sum(share for line, share in self.by_line(unit).items() if line in lines)

    def by_line(self, unit: str) -> Mapping[int, float]:
        """Return the parts of a unit's work by line."""
        found = self._lines[unit]
        whole = sum(found.values())
        return {line: count / whole for line, count in found.items()} if whole else {}
