"""Sample counters of a whole device at a fixed interval, whichever process works on it, with CUPTI's PM sampling.

It needs no context, and nothing of the process that works: kernels are neither repeated nor put one after another.
CUPTI gives the times by the host's clock (two H200 were off by 55 to 170 µs against their globaltimers, as the host's
clock was).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kprof_inject.runtime.counters.cupti import Cupti, CuptiError, names_for
from kprof_inject.runtime.counters.profiler_host import ProfilerHost

_PM_SAMPLING = 1  # CUPTI_PROFILER_TYPE_PM_SAMPLING
_TIME_INTERVAL = 1  # CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL
_KEEP_OLDEST = 0  # CUPTI_PM_SAMPLING_HARDWARE_BUFFER_APPEND_MODE_KEEP_OLDEST
_BUFFER_BYTES = 64 << 20
_IMAGE_FULL = 1  # CUPTI_PM_SAMPLING_DECODE_STOP_REASON_COUNTER_DATA_FULL
_OVERFLOW = 8  # CUPTI_ERROR_OUT_OF_MEMORY, which the library returns where the header has the flag
# Preparing an image takes as long as it is large. At an interval of 20 µs, this is a tenth of a second.
_MAX_SAMPLES = 5_000
MAX_TAKEN = 16 * _MAX_SAMPLES
"""More samples than are there when they are taken often."""


class Sample(NamedTuple):
    """Values of the metrics from ``begin_ns`` to ``end_ns``, by the host's clock."""

    begin_ns: int
    end_ns: int
    values: tuple[float, ...]


class PmSampler:
    """Samples of a device, which are lost if they are not taken before the hardware's buffer is full.

    Those from ``from_ns`` to ``to_ns`` were taken, without those in ``gaps_ns``; both are 0 before the first.
    """

    def __init__(self, cupti: Cupti, device: int, metrics: Sequence[str], interval_ns: int) -> None:
        """Prepare to sample those ``metrics`` that the chip has, of the device with this index. Raises ``CuptiError``.

        The process must have called ``cuInit`` and ``cuptiProfilerInitialize``.
        """
        self._cupti = cupti
        self._host = ProfilerHost(cupti, _PM_SAMPLING, device, self._availability(device))
        known = self._host.known(metrics)
        self._plan = self._host.plan(known) if known else None
        self.from_ns = self.to_ns = self._taken = 0
        self.gaps_ns: list[tuple[int, int]] = []
        self._interval_ns = interval_ns
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
        self._image_fields: dict[str, Any] = {
            "pCounterDataImage": ctypes.addressof(self._image),
            "counterDataImageSize": size,
        }
        self._clear()

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
        """Yield the samples since the last time in which something was counted.

        Raises ``CuptiError``, above all where the hardware's buffer was full, and samples were lost.
        """
        is_full = True
        while is_full:
            decoded = self._call("DecodeData", **self._image_fields)
            if decoded.overflow:
                raise CuptiError("samples were lost", _OVERFLOW)
            is_full = decoded.decodeStopReason == _IMAGE_FULL
            kind = "CUpti_PmSampling_GetCounterDataInfo_Params"
            there = self._cupti.call("cuptiPmSamplingGetCounterDataInfo", kind, **self._image_fields)
            yield from self._samples(there.numCompletedSamples)
            # A sample that is not complete would be lost with the image: of 25 MB that an H200 sent, 10 MB were.
            if is_full or there.numCompletedSamples == there.numPopulatedSamples:
                self._clear()

    def _samples(self, end: int) -> Iterator[Sample]:
        """Yield the samples of the image that were not taken, up to number ``end``, in which something was counted."""
        first = self._taken if self._taken <= end else 0
        for index in range(first, end):
            values = tuple(self._host.values(self._plan, self._image, index)) if self._plan else ()
            if not any(values) and index not in (first, end - 1):
                continue
            found = self._call(
                "CounterDataGetSampleInfo", "CounterData_GetSampleInfo", sampleIndex=index, **self._image_fields
            )
            sample = Sample(int(found.startTimestamp), int(found.endTimestamp), values)
            if index == first and self.to_ns and sample.begin_ns > self.to_ns + self._interval_ns // 2:
                self.gaps_ns.append((self.to_ns, sample.begin_ns))
            self.from_ns = self.from_ns or sample.begin_ns
            self.to_ns = sample.end_ns
            if any(values):
                yield sample
        self._taken = end

    def _clear(self) -> None:
        """Make room in the image."""
        size, begin = len(self._image), ctypes.addressof(self._image)
        self._call(
            "CounterDataImageInitialize", "CounterDataImage_Initialize", counterDataSize=size, pCounterData=begin
        )
        self._taken = 0

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
