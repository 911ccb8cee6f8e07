"""Measure a saved launch without records: the hardware's counters, and samples of what its warps wait for."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kprof_inject.capture.measurements import CountersRecord, SampledInstruction, SamplesRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSampler, PcSamples
from kprof_inject.runtime.counters.range_profiler import RangeProfiler
from kprof_inject.runtime.experiments.loaded_launch import LoadedLaunch
from kprof_inject.runtime.experiments.paired_launches import PairedLaunches

# A share of 10 % then has an error of 0.3 points (95 %), and of 3.4 points in a scope with 1 % of the samples.
_WANTED_SAMPLES = 30_000
# CUPTI has one buffer for them all, with the samples of the kernels that restore the memory.
_MAX_SAMPLED_LAUNCHES = 60
# Longer launches are sampled less often.
_MAX_SAMPLED_NS = 300e6


@dataclass(frozen=True, slots=True)
class MeasuredLaunch:
    """A launch to be measured on a device whose context is current.

    ``launches`` have warmed up. ``fill`` queues what the L2 is to hold when the launch begins.
    """

    launches: PairedLaunches
    launch: LoadedLaunch
    kernel: Any
    fill: Callable[[], None]

    def count(self, profiler: RangeProfiler, metrics: Sequence[str]) -> CountersRecord:
        """Count the metrics that the device has. Raises ``KprofError`` where that is not possible."""

        def launch() -> None:
            self._launch()
            self._wait()

        values, passes = profiler.measure(metrics, self._begin, launch)
        return CountersRecord(
            metrics={name: value for name, value in values.items() if math.isfinite(value)}, passes=passes
        )

    def sample(self, sampler: PcSampler) -> SamplesRecord:
        """Sample the warps. The sampler was enabled before the kernel was loaded.

        Raises ``KprofError`` where that is not possible.
        """
        samples = PcSamples()
        self._sample(sampler, samples, 1)
        launches = 1
        more = self._more_launches(samples)
        try:
            self._sample(sampler, samples, more)
            launches += more
        except CuptiError:
            pass  # the buffer was too small for all of these launches: keep the samples of the first
        by_address = samples.of(self._name)
        if not by_address:
            raise KprofError("CUPTI took no sample of it")
        instructions = (SampledInstruction(address, counts) for address, counts in sorted(by_address.items()))
        return SamplesRecord(
            period_cycles=sampler.period_cycles,
            launches=launches,
            total=samples.total,
            dropped=samples.dropped,
            instructions=tuple(instructions),
        )

    @property
    def _name(self) -> str:
        return self.launch.saved.record.name

    def _begin(self) -> None:
        self.launch.memory.refresh(self.launch.relaunch.stream)
        self.fill()
        self._wait()

    def _launch(self) -> None:
        self.launch.relaunch.launch(self.kernel)
        self.launches.watch_stream()

    def _wait(self) -> None:
        device = self.launches.device
        device.synchronise(device.current())

    def _sample(self, sampler: PcSampler, samples: PcSamples, launches: int) -> None:
        with sampler.sampling(samples):
            for _ in range(launches):
                self._begin()
                self._launch()
            self._wait()

    def _more_launches(self, samples: PcSamples) -> int:
        """Return how many more launches it takes for as many samples as wanted, after the first launch."""
        of_one = max(sum(sum(counts.values()) for counts in samples.of(self._name).values()), 1)
        by_time = int(_MAX_SAMPLED_NS / max(self.launches.clean_ns, 1.0))
        return max(min(math.ceil(_WANTED_SAMPLES / of_one), _MAX_SAMPLED_LAUNCHES, by_time), 1)
