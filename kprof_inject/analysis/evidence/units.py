"""Utilization of each unit by each kind of evidence, and bounds of it by instructions and their executions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.evidence.instruction_work import (
    InstructionWork,
    disabled_wavefronts,
    launch_work,
    scope_work,
    shared_wavefronts,
)
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.limit import UNIT_NAMES, CodeBounds
from kprof_inject.analysis.limits.rates import (
    ALU,
    DRAM,
    FP32,
    FP64,
    ISSUE,
    L2,
    L2_TO_SM,
    SHARED,
    SPECIAL,
    TENSOR,
    UnitRates,
    rates_of,
)
from kprof_inject.analysis.limits.speed_of_light import MAX_POSSIBLE
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.quantities import percent

_SHOWN_UNITS = (TENSOR, ISSUE, ALU, FP32, FP64, SPECIAL, SHARED, L2_TO_SM, L2, DRAM)
"""The units in the order of tables."""
# Counts of the hardware vary by less from pass to pass, and small shares do not matter.
_MAX_RATIO, _MAX_EXCESS = 1.05, 0.02


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
        """The figure of the strongest evidence."""
        return self.lower_bound if self.measured is None else self.measured

    @property
    def lower_bound(self) -> float:
        """The larger lower bound; 0 if there is none."""
        return max(self.computed or 0.0, self.code or 0.0)


def unit_evidence(
    computed: Mapping[str, float], code: Mapping[str, float], measured: Mapping[str, float], scale: float
) -> tuple[UnitEvidence, ...]:
    """Return the evidence on each unit of which anything is known.

    ``computed`` and ``code`` are parts of the cycles in which an SM runs the recorded kernel. They are multiplied by
    ``scale``, the ratio of these cycles to those of ``measured``.
    """
    computed, code = ({unit: scale * part for unit, part in parts.items() if part} for parts in (computed, code))
    found = (UnitEvidence(unit, computed.get(unit), code.get(unit), measured.get(unit)) for unit in _SHOWN_UNITS)
    return tuple(one for one in found if (one.computed, one.code, one.measured) != (None, None, None))


def disagreements(units: Sequence[UnitEvidence]) -> list[str]:
    """Return a sentence for each lower bound that exceeds what was measured by more than its error.

    Then our count of the work, or of its executions, is wrong.
    """
    return [
        f"kprof-inject contradicts itself: {UNIT_NAMES[one.unit]} would be busy for at least "
        f"{percent(one.lower_bound)} of the time, but {percent(one.measured)} were measured; please report it"
        for one in units
        if one.measured is not None and one.lower_bound > _MAX_RATIO * one.measured + _MAX_EXCESS
    ]


class CodeEvidence(Struct, frozen=True):
    """Bounds of a launch, and lower ones of each scope's parts by its index in the scope table."""

    launch: CodeBounds
    scopes: Mapping[int, Mapping[str, float]]


@lru_cache(maxsize=KERNELS_CACHED)
def _code_work(
    code: MachineFunction, ran: ExecutedKernel, warps: int, requests: tuple[Requests, ...]
) -> tuple[InstructionWork, float, Mapping[int, InstructionWork]]:
    """Return lower bounds of the work of a launch, and of its scopes by index.

    Between them is the share of the instructions, of all that warps might execute, whose executions are unknown.
    """
    executions = block_executions(code, ran, warps)
    known = executions.known
    uncounted = shared_wavefronts(code, known, ran)
    counted_by_masks = {(one.line, one.kind) for one in requests}
    least = Counter(uncounted)
    least.subtract(disabled_wavefronts(code, known, counted_by_masks, uncounted))
    scopes: dict[int, InstructionWork] = {}
    lines, lines_of_shared = [one.line for one in requests], sorted(least)
    for index, work_of_scope in scope_work(code, known, ran.scope_map).items():
        own = [requests[row] for row in ran.scope_map.rows_in(index, lines)]
        more = [least[lines_of_shared[row]] for row in ran.scope_map.rows_in(index, lines_of_shared)]
        scopes[index] = work_of_scope.with_wavefronts(own, more)
    work, possible = launch_work(code, known), launch_work(code, executions.possible)
    unknown_share = 1 - work.issued / possible.issued if possible.issued else 1.0
    return work.with_wavefronts(requests, least.values()), unknown_share, scopes


def code_evidence(
    kernel: Kernel,
    code: MachineFunction,
    ran: ExecutedKernel,
    requests: Sequence[Requests],
    sm_cycles: int,
    scope_cycles: Mapping[int, int],
) -> CodeEvidence | None:
    """Return the utilization of the units by the machine code; None if the rates of the target are not known.

    ``requests`` are those of the loads and stores, in the order of the text. ``sm_cycles`` are the cycles in which any
    warp ran the kernel, summed over the SMs, and ``scope_cycles`` those of each scope.
    """
    rates = rates_of(kernel.target)
    if rates is None or not rates.pipelines:
        return None
    work, unknown_share, scope_works = _code_work(code, ran, kernel.num_warps, tuple(requests))
    scopes = {
        index: _parts(scope_work, scope_cycles[index], rates)
        for index, scope_work in scope_works.items()
        if index in scope_cycles
    }
    return CodeEvidence(CodeBounds(_parts(work, sm_cycles, rates), unknown_share), scopes)


def _parts(work: InstructionWork, sm_cycles: int, rates: UnitRates) -> dict[str, float]:
    """Return the parts of these cycles, at least.

    Units that would need more than all cycles are left out, as the work or the cycles are not the scope's.
    """
    found = work.parts(sm_cycles, rates)
    return {unit: min(share, 1.0) for unit, share in found.items() if 0 < share <= MAX_POSSIBLE}
