"""Peak rates of the units of an SM (or CU), in a cycle, and what kernels reach of them in practice.

Sources. NVIDIA: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions" of each compute capability
(floats of 32 bits, integers, special functions); for integers on sm_100 and sm_120, all that can be issued. The
architectures' white papers give dense tensor rates of a device, which are divided by its SMs and its boost clock. For
fp16: A100, 312 TFLOPS on 108 SMs at 1.41 GHz are 2048 a cycle; RTX 4090, 330 on 128 at 2.52 GHz 1024; H100 SXM, 989.4
on 132 at 1.83 GHz 4096; B200, 2250 on 148 at 1.85 GHz 8192. AMD: data sheets of MI300X (1307.4 TFLOPS on 304 CUs at 2.1
GHz: 2048) and MI355X (2516 on 256 at 2.4 GHz: 4096); special functions by the CDNA 3 ISA guide, at a quarter of the
rate of others. Four schedulers issue an instruction for 32 threads each in a cycle. Shared memory and the L1 move 128
bytes a cycle: CUDA C++ Programming Guide, "Shared Memory", 32 banks of 4 bytes. An SM takes in 64 bytes a cycle from
the L2: NVIDIA's A100 white paper has 5120 for 108 SMs, which is less; on an H200, Nsight Compute counted up to 43.
Sizes of the L1 and shared memory together are those of the programming guide.

Rates of pipelines are those of units where both are one. The others are from the programming guide, which has results
per cycle and SM:

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

from kprof_inject.analysis.limits.operation_work import Work
from kprof_inject.capture import counters
from kprof_inject.machine_code.units import Pipeline

TENSOR = "tensor cores"
SPECIAL = "special functions"
FP32 = "fp32 units"
FP64 = "fp64 units"
ALU = "ALU"
ISSUE = "instruction issue"
SHARED = "shared memory and L1"
L2 = "L2"
L2_TO_SM = "L2 to SM"
DRAM = "DRAM"  # the names of the units: ``Roof.parts`` and ``Limit.parts`` have them

UNIT_NAMES = {
    TENSOR: "the tensor cores",
    SPECIAL: "the special function units",
    FP32: "the fp32 units",
    FP64: "the fp64 units",
    ALU: "the ALU",
    ISSUE: "instruction issue",
    SHARED: "shared memory and L1",
    L2: "the L2",
    L2_TO_SM: "the L2",
    DRAM: "DRAM",
}

METRICS: Mapping[str, tuple[str, ...]] = {
    TENSOR: (counters.TENSOR,),
    ISSUE: (counters.ISSUE,),
    ALU: (counters.ALU,),
    FP32: (counters.FMA, counters.FMA_HEAVY, counters.FP16),
    FP64: (counters.FP64,),
    SPECIAL: (counters.SPECIAL,),
    SHARED: (counters.L1,),
    L2: (counters.L2,),
    DRAM: (counters.DRAM,),
}
"""The counters of each unit; the pipe that multiplies integers may be the only busy one of the fp32 units."""

PIPELINES = {
    TENSOR: (Pipeline.TENSOR,),
    ISSUE: tuple(Pipeline),
    ALU: (Pipeline.ALU,),
    FP32: (Pipeline.FMA, Pipeline.FP16),
    FP64: (Pipeline.FP64,),
    SPECIAL: (Pipeline.XU,),
    SHARED: (Pipeline.LSU, Pipeline.TENSOR),
}
"""The pipelines of each unit of the SM that is counted; tensor cores read operands from shared memory."""

UNITS_OF_SM = (TENSOR, SPECIAL, FP32, FP64, ALU, ISSUE, SHARED)
SHOWN_UNITS = (TENSOR, ISSUE, ALU, FP32, FP64, SPECIAL, SHARED, L2_TO_SM, L2, DRAM)  # the units in the order of tables

_LANES = 32  # threads of a warp
_PACKED = 2  # results of a packed fp16 instruction in each thread


class UnitRates(Struct, frozen=True):
    """Peak rates of one SM in one cycle.

    ``tensor_flops`` are dense, by the operands' type. ``issue`` are instructions of all kinds; ``special``, ``fp32``,
    ``integers`` (the ALU) and ``fp64`` those of a unit, each for one element. The fp32 units multiply integers at the
    same rate, and a multiplication and an addition may be one instruction. ``shared_bytes`` move to or from shared
    memory and L1, ``l2_bytes`` from the L2. ``fp16`` are elements of 16 bits that are added or multiplied. The rates of
    pipelines are unknown if ``fp64`` is 0.
    """

    tensor_flops: Mapping[str, int]
    special: int
    fp32: int
    integers: int = 64
    shared_bytes: int = 128
    l2_bytes: int = 64
    issue: int = 128
    packed_floats: int = 1
    """Maximum number of floats of 32 bits that an instruction adds or multiplies: PTX ISA, "add.f32x2"."""
    l1_bytes: int = 0  # size of an SM's L1 and shared memory together
    fp64: int = 0
    fp16: int = 0
    has_fp16_pipeline: bool = False
    """True for GA100 and older GPUs: their fp16 is not a part of the fp32 units (Nsight Compute, Kernel Profiling
    Guide, "Pipelines")."""

    @property
    def pipelines(self) -> Mapping[Pipeline, float]:
        """Warp instructions of each pipeline; empty if unknown."""
        if not self.fp64:
            return {}
        return {
            Pipeline.FMA: self.fp32 / _LANES,
            Pipeline.ALU: self.integers / _LANES,
            Pipeline.XU: self.special / _LANES,
            Pipeline.FP64: self.fp64 / _LANES,
            Pipeline.FP16: self.fp16 / _LANES / _PACKED,
            Pipeline.LSU: 1.0,
        }

    @property
    def unit_pipelines(self) -> Mapping[str, tuple[Pipeline, ...]]:
        """The pipelines of each unit."""
        fp32 = (Pipeline.FMA,) if self.has_fp16_pipeline else (Pipeline.FMA, Pipeline.FP16)
        return {ALU: (Pipeline.ALU,), FP32: fp32, FP64: (Pipeline.FP64,), SPECIAL: (Pipeline.XU,)}

    def cycles(self, work: Work) -> dict[str, float]:
        """Return a lower bound of the cycles of one SM that each unit needs for some work of known types."""
        known = [(flops, self.tensor_flops.get(element)) for element, flops in work.tensor_flops.items()]
        floats = max(work.multiplications, work.additions)
        fp32 = floats + work.integer_multiplications
        others = work.integer_multiplications + work.special + work.logic + work.conversions + work.fp64
        of_fp64 = {FP64: work.fp64 / self.fp64} if self.fp64 and work.fp64 else {}
        return {
            **of_fp64,
            TENSOR: sum(flops / rate for flops, rate in known if rate),
            SPECIAL: work.special / self.special,
            # An upper half takes two passes: for random numbers on an H200, Nsight Compute reports that the "fmaheavy"
            # pipe is active 93 % of the time, and this gives 91 %.
            FP32: max(fp32 / self.fp32, (work.integer_multiplications + work.upper_halves) / self.integers),
            ALU: work.logic / self.integers,
            ISSUE: (floats / self.packed_floats + others) / self.issue,
            SHARED: work.shared_bytes / self.shared_bytes + work.conflict_cycles,
            L2_TO_SM: work.l2_bytes / self.l2_bytes,
        }


def _tensor(f16: int, **others: int) -> dict[str, int]:
    return {"f16": f16, "bf16": f16, "i8": 2 * f16, **others}


_KB = 1 << 10
_RATES = {
    "cuda:80": UnitRates(
        _tensor(2048, tf32=1024, f64=128), 16, 64, l1_bytes=192 * _KB, fp64=32, fp16=256, has_fp16_pipeline=True
    ),
    "cuda:86": UnitRates(_tensor(1024, tf32=512), 16, 128, l1_bytes=128 * _KB, fp64=2, fp16=256),
    "cuda:89": UnitRates(_tensor(1024, tf32=512, f8=2048), 16, 128, l1_bytes=128 * _KB, fp64=2, fp16=128),
    "cuda:90": UnitRates(_tensor(4096, tf32=2048, f64=256, f8=8192), 16, 128, l1_bytes=256 * _KB, fp64=64, fp16=256),
    "cuda:100": UnitRates(
        *(_tensor(8192, tf32=4096, f64=128, f8=16384, f4=32768), 16, 128, 128),
        packed_floats=2,
        l1_bytes=256 * _KB,
        fp64=64,
        fp16=256,
    ),
    "cuda:120": UnitRates(
        *(_tensor(1024, tf32=512, f8=2048, f4=4096), 16, 128, 128),
        packed_floats=2,
        l1_bytes=128 * _KB,
        fp64=2,
        fp16=256,
    ),
    "hip:gfx942": UnitRates(_tensor(2048, tf32=1024, f32=256, f64=256, f8=4096), 16, 128),
    "hip:gfx950": UnitRates(_tensor(4096, f32=256, f64=128, f8=8192, f4=16384), 16, 128),
}


def rates_of(target: str) -> UnitRates | None:
    """Return the rates of a target such as ``cuda:90``."""
    return _RATES.get(target)


WGMMA_TARGET = "cuda:90"  # the only target whose dots are wgmma (PTX ISA, "wgmma.mma_async")

# Shares of peak rates that units reach in practice, by device: ``scripts/ceilings`` measures them. DRAM's peak rate is
# memory clock times bus width. Units that are missing may reach all of their peak, so that no gain is underestimated.
# An H200 had 96.1 % of DRAM by reads, 93.9 % by writes, 89.5 % by two reads and a write, and 83.3 % by copies; its
# tensor cores were busy for 99.1 to 99.5 % of the cycles. Kernels that only stream reached 91 to 94 % of an H100's
# DRAM bandwidth.
_DEFAULT_CEILINGS: Mapping[str, float] = {DRAM: 0.96, TENSOR: 0.99}
_CEILINGS: Mapping[str, Mapping[str, float]] = {
    "NVIDIA H100 80GB HBM3": {DRAM: 0.94},
    "NVIDIA H200": {DRAM: 0.96, TENSOR: 0.99},
}


def ceiling(device_name: str, unit: str) -> float:
    """Return the largest share of a unit's peak rate that is reached in practice on a device, named as torch does."""
    return _CEILINGS.get(device_name, _DEFAULT_CEILINGS).get(unit, _DEFAULT_CEILINGS.get(unit, 1.0))
