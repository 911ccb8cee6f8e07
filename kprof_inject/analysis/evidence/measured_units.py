"""Utilization of each unit, as the hardware counted it: part of the launch's time, from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from kprof_inject.analysis.roofs.limits import DRAM
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, FP64, ISSUE, L2, SHARED, SPECIAL, TENSOR
from kprof_inject.capture import counters
from kprof_inject.capture.measurements import CountersRecord

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
_PERCENT = 100.0


def measured_shares(record: CountersRecord) -> dict[str, float]:
    """Return the utilization of each unit that was counted, by its name."""
    found = {
        unit: [record.metrics[name] for name in names if name in record.metrics] for unit, names in _METRICS.items()
    }
    return {unit: max(values) / _PERCENT for unit, values in found.items() if values}


class Access(Struct, frozen=True):
    """Accesses of one kind to global memory: how many sectors of 32 bytes a warp's request touches on average."""

    kind: str
    """``load`` or ``store``."""
    requests: float
    sectors: float

    @property
    def sectors_per_request(self) -> float:
        """Sectors of a request; 0 without requests."""
        return self.sectors / self.requests if self.requests else 0.0


def accesses(record: CountersRecord) -> list[Access]:
    """Return the loads and stores of global memory that were counted."""
    names = {
        "load": (counters.LOAD_REQUESTS, counters.LOAD_SECTORS),
        "store": (counters.STORE_REQUESTS, counters.STORE_SECTORS),
    }
    return [
        Access(kind, record.metrics[requests], record.metrics[sectors])
        for kind, (requests, sectors) in names.items()
        if requests in record.metrics and sectors in record.metrics
    ]
