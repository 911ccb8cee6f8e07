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
    """The counters of the device of the present context.

    Raises ``CuptiError`` if they cannot be used, above all where the user lacks the permission.
    """

    def __init__(self, cupti: Cupti, device: int, context: int) -> None:
        self._cupti = cupti
        self._context = context
        self._plans: dict[tuple[str, ...], _Plan] = {}
        cupti.call("cuptiProfilerInitialize")
        size = cupti.call("cuptiProfilerGetCounterAvailability", ctx=context).counterAvailabilityImageSize
        self._availability = (ctypes.c_uint8 * size)()
        cupti.call(
            "cuptiProfilerGetCounterAvailability",
            ctx=context,
            counterAvailabilityImageSize=size,
            pCounterAvailabilityImage=ctypes.addressof(self._availability),
        )
        self._chip: bytes = cupti.call("cuptiDeviceGetChipName", deviceIndex=device).pChipName

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
        enabled = self._cupti.call("cuptiRangeProfilerEnable", ctx=self._context).pRangeProfilerObject
        try:
            image = self._new_image(enabled, plan.metrics)
            index, level = 0, 1
            for number in range(1, _MAX_PASSES + 1):
                self._cupti.call(
                    "cuptiRangeProfilerSetConfig",
                    pRangeProfilerObject=enabled,
                    configSize=len(plan.config),
                    pConfig=ctypes.addressof(plan.config),
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
                begin()
                self._cupti.call("cuptiRangeProfilerStart", pRangeProfilerObject=enabled)
                launch()
                stopped = self._cupti.call("cuptiRangeProfilerStop", pRangeProfilerObject=enabled)
                self._cupti.call("cuptiRangeProfilerDecodeData", pRangeProfilerObject=enabled)
                if stopped.isAllPassSubmitted:
                    passes = number
                    break
                index, level = stopped.passIndex, stopped.targetNestingLevel
            else:
                raise KprofError(f"the counters need more than {_MAX_PASSES} passes", hint="name fewer metrics")
        finally:
            self._cupti.call("cuptiRangeProfilerDisable", pRangeProfilerObject=enabled)
        return self._values(plan, image), passes

    def _plan(self, metrics: Sequence[str]) -> _Plan:
        known, host = self._known(metrics), self._new_host()
        self._add(host, known)
        size = self._cupti.call("cuptiProfilerHostGetConfigImageSize", pHostObject=host).configImageSize
        config = (ctypes.c_uint8 * size)()
        self._cupti.call(
            "cuptiProfilerHostGetConfigImage",
            pHostObject=host,
            configImageSize=size,
            pConfigImage=ctypes.addressof(config),
        )
        return _Plan(known, host, config)

    def _known(self, metrics: Sequence[str]) -> list[str]:
        if not metrics:
            return []
        host = self._new_host()  # an object that has refused a metric was seen to refuse all others
        try:
            self._add(host, metrics)
            return list(metrics)
        except CuptiError:
            half = len(metrics) // 2
        finally:
            self._cupti.call("cuptiProfilerHostDeinitialize", pHostObject=host)
        return [*self._known(metrics[:half]), *self._known(metrics[half:])] if half else []

    def _new_host(self) -> int:
        """Return a new object of CUPTI's that plans passes and computes metrics from counters, without a device."""
        made = self._cupti.call(
            "cuptiProfilerHostInitialize",
            profilerType=_RANGE_PROFILER,
            pChipName=self._chip,
            pCounterAvailabilityImage=ctypes.addressof(self._availability),
        )
        return int(made.pHostObject)

    def _add(self, host: int, metrics: Sequence[str]) -> None:
        names = _c_strings(metrics)
        self._cupti.call(
            "cuptiProfilerHostConfigAddMetrics",
            pHostObject=host,
            ppMetricNames=ctypes.addressof(names),
            numMetrics=len(metrics),
        )

    def _new_image(self, enabled: int, metrics: Sequence[str]) -> Any:
        names = _c_strings(metrics)
        size = self._cupti.call(
            "cuptiRangeProfilerGetCounterDataSize",
            pRangeProfilerObject=enabled,
            pMetricNames=ctypes.addressof(names),
            numMetrics=len(metrics),
            maxNumOfRanges=_MAX_RANGES,
            maxNumRangeTreeNodes=_MAX_RANGES,
        ).counterDataSize
        image = (ctypes.c_uint8 * size)()
        self._cupti.call(
            "cuptiRangeProfilerCounterDataImageInitialize",
            pRangeProfilerObject=enabled,
            counterDataSize=size,
            pCounterData=ctypes.addressof(image),
        )
        return image

    def _values(self, plan: _Plan, image: Any) -> dict[str, float]:
        counters = {"pCounterDataImage": ctypes.addressof(image), "counterDataImageSize": len(image)}
        ranges = self._cupti.call("cuptiRangeProfilerGetCounterDataInfo", **counters).numTotalRanges
        if ranges != 1:
            # An older CUPTI does not see the launches of a newer driver: 12.8 saw none with driver 580.
            raise KprofError(f"CUPTI saw {ranges} launches instead of 1", hint=NEWER_CUPTI)
        names, values = _c_strings(plan.metrics), (ctypes.c_double * len(plan.metrics))()
        self._cupti.call(
            "cuptiProfilerHostEvaluateToGpuValues",
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
