"""Utilization of each unit by the machine code: a lower bound, from instructions and how often they are executed."""

from __future__ import annotations

from collections.abc import Mapping

from kprof_inject.analysis.evidence.executed_instructions import block_executions
from kprof_inject.analysis.evidence.instruction_work import Utilization, launch_work
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.roofs.pipeline_rates import pipeline_rates_of
from kprof_inject.analysis.roofs.speed_of_light import MAX_POSSIBLE
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, FP64, ISSUE, SPECIAL
from kprof_inject.capture.model import Kernel
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline

_PIPELINES: Mapping[str, Pipeline] = {ALU: Pipeline.ALU, FP64: Pipeline.FP64, SPECIAL: Pipeline.XU}
# Nsight Compute, Kernel Profiling Guide, "Pipelines": only GA100 and older GPUs have a pipeline of its own for fp16.
_WITH_FP16_PIPELINE = frozenset(("cuda:80",))


def code_shares(kernel: Kernel, code: MachineFunction, ran: ExecutedKernel, sm_cycles: int) -> dict[str, float]:
    """Return the utilization of each unit whose instructions are known, by its name.

    ``sm_cycles`` are the cycles in which any warp ran the kernel, summed over the SMs. Units that would need more than
    all of them are left out, as the work or the cycles are not the kernel's.
    """
    rates = pipeline_rates_of(kernel.target)
    if rates is None or not sm_cycles:
        return {}
    warps = int(kernel.metadata.get("num_warps", kernel.num_warps))
    work = launch_work(code, block_executions(code, ran, warps))
    found = _by_unit(work.utilization(sm_cycles, rates), has_fp16=kernel.target in _WITH_FP16_PIPELINE)
    return {unit: min(share, 1.0) for unit, share in found.items() if 0 < share <= MAX_POSSIBLE}


def _by_unit(used: Utilization, *, has_fp16: bool) -> dict[str, float]:
    found = {unit: used.pipelines.get(pipeline, 0.0) for unit, pipeline in _PIPELINES.items()}
    fma, fp16 = used.pipelines.get(Pipeline.FMA, 0.0), used.pipelines.get(Pipeline.FP16, 0.0)
    return {**found, ISSUE: used.issue, FP32: fma if has_fp16 else fma + fp16}
