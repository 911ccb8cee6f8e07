"""What the hardware counted of a kernel without records, and what its warps were sampled to wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache

from msgspec import Struct

from kprof_inject.analysis.limits.coalescing import MIN_UNCOALESCED, SECTOR_BYTES, sectors_text
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, FP64, ISSUE, L2, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.limits.stalls import Stalls, kernel_stalls, sampled
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.model import KERNELS_CACHED, Kernel
from kprof_inject.capture.reader import machine_code_of
from kprof_inject.machine_code.instructions import MachineFunction
from kprof_inject.machine_code.units import Pipeline, global_access, pipeline_of

_LANES = 32
_ISSUED = "selected"
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
_KINDS = {
    "load": (counters.LOAD_REQUESTS, counters.LOAD_SECTORS),
    "store": (counters.STORE_REQUESTS, counters.STORE_SECTORS),
}
"""The counters of the accesses of each kind to global memory."""


def measured_shares(record: CountersRecord) -> dict[str, float]:
    """Return the utilization of each unit that was counted."""
    found = {
        unit: [record.metrics[name] for name in names if name in record.metrics] for unit, names in _METRICS.items()
    }
    return {unit: max(values) / 100 for unit, values in found.items() if values}


class Measured(Struct, frozen=True):
    """The counters of a kernel, the stall reasons of its warps, and its machine code."""

    kernel: Kernel
    counted: CountersRecord
    stalls: Stalls | None
    code: MachineFunction | None

    @property
    def shares(self) -> dict[str, float]:
        """Utilization of each unit that was counted."""
        return measured_shares(self.counted)

    @property
    def active(self) -> float:
        """Part of the launch's time in which an SM has work, on average; 0 if it is unknown."""
        cycles = self.metric(counters.SM_CYCLES)
        return min(self.metric(counters.SM_ACTIVE_CYCLES) / cycles, 1.0) if cycles else 0.0

    @property
    def sm_cycles(self) -> float:
        """Cycles of the launch, summed over all SMs; 0 if they are unknown."""
        return self.metric(counters.SM_CYCLES) * (self.kernel.sm_count or 0)

    @property
    def conflict_share(self) -> float:
        """Share of the wavefronts of shared memory and L1 that bank conflicts cause; 0 if it was not counted."""
        wavefronts = self.metric(counters.WAVEFRONTS)
        return self.metric(counters.SHARED_CONFLICTS) / wavefronts if wavefronts else 0.0

    @property
    def held_ctas(self) -> float:
        """Mean number of CTAs on an SM that has work; 0 if it is unknown."""
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
        """Return the part of some pipelines' instructions that was sampled as issued in a range of lines; 0 if none."""
        record, (first, last) = self.kernel.measurements, lines
        if record is None or record.samples is None or self.code is None:
            return 0.0
        inside = whole = 0
        for index, samples in sampled(record.samples, self.code):
            one = self.code.instructions[index]
            if pipeline_of(one) in pipelines:
                whole += samples.get(_ISSUED, 0)
                inside += samples.get(_ISSUED, 0) if first <= one.line <= last else 0
        return inside / whole if whole else 0.0

    def _adjacent_sectors(self, kind: str) -> float:
        """Return the number of sectors that a request of a warp touches if its addresses are adjacent."""
        return _widest_access(self.code).get(kind, _MAX_ACCESS_BYTES) * _LANES / SECTOR_BYTES

    @property
    def uncoalesced_text(self) -> str:
        """What each request of the kind of accesses with most sectors touches; empty if adjacent ones touch as many."""
        found = []
        for kind, names in _KINDS.items():
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
        """Source line of the load that warps wait for longest; empty if it is unknown."""
        awaited: Counter[int] = Counter()
        for line in self.stalls.lines if self.stalls else ():
            for other, count in line.awaited.get("long_scoreboard", {}).items():
                if self.stalls and self.stalls.operations.get(other, "") in _LOADS:
                    awaited[other] += count
        return self.stalls.place_of(awaited.most_common(1)[0][0]) if self.stalls and awaited else ""


def measured_of(kernel: Kernel) -> Measured | None:
    """Return the measurements of a kernel; None without counters."""
    counted = kernel.measurements.counters if kernel.measurements else None
    return Measured(kernel, counted, kernel_stalls(kernel), machine_code_of(kernel)) if counted else None


@lru_cache(maxsize=KERNELS_CACHED)
def _widest_access(code: MachineFunction | None) -> dict[str, int]:
    """Return the bytes that a thread loads or stores at most with one instruction."""
    found: dict[str, int] = {}
    for one in code.instructions if code else ():
        if access := global_access(one):
            kind, size_bytes = access
            found[kind] = max(found.get(kind, 0), size_bytes)
    return found
