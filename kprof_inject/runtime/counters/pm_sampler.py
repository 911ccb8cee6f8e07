"""Sample counters of a whole device at a fixed interval, whichever process works on it, with CUPTI's PM sampling.

It needs no context, and nothing of the process that works: kernels are neither repeated nor put one after another. Its
times are those of the device's globaltimer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kprof_inject.runtime.counters.cupti import Cupti, names_for
from kprof_inject.runtime.counters.profiler_host import ProfilerHost

_PM_SAMPLING = 1  # CUPTI_PROFILER_TYPE_PM_SAMPLING
_TIME_INTERVAL = 1  # CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL
_KEEP_OLDEST = 0  # CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST
_BUFFER_BYTES = 64 << 20
# Preparing an image takes as long as it is large. At an interval of 20 µs, this is a tenth of a second.
_MAX_SAMPLES = 5_000


class Sample(NamedTuple):
    """Values of the metrics from ``begin_ns`` to ``end_ns``."""

    begin_ns: int
    end_ns: int
    values: tuple[float, ...]


class PmSampler:
    """Samples of a device, which are lost if they are not taken before the hardware's buffer is full."""

    def __init__(self, cupti: Cupti, device: int, metrics: Sequence[str], interval_ns: int) -> None:
        """Prepare to sample those ``metrics`` that the chip has, of the device with this index. Raises ``CuptiError``.

        The process must have called ``cuInit`` and ``cuptiProfilerInitialize``.
        """
        self._cupti = cupti
        self._host = ProfilerHost(cupti, _PM_SAMPLING, device, self._availability(device))
        self._plan = self._host.plan(metrics) if self._host.known(metrics) else None
        self.has_overflowed = False
        if self._plan is None:
            return
        kind = "CUpti_PmSampling_Enable_Params"
        self._sampler = cupti.call("cuptiPmSamplingEnable", kind, deviceIndex=device).pPmSamplingObject
        self._call(
            "SetConfig",
            configSize=len(self._plan.config),
            pConfig=ctypes.addressof(self._plan.config),
            hardwareBufferSize=_BUFFER_BYTES,
            samplingInterval=interval_ns,
            triggerMode=_TIME_INTERVAL,
            hwBufferAppendMode=_KEEP_OLDEST,
        )
        names = names_for(self._plan.metrics)
        size = self._call(
            "GetCounterDataSize",
            pMetricNames=ctypes.addressof(names),
            numMetrics=len(self._plan.metrics),
            maxSamples=_MAX_SAMPLES,
        ).counterDataSize
        self._image = (ctypes.c_uint8 * size)()

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that the chip has; empty if it has none, and nothing can be sampled."""
        return tuple(self._plan.metrics) if self._plan else ()

    def start(self) -> None:
        """Sample from now on. Raises ``CuptiError``."""
        self._call("Start")

    def stop(self) -> None:
        """End the sampling. Raises ``CuptiError``."""
        self._call("Stop")

    def take(self) -> Iterator[Sample]:
        """Yield the samples since the last time in which something was counted. Raises ``CuptiError``."""
        begin = ctypes.addressof(self._image)
        size = len(self._image)
        self._call(
            "CounterDataImageInitialize", "CounterDataImage_Initialize", counterDataSize=size, pCounterData=begin
        )
        place: dict[str, Any] = {"pCounterDataImage": begin, "counterDataImageSize": size}
        decoded = self._call("DecodeData", **place)
        self.has_overflowed |= bool(decoded.overflow)
        kind = "CUpti_PmSampling_GetCounterDataInfo_Params"
        count = self._cupti.call("cuptiPmSamplingGetCounterDataInfo", kind, **place).numCompletedSamples
        for index in range(count):
            values = tuple(self._host.values(self._plan, self._image, index)) if self._plan else ()
            if any(values):
                found = self._call("CounterDataGetSampleInfo", "CounterData_GetSampleInfo", sampleIndex=index, **place)
                yield Sample(int(found.startTimestamp), int(found.endTimestamp), values)

    def _call(self, name: str, kind: str = "", **fields: Any) -> Any:
        structure = f"CUpti_PmSampling_{kind or name}_Params"
        return self._cupti.call(f"cuptiPmSampling{name}", structure, pPmSamplingObject=self._sampler, **fields)

    def _availability(self, device: int) -> Any:
        name, kind = "cuptiPmSamplingGetCounterAvailability", "CUpti_PmSampling_GetCounterAvailability_Params"
        size = self._cupti.call(name, kind, deviceIndex=device).counterAvailabilityImageSize
        image = (ctypes.c_uint8 * size)()
        self._cupti.call(
            name,
            kind,
            deviceIndex=device,
            counterAvailabilityImageSize=size,
            pCounterAvailabilityImage=ctypes.addressof(image),
        )
        return image
