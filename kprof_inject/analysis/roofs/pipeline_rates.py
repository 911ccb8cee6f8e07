"""Peak rates of an SM's pipelines, in warp instructions per cycle.

Where ``unit_rates`` has the rate of a unit for single threads, a warp instruction is 32 of these; its docstring has the
sources. The others are from the CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions", which has
results per cycle and SM:

* FP64, "64-bit floating-point add, multiply, multiply-add": 32 on 8.0, 2 on 8.6, 8.9 and 12.0, 64 on 9.0 and 10.0.
* FP16, "16-bit floating-point add, multiply, multiply-add": 256 on 8.0, 8.6 and 9.0, 128 on 8.9. A packed instruction
  has two results per thread. For 10.0 and 12.0, version 12.9 has 256, and the Best Practices Guide of CUDA 13 half of
  that: the table below has the larger rate, so that a utilization is a lower bound.
* LSU, "warp shuffle": 32. The LSU executes shuffles, and a load or store takes it no less time.

A pipeline's other instructions may be slower: integer multiplication on 8.6 to 9.0 has half of the FMA pipeline. The
programming guide has no rate of an instruction of the tensor cores, whose work depends on its shape, of TMA, of the
uniform datapath, or of branches and barriers, so these pipelines are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kprof_inject.analysis.roofs.rates import rates_of
from kprof_inject.machine_code.units import Pipeline

_LANES = 32  # threads of a warp
_PACKED = 2  # results of a packed fp16 instruction in each thread
_LSU = 1.0

# Results per cycle and SM: fp64, then fp16.
_RESULTS = {
    "cuda:80": (32, 256),
    "cuda:86": (2, 256),
    "cuda:89": (2, 128),
    "cuda:90": (64, 256),
    "cuda:100": (64, 256),
    "cuda:120": (2, 256),
}


class PipelineRates(Struct, frozen=True):
    """Peak rates of an SM, in warp instructions per cycle."""

    issue: float
    """Instructions of all pipelines."""
    pipelines: Mapping[Pipeline, float]


def pipeline_rates_of(target: str) -> PipelineRates | None:
    """Return the rates of a target such as ``cuda:90``; None if they are not known."""
    units, results = rates_of(target), _RESULTS.get(target)
    if units is None or results is None:
        return None
    fp64, fp16 = results
    return PipelineRates(
        issue=units.issue / _LANES,
        pipelines={
            Pipeline.FMA: units.fp32 / _LANES,
            Pipeline.ALU: units.integers / _LANES,
            Pipeline.XU: units.special / _LANES,
            Pipeline.FP64: fp64 / _LANES,
            Pipeline.FP16: fp16 / _LANES / _PACKED,
            Pipeline.LSU: _LSU,
        },
    )
