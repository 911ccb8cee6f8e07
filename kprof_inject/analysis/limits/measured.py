"""Counters and stall samples of a kernel without records."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from kprof_inject.analysis.limits.coalescing import MIN_UNCOALESCED, SECTOR_BYTES, sectors_text
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, FP64, ISSUE, L2, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.limits.stalls import FOR_MEMORY, ISSUED, Stalls, kernel_stalls, sampled
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, pipeline_of

_LANES = 32
_MAX_ACCESS_BYTES = 16
_LOADS = frozenset(("LDG", "LDGSTS"))
# DRAM reads more than this times the bytes that warps load if the L2 loses parts of sectors before they are used.
_REREAD = 1.5
# The pipe that multiplies integers is a part of the fp32 units. It may be busy while the rest is not.
_METRICS: Mapping[str, tuple[str, ...]] = {
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
# Counters of the accesses of each kind to global memory.
_ACCESSES = {
    "load": (counters.LOAD_REQUESTS, counters.LOAD_SECTORS),
    "store": (counters.STORE_REQUESTS, counters.STORE_SECTORS),
}


class Measured(Struct, frozen=True):
    """The counters of a kernel, the stall reasons of its warps, and its machine code."""

    kernel: Kernel
    counted: CountersRecord
    stalls: Stalls | None
    code: MachineFunction | None

    @property
    def shares(self) -> dict[str, float]:
        """Utilization of each unit that was counted."""
        metrics = self.counted.metrics
        found = {unit: [metrics[name] for name in names if name in metrics] for unit, names in _METRICS.items()}
        return {unit: max(values) / 100 for unit, values in found.items() if values}

    @property
    def active(self) -> float:
        """Mean part of the launch's time in which an SM has work; 0 if unknown."""
        cycles = self.metric(counters.SM_CYCLES)
        return min(self.metric(counters.SM_ACTIVE_CYCLES) / cycles, 1.0) if cycles else 0.0

    @property
    def sm_cycles(self) -> float:
        """Cycles of the launch, summed over all SMs; 0 if unknown."""
        return self.metric(counters.SM_CYCLES) * (self.kernel.sm_count or 0)

    @property
    def conflict_share(self) -> float:
        """Share of the wavefronts of shared memory and L1 that bank conflicts cause; 0 if it was not counted."""
        wavefronts = self.metric(counters.WAVEFRONTS)
        return self.metric(counters.SHARED_CONFLICTS) / wavefronts if wavefronts else 0.0

    @property
    def held_ctas(self) -> float:
        """Mean number of CTAs on an SM that has work; 0 if unknown."""
        return self.metric(counters.WARPS_ACTIVE) / self.kernel.num_warps

    @property
    def reads_once(self) -> bool:
        """True if DRAM reads little more than the bytes that warps load: coalescing would not spare it any."""
        loaded = self.metric(counters.LOAD_REQUESTS) * self._adjacent_sectors("load") * SECTOR_BYTES
        return self.metric(counters.DRAM_READ_BYTES) <= _REREAD * loaded

    def metric(self, name: str) -> float:
        """Return the value of a metric; 0 if it was not counted."""
        return self.counted.metrics.get(name, 0.0)

    def issued_share(self, pipelines: Collection[Pipeline], lines: tuple[int, int]) -> float:
        """Return the part of some pipelines' issued samples in a range of lines; 0 if there are none."""
        record, (first, last) = self.kernel.measurements, lines
        if record is None or record.samples is None or self.code is None:
            return 0.0
        inside = whole = 0
        for index, samples in sampled(record.samples, self.code):
            one = self.code.instructions[index]
            if pipeline_of(one) in pipelines:
                whole += samples.get(ISSUED, 0)
                inside += samples.get(ISSUED, 0) if first <= one.line <= last else 0
        return inside / whole if whole else 0.0

    def _adjacent_sectors(self, kind: str) -> float:
        """Return the number of sectors that a request of a warp touches if its addresses are adjacent."""
        accesses = map(global_access, self.code.instructions if self.code else ())
        widths = [access[1] for access in accesses if access and access[0] == kind]
        return max(widths, default=_MAX_ACCESS_BYTES) * _LANES / SECTOR_BYTES

    @property
    def uncoalesced_text(self) -> str:
        """Sentence on the uncoalesced kind of accesses that touches most sectors, if there is one."""
        found = []
        for kind, names in _ACCESSES.items():
            requests, sectors = map(self.metric, names)
            if requests and sectors / requests >= MIN_UNCOALESCED * self._adjacent_sectors(kind):
                found.append((sectors, sectors / requests, kind))
        if not found:
            return ""
        _, each, kind = max(found)
        text = f"each {kind} of a warp touches {sectors_text(each, self._adjacent_sectors(kind))}"
        place = self._slowest_load if kind == "load" else ""
        return f"{text}; warps wait longest for the load of {place}" if place else text

    @property
    def _slowest_load(self) -> str:
        if self.stalls is None:
            return ""
        awaited = self.stalls.awaited(FOR_MEMORY).most_common()
        loads = (line for line, _ in awaited if self.stalls.operations.get(line) in _LOADS)
        return self.stalls.place_of(next(loads, 0))


def measured_of(kernel: Kernel) -> Measured | None:
    """Return the measurements of a kernel; None without counters."""
    counted = kernel.measurements.counters if kernel.measurements else None
    return Measured(kernel, counted, kernel_stalls(kernel), machine_code_of(kernel)) if counted else None
