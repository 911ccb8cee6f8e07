"""Plan how the hardware counts metrics, and compute them from what it counted: the part of CUPTI's without a device."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kprof_inject.runtime.counters.cupti import Cupti, CuptiError, names_for


@dataclass(frozen=True, slots=True)
class Plan:
    """Metrics that the chip has, and how they are counted: CUPTI's object and image of the configuration."""

    metrics: Sequence[str]
    host: int
    config: Any


class ProfilerHost:
    """The metrics of a device for one kind of profiler (``CUpti_ProfilerType``)."""

    def __init__(self, cupti: Cupti, kind: int, device: int, availability: Any) -> None:
        """Plan for the device with this index; ``availability`` is CUPTI's image of the counters that are free."""
        self._cupti = cupti
        self._kind = kind
        names = "CUpti_Device_GetChipName_Params"
        self._chip: bytes = cupti.call("cuptiDeviceGetChipName", names, deviceIndex=device).pChipName
        self._availability = availability

    def known(self, metrics: Sequence[str]) -> list[str]:
        """Return those of the metrics that the chip has."""
        if not metrics or self._has(metrics):
            return list(metrics)
        half = len(metrics) // 2
        return [*self.known(metrics[:half]), *self.known(metrics[half:])] if half else []

    def plan(self, metrics: Sequence[str]) -> Plan:
        """Return how those of the metrics are counted that the chip has. Raises ``CuptiError``."""
        known, host = self.known(metrics), self._new_host()
        self._add(host, known)
        kind = "CUpti_Profiler_Host_GetConfigImageSize_Params"
        size = self._cupti.call("cuptiProfilerHostGetConfigImageSize", kind, pHostObject=host).configImageSize
        config = (ctypes.c_uint8 * size)()
        self._cupti.call(
            "cuptiProfilerHostGetConfigImage",
            "CUpti_Profiler_Host_GetConfigImage_Params",
            pHostObject=host,
            configImageSize=size,
            pConfigImage=ctypes.addressof(config),
        )
        return Plan(known, host, config)

    def values(self, plan: Plan, image: Any, index: int) -> list[float]:
        """Return the values of a plan's metrics in the range, or the sample, with this index of a counters' image."""
        names, values = names_for(plan.metrics), (ctypes.c_double * len(plan.metrics))()
        self._cupti.call(
            "cuptiProfilerHostEvaluateToGpuValues",
            "CUpti_Profiler_Host_EvaluateToGpuValues_Params",
            pHostObject=plan.host,
            pCounterDataImage=ctypes.addressof(image),
            counterDataImageSize=len(image),
            rangeIndex=index,
            ppMetricNames=ctypes.addressof(names),
            numMetrics=len(plan.metrics),
            pMetricValues=ctypes.addressof(values),
        )
        return list(values)

    def _has(self, metrics: Sequence[str]) -> bool:
        # An object that has refused a metric was seen to refuse all others, so each question has its own.
        host = self._new_host()
        try:
            self._add(host, metrics)
        except CuptiError:
            return False
        finally:
            kind = "CUpti_Profiler_Host_Deinitialize_Params"
            self._cupti.call("cuptiProfilerHostDeinitialize", kind, pHostObject=host)
        return True

    def _add(self, host: int, metrics: Sequence[str]) -> None:
        names = names_for(metrics)
        self._cupti.call(
            "cuptiProfilerHostConfigAddMetrics",
            "CUpti_Profiler_Host_ConfigAddMetrics_Params",
            pHostObject=host,
            ppMetricNames=ctypes.addressof(names),
            numMetrics=len(metrics),
        )

    def _new_host(self) -> int:
        """Return a new object of CUPTI's that plans passes and computes metrics from counters."""
        made = self._cupti.call(
            "cuptiProfilerHostInitialize",
            "CUpti_Profiler_Host_Initialize_Params",
            profilerType=self._kind,
            pChipName=self._chip,
            pCounterAvailabilityImage=ctypes.addressof(self._availability),
        )
        return int(made.pHostObject)
