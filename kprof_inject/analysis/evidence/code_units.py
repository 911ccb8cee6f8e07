"""Utilization of each unit by the machine code: a lower bound, from instructions and how often they are executed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.evidence.instruction_work import InstructionWork, Utilization, launch_work, scope_work
from kprof_inject.analysis.evidence.shared_wavefronts import shared_wavefronts, unclear_wavefronts
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, with_open_masks
from kprof_inject.analysis.roofs.coalescing import Requests, requests_of
from kprof_inject.analysis.roofs.limits import CodeBounds
from kprof_inject.analysis.roofs.pipeline_rates import PipelineRates, pipeline_rates_of
from kprof_inject.analysis.roofs.rates import ALU, FP32, FP64, ISSUE, SHARED, SPECIAL
from kprof_inject.analysis.roofs.speed_of_light import MAX_POSSIBLE
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline

_PipelinesOfUnits = Mapping[str, tuple[Pipeline, ...]]
_PIPELINES: _PipelinesOfUnits = {
    ALU: (Pipeline.ALU,),
    FP32: (Pipeline.FMA, Pipeline.FP16),
    FP64: (Pipeline.FP64,),
    SPECIAL: (Pipeline.XU,),
}
# Nsight Compute, Kernel Profiling Guide, "Pipelines": only GA100 and older GPUs have a pipeline of its own for fp16.
_PIPELINES_OF_TARGET: Mapping[str, _PipelinesOfUnits] = {"cuda:80": {**_PIPELINES, FP32: (Pipeline.FMA,)}}


class CodeEvidence(Struct, frozen=True):
    """Bounds of a launch, and of each scope by its index in the scope table."""

    launch: CodeBounds
    scopes: Mapping[int, CodeBounds]


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
    rates = pipeline_rates_of(kernel.target)
    if rates is None:
        return None
    pipelines = _PIPELINES_OF_TARGET.get(kernel.target, _PIPELINES)
    done = _code_work(code, ran, kernel.num_warps, tuple(requests))
    launch = _bounds(done.launch, sm_cycles, rates, pipelines)
    most = _by_unit(done.most.utilization(sm_cycles, rates), pipelines)
    scopes = {
        index: _bounds(work, scope_cycles[index], rates, pipelines)
        for index, work in done.scopes.items()
        if index in scope_cycles
    }
    return CodeEvidence(replace(launch, most=most, unknown_share=done.most.unknown_share), scopes)


class _CodeWork(Struct, frozen=True):
    """Lower bounds of the units' work in a launch and in each scope, by index, and the launch's upper bound."""

    launch: InstructionWork
    most: InstructionWork
    scopes: Mapping[int, InstructionWork]


@lru_cache(maxsize=KERNELS_CACHED)
def _code_work(code: MachineFunction, ran: ExecutedKernel, warps: int, requests: tuple[Requests, ...]) -> _CodeWork:
    executions = block_executions(code, ran, warps)
    shared = shared_wavefronts(code, executions.known, ran, warps)
    work = launch_work(code, executions.known, executions.alternatives)
    possible = launch_work(code, executions.most)
    unclear = unclear_wavefronts(code, executions.most, shared, requests, requests_of(with_open_masks(ran), code))

    lines, lines_of_shared = [one.line for one in requests], sorted(shared.uncounted)
    scopes: dict[int, InstructionWork] = {}
    for index, work_of_scope in scope_work(code, executions.known, ran.scope_map).items():
        own = [requests[row] for row in ran.scope_map.rows_in(index, lines)]
        uncounted = [shared.uncounted[lines_of_shared[row]] for row in ran.scope_map.rows_in(index, lines_of_shared)]
        scopes[index] = _with_wavefronts(work_of_scope, own, uncounted)
    return _CodeWork(
        _with_wavefronts(work, requests, shared.uncounted.values()),
        _with_wavefronts(possible, requests, [*shared.uncounted.values(), unclear]),
        scopes,
    )


def _bounds(work: InstructionWork, sm_cycles: int, rates: PipelineRates, pipelines: _PipelinesOfUnits) -> CodeBounds:
    """Return the bounds in these cycles.

    Units that would need more than all cycles are left out, as the work or the cycles are not the scope's.
    """
    found = _by_unit(work.utilization(sm_cycles, rates), pipelines)
    parts = {unit: min(share, 1.0) for unit, share in found.items() if 0 < share <= MAX_POSSIBLE}
    return CodeBounds(parts, work.unknown_share)


def _with_wavefronts(
    work: InstructionWork, requests: Sequence[Requests], uncounted: Iterable[float]
) -> InstructionWork:
    """Add the cycles of the L1 for uncoalesced requests and conflicts of banks, which are ``uncounted``.

    Masks remove some.
    """
    more = sum(one.uncounted_wavefronts for one in requests) + sum(uncounted)
    return replace(work, wavefronts=max(work.wavefronts + round(more), 0))


def _by_unit(used: Utilization, pipelines: _PipelinesOfUnits) -> dict[str, float]:
    found = {unit: sum(used.pipelines.get(one, 0.0) for one in members) for unit, members in pipelines.items()}
    return {**found, ISSUE: used.issue, SHARED: used.l1}
