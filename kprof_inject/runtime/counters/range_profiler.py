"""Count events of the hardware while a kernel runs, with CUPTI's range profiler.

A chip has too few counters for all metrics at once, so the launch is repeated in several passes. We repeat it
ourselves, with its memory restored and the L2 filled before each pass; CUPTI's own replay (kernel replay) would leave
in the L2 what it copied. To CUPTI, our passes are those of an application that runs several times (application replay).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import NEWER_CUPTI, Cupti, CuptiError

_RANGE_PROFILER = 0  # CUPTI_PROFILER_TYPE_RANGE_PROFILER
_AUTO_RANGE = 1  # CUPTI_AutoRange: each kernel is a range. A range of ours would include idle time before the kernel.
_APPLICATION_REPLAY = 1  # CUPTI_ApplicationReplay
_MAX_PASSES = 400
_MAX_RANGES = 2


@dataclass(frozen=True, slots=True)
class _Plan:
    """Metrics that the chip has, and how they are counted: CUPTI's object and image of the configuration."""

    metrics: Sequence[str]
    host: int
    config: Any


class RangeProfiler:
    """The counters of the device of the present context."""

    def __init__(self, cupti: Cupti, device: int, context: int) -> None:
        """Prepare to use the counters. Raises ``CuptiError``, above all where the user lacks the permission."""
        self._cupti = cupti
        self._context = context
        self._plans: dict[tuple[str, ...], _Plan] = {}
        cupti.call("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params")
        kind = "CUpti_Profiler_GetCounterAvailability_Params"
        size = cupti.call("cuptiProfilerGetCounterAvailability", kind, ctx=context).counterAvailabilityImageSize
        self._availability = (ctypes.c_uint8 * size)()
        cupti.call(
            "cuptiProfilerGetCounterAvailability",
            kind,
            ctx=context,
            counterAvailabilityImageSize=size,
            pCounterAvailabilityImage=ctypes.addressof(self._availability),
        )
        names = "CUpti_Device_GetChipName_Params"
        self._chip: bytes = cupti.call("cuptiDeviceGetChipName", names, deviceIndex=device).pChipName

    def measure(
        self, metrics: Sequence[str], begin: Callable[[], None], launch: Callable[[], None]
    ) -> tuple[dict[str, float], int]:
        """Return the values of a launch's metrics that the chip has, and the number of passes that they took.

        In each pass, ``begin`` prepares the launch, and ``launch`` launches the kernel; both wait for the device.
        Raises ``CuptiError``, and ``KprofError`` if CUPTI does not see the launch.
        """
        names = tuple(metrics)
        if names not in self._plans:  # making a plan takes as long as two passes
            self._plans[names] = self._plan(names)
        plan = self._plans[names]
        kind = "CUpti_RangeProfiler_Enable_Params"
        enabled = self._cupti.call("cuptiRangeProfilerEnable", kind, ctx=self._context).pRangeProfilerObject
        try:
            image = self._image(enabled, plan.metrics)
            index, level = 0, 1
            for number in range(1, _MAX_PASSES + 1):
                self._configure(enabled, plan.config, image, index, level)
                begin()
                self._call("Start", enabled)
                launch()
                stopped = self._call("Stop", enabled)
                self._call("DecodeData", enabled)
                if stopped.isAllPassSubmitted:
                    passes = number
                    break
                index, level = stopped.passIndex, stopped.targetNestingLevel
            else:
                raise KprofError(f"the counters need more than {_MAX_PASSES} passes", hint="name fewer metrics")
        finally:
            self._call("Disable", enabled)
        return self._values(plan, image), passes

    def _plan(self, metrics: Sequence[str]) -> _Plan:
        """Plan the passes for those metrics that the chip has. Raises ``CuptiError``."""
        known, host = self._known(metrics), self._new_host()
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
        return _Plan(known, host, config)

    def _known(self, metrics: Sequence[str]) -> list[str]:
        """Return those of the metrics that the chip has."""
        if not metrics or self._has(metrics):
            return list(metrics)
        half = len(metrics) // 2
        return [*self._known(metrics[:half]), *self._known(metrics[half:])] if half else []

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
        names = _c_strings(metrics)
        self._cupti.call(
            "cuptiProfilerHostConfigAddMetrics",
            "CUpti_Profiler_Host_ConfigAddMetrics_Params",
            pHostObject=host,
            ppMetricNames=ctypes.addressof(names),
            numMetrics=len(metrics),
        )

    def _new_host(self) -> int:
        """Return a new object of CUPTI's that plans passes and computes metrics from counters, without a device."""
        made = self._cupti.call(
            "cuptiProfilerHostInitialize",
            "CUpti_Profiler_Host_Initialize_Params",
            profilerType=_RANGE_PROFILER,
            pChipName=self._chip,
            pCounterAvailabilityImage=ctypes.addressof(self._availability),
        )
        return int(made.pHostObject)

    def _call(self, name: str, enabled: int) -> Any:
        kind = f"CUpti_RangeProfiler_{name}_Params"
        return self._cupti.call(f"cuptiRangeProfiler{name}", kind, pRangeProfilerObject=enabled)

    def _image(self, enabled: int, metrics: Sequence[str]) -> Any:
        names = _c_strings(metrics)
        size = self._cupti.call(
            "cuptiRangeProfilerGetCounterDataSize",
            "CUpti_RangeProfiler_GetCounterDataSize_Params",
            pRangeProfilerObject=enabled,
            pMetricNames=ctypes.addressof(names),
            numMetrics=len(metrics),
            maxNumOfRanges=_MAX_RANGES,
            maxNumRangeTreeNodes=_MAX_RANGES,
        ).counterDataSize
        image = (ctypes.c_uint8 * size)()
        self._cupti.call(
            "cuptiRangeProfilerCounterDataImageInitialize",
            "CUpti_RangeProfiler_CounterDataImage_Initialize_Params",
            pRangeProfilerObject=enabled,
            counterDataSize=size,
            pCounterData=ctypes.addressof(image),
        )
        return image

    def _configure(self, enabled: int, config: Any, image: Any, index: int, level: int) -> None:
        self._cupti.call(
            "cuptiRangeProfilerSetConfig",
            "CUpti_RangeProfiler_SetConfig_Params",
            pRangeProfilerObject=enabled,
            configSize=len(config),
            pConfig=ctypes.addressof(config),
            counterDataImageSize=len(image),
            pCounterDataImage=ctypes.addressof(image),
            range=_AUTO_RANGE,
            replayMode=_APPLICATION_REPLAY,
            maxRangesPerPass=_MAX_RANGES,
            numNestingLevels=1,
            minNestingLevel=1,
            passIndex=index,
            targetNestingLevel=level,
        )

    def _values(self, plan: _Plan, image: Any) -> dict[str, float]:
        counters = {"pCounterDataImage": ctypes.addressof(image), "counterDataImageSize": len(image)}
        kind = "CUpti_RangeProfiler_GetCounterDataInfo_Params"
        ranges = self._cupti.call("cuptiRangeProfilerGetCounterDataInfo", kind, **counters).numTotalRanges
        if ranges != 1:
            # An older CUPTI does not see the launches of a newer driver: 12.8 saw none with driver 580.
            raise KprofError(f"CUPTI saw {ranges} launches instead of 1", hint=NEWER_CUPTI)
        names, values = _c_strings(plan.metrics), (ctypes.c_double * len(plan.metrics))()
        self._cupti.call(
            "cuptiProfilerHostEvaluateToGpuValues",
            "CUpti_Profiler_Host_EvaluateToGpuValues_Params",
            pHostObject=plan.host,
            **counters,
            rangeIndex=0,
            ppMetricNames=ctypes.addressof(names),
            numMetrics=len(plan.metrics),
            pMetricValues=ctypes.addressof(values),
        )
        return dict(zip(plan.metrics, values, strict=True))


def _c_strings(texts: Sequence[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])
