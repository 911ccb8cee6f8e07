"""Count events of the hardware while a kernel runs, with CUPTI's range profiler.

A chip has too few counters for all metrics at once, so the launch is repeated in several passes. We repeat it
ourselves, with its memory restored and the L2 filled before each pass; CUPTI's own replay (kernel replay) would leave
in the L2 what it copied. To CUPTI, our passes are those of an application that runs several times (application replay).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import NEWER_CUPTI, Cupti, names_for
from kprof_inject.runtime.counters.profiler_host import Plan, ProfilerHost

_RANGE_PROFILER = 0  # CUPTI_PROFILER_TYPE_RANGE_PROFILER
_AUTO_RANGE = 1  # CUPTI_AutoRange: each kernel is a range. A range of ours would include idle time before the kernel.
_APPLICATION_REPLAY = 1  # CUPTI_ApplicationReplay
_MAX_PASSES = 400
_MAX_RANGES = 2


class RangeProfiler:
    """The counters of the device of the present context."""

    def __init__(self, cupti: Cupti, device: int, context: int) -> None:
        """Prepare to use the counters. Raises ``CuptiError``, above all where the user lacks the permission."""
        self._cupti = cupti
        self._context = context
        self._plans: dict[tuple[str, ...], Plan] = {}
        cupti.call("cuptiProfilerInitialize", "CUpti_Profiler_Initialize_Params")
        kind = "CUpti_Profiler_GetCounterAvailability_Params"
        size = cupti.call("cuptiProfilerGetCounterAvailability", kind, ctx=context).counterAvailabilityImageSize
        availability = (ctypes.c_uint8 * size)()
        cupti.call(
            "cuptiProfilerGetCounterAvailability",
            kind,
            ctx=context,
            counterAvailabilityImageSize=size,
            pCounterAvailabilityImage=ctypes.addressof(availability),
        )
        self._host = ProfilerHost(cupti, _RANGE_PROFILER, device, availability)

    def measure(
        self, metrics: Sequence[str], begin: Callable[[], None], launch: Callable[[], None]
    ) -> tuple[dict[str, float], int]:
        """Return the values of a launch's metrics that the chip has, and the number of passes that they took.

        In each pass, ``begin`` prepares the launch, and ``launch`` launches the kernel; both wait for the device.
        Raises ``CuptiError``, and ``KprofError`` if CUPTI does not see the launch.
        """
        names = tuple(metrics)
        if names not in self._plans:  # making a plan takes as long as two passes
            self._plans[names] = self._host.plan(names)
        plan = self._plans[names]
        image, passes = self._passes(plan, begin, launch)
        return self._values(plan, image), passes

    def _passes(self, plan: Plan, begin: Callable[[], None], launch: Callable[[], None]) -> tuple[Any, int]:
        """Launch once a pass; return the image of the counters, and the number of passes."""
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
                    return image, number
                index, level = stopped.passIndex, stopped.targetNestingLevel
        finally:
            self._call("Disable", enabled)
        raise KprofError(f"the counters need more than {_MAX_PASSES} passes", hint="name fewer metrics")

    def _call(self, name: str, enabled: int) -> Any:
        kind = f"CUpti_RangeProfiler_{name}_Params"
        return self._cupti.call(f"cuptiRangeProfiler{name}", kind, pRangeProfilerObject=enabled)

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

    def _image(self, enabled: int, metrics: Sequence[str]) -> Any:
        names = names_for(metrics)
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

    def _values(self, plan: Plan, image: Any) -> dict[str, float]:
        kind = "CUpti_RangeProfiler_GetCounterDataInfo_Params"
        ranges = self._cupti.call(
            "cuptiRangeProfilerGetCounterDataInfo",
            kind,
            pCounterDataImage=ctypes.addressof(image),
            counterDataImageSize=len(image),
        ).numTotalRanges
        if ranges != 1:
            # An older CUPTI does not see the launches of a newer driver: 12.8 saw none with driver 580.
            raise KprofError(f"CUPTI saw {ranges} launches instead of 1", hint=NEWER_CUPTI)
        return dict(zip(plan.metrics, self._host.values(plan, image, 0), strict=True))
