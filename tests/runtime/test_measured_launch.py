"""Saved launches are counted, and then sampled, with their memory restored; what is not possible has a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_gpu.repeating import WorkerHere, worker_here

from kprof_inject.capture.measurements import SamplesRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSamples
from kprof_inject.runtime.worker import worker
from kprof_inject.runtime.worker.tasks import CountLaunch, SampleLaunch, TaskResult

pytestmark = pytest.mark.triton

METRICS = ("sm__inst_executed.sum", "gpu__time_duration.sum")


@dataclass
class Cupti:
    """Stand-in for CUPTI's range profiler and its sampling: it launches as often as these do."""

    passes: int = 3
    refusal: str = ""
    samples_of_launch: int = 10_000
    full_after: int | None = None
    """Number of batches after which the buffer is full."""
    calls: list[str] = field(default_factory=list)
    batches: int = 0
    period_cycles = 256

    def measure(
        self, metrics: Sequence[str], begin: Callable[[], None], launch: Callable[[], None]
    ) -> tuple[dict[str, float], int]:
        self.calls.append("count")
        if self.refusal:
            raise CuptiError(self.refusal, 35)
        for _ in range(self.passes):
            begin()
            launch()
        return {metrics[0]: 1000.0, metrics[1]: float("nan")}, self.passes

    def enable(self) -> None:
        self.calls.append("enable")
        if self.refusal:
            raise CuptiError(self.refusal, 35)

    def disable(self) -> None:
        self.calls.append("disable")

    @contextmanager
    def sampling(self, samples: PcSamples) -> Iterator[None]:
        self.calls.append("sample")
        yield
        if self.full_after is not None and self.batches >= self.full_after:
            raise CuptiError("the device has no memory for its counters", 8)
        self.batches += 1
        samples.total += self.samples_of_launch
        if self.samples_of_launch:
            samples.by_function["scale", 1][16]["wait"] += self.samples_of_launch
        samples.by_function["memset", 2][16]["wait"] += 7


@pytest.fixture
def process(tmp_path: Path) -> Iterator[WorkerHere]:
    with worker_here() as process:
        yield process


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> Cupti:
    cupti = Cupti()
    monkeypatch.setattr(worker, "find_cupti", lambda: Path("libcupti.so.13"))
    monkeypatch.setattr(worker, "Cupti", lambda path: cupti)
    monkeypatch.setattr(worker, "RangeProfiler", lambda *_: cupti)
    monkeypatch.setattr(worker, "PcSampler", lambda *_: cupti)
    return cupti


def measured(process: WorkerHere, launch: Path, *more: Path) -> list[TaskResult]:
    launches = [str(launch), *map(str, more)]
    counts = [CountLaunch(launch=one, metrics=METRICS) for one in launches]
    return process.do(*counts, *(SampleLaunch(launch=one) for one in launches))


def samples_of(result: TaskResult) -> SamplesRecord:
    assert result.measurements is not None and result.measurements.samples is not None, result
    return result.measurements.samples


def test_counters_and_samples(scale_launch_once: Path, process: WorkerHere, cupti: Cupti) -> None:
    counted, sampled = measured(process, scale_launch_once)
    assert counted.measurements is not None and counted.measurements.counters is not None
    assert counted.measurements.counters.metrics == {METRICS[0]: 1000.0}
    assert counted.measurements.counters.passes == 3
    samples = samples_of(sampled)
    assert samples.launches == 1 + 3
    assert [(one.address, dict(one.samples)) for one in samples.instructions] == [(16, {"wait": 20_000})]


def test_sampling_is_enabled_once_after_all_were_counted(
    scale_launch_once: Path, process: WorkerHere, cupti: Cupti
) -> None:
    measured(process, scale_launch_once, scale_launch_once)
    assert cupti.calls == ["count", "count", "enable", *["sample"] * 4]


def test_counting_after_sampling_disables_it(scale_launch_once: Path, process: WorkerHere, cupti: Cupti) -> None:
    sample, count = (
        SampleLaunch(launch=str(scale_launch_once)),
        CountLaunch(launch=str(scale_launch_once), metrics=METRICS),
    )
    process.do(sample, count, sample)
    assert cupti.calls == ["enable", "sample", "sample", "disable", "count", "enable", "sample", "sample"]


def test_without_permission_there_is_a_reason_for_each(
    scale_launch_once: Path, process: WorkerHere, cupti: Cupti
) -> None:
    cupti.refusal = "no permission"
    assert [result.refusal for result in measured(process, scale_launch_once)] == ["no permission", "no permission"]


def test_a_buffer_that_is_full_leaves_the_samples_of_the_first_launch(
    scale_launch_once: Path, process: WorkerHere, cupti: Cupti
) -> None:
    cupti.full_after = 1
    _, sampled = measured(process, scale_launch_once)
    assert samples_of(sampled).launches == 1


def test_few_samples_of_a_launch_do_not_repeat_it_forever(
    scale_launch_once: Path, process: WorkerHere, cupti: Cupti
) -> None:
    cupti.samples_of_launch = 1
    _, sampled = measured(process, scale_launch_once)
    assert samples_of(sampled).launches == 1 + 60


def test_a_kernel_that_is_never_sampled_says_so(scale_launch_once: Path, process: WorkerHere, cupti: Cupti) -> None:
    cupti.samples_of_launch = 0
    _, sampled = measured(process, scale_launch_once)
    assert sampled.refusal == "CUPTI took no sample of it"


def test_where_there_is_no_cupti_the_tasks_are_refused(
    scale_launch_once: Path, process: WorkerHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> Path:
        raise KprofError("there is no CUPTI")

    monkeypatch.setattr(worker, "find_cupti", find)
    assert [result.refusal for result in measured(process, scale_launch_once)] == ["there is no CUPTI"] * 2
