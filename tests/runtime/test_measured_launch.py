"""Saved launches are counted and sampled with memory restored, and with what the L2 held in the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.device import FakeDevice
from fake_gpu.repeating import WorkerHere, worker_here
from launch_files import edit

from kprof_inject.capture.measurements import L2Contents, SamplesRecord
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSamples
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer
from kprof_inject.runtime.worker import measured_launch, worker
from kprof_inject.runtime.worker.loaded_launch import loaded_launch
from kprof_inject.runtime.worker.measured_launch import as_in_program, contents_as_in_program, l2_fills
from kprof_inject.runtime.worker.tasks import CountLaunch, SampleLaunch, TaskResult
from kprof_inject.runtime.worker.worker import clean_kernel

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
def cupti(monkeypatch: pytest.MonkeyPatch) -> Cupti:
    cupti = Cupti()
    monkeypatch.setattr(worker, "find_cupti", lambda: Path("libcupti.so.13"))
    monkeypatch.setattr(worker, "Cupti", lambda path: cupti)
    monkeypatch.setattr(worker, "RangeProfiler", lambda *_: cupti)
    monkeypatch.setattr(worker, "PcSampler", lambda *_: cupti)
    return cupti


Measured = Callable[..., list[TaskResult]]


@pytest.fixture
def measured(process: WorkerHere, scale_launch_once: Path) -> Measured:
    """Count the launch, and then sample it, as often as asked."""

    def count_and_sample(times: int = 1) -> list[TaskResult]:
        launch = str(scale_launch_once)
        count, sample = CountLaunch(launch=launch, metrics=METRICS), SampleLaunch(launch=launch)
        return process.do(*[count] * times, *[sample] * times)

    return count_and_sample


def samples_of(result: TaskResult) -> SamplesRecord:
    assert result.measurements is not None and result.measurements.samples is not None, result
    return result.measurements.samples


def test_counters_and_samples(measured: Measured, cupti: Cupti) -> None:
    counted, sampled = measured()
    assert counted.measurements is not None and counted.measurements.counters is not None
    assert counted.measurements.counters.metrics == {METRICS[0]: 1000.0}
    assert counted.measurements.counters.passes == 3
    samples = samples_of(sampled)
    assert samples.launches == 1 + 3
    assert [(one.address, dict(one.samples)) for one in samples.instructions] == [(16, {"wait": 20_000})]


def test_sampling_is_enabled_once_all_were_counted(measured: Measured, cupti: Cupti) -> None:
    measured(2)
    assert cupti.calls == ["count", "count", "enable", *["sample"] * 4]


def test_counting_after_sampling_disables_it(scale_launch_once: Path, process: WorkerHere, cupti: Cupti) -> None:
    sample, count = (
        SampleLaunch(launch=str(scale_launch_once)),
        CountLaunch(launch=str(scale_launch_once), metrics=METRICS),
    )
    process.do(sample, count, sample)
    assert cupti.calls == ["enable", "sample", "sample", "disable", "count", "enable", "sample", "sample"]


@pytest.mark.parametrize(
    ("settings", "launches"),
    [
        ({"full_after": 1}, 1),  # the samples of the first launch are left
        ({"samples_of_launch": 1}, 1 + 60),  # it is not repeated forever
    ],
)
def test_how_often_it_is_sampled(measured: Measured, cupti: Cupti, settings: dict[str, int], launches: int) -> None:
    vars(cupti).update(settings)
    _, sampled = measured()
    assert samples_of(sampled).launches == launches


def test_without_permission_each_has_a_reason(measured: Measured, cupti: Cupti) -> None:
    cupti.refusal = "no permission"
    assert [result.refusal for result in measured()] == ["no permission", "no permission"]


def test_a_kernel_that_is_never_sampled_says_so(measured: Measured, cupti: Cupti) -> None:
    cupti.samples_of_launch = 0
    _, sampled = measured()
    assert sampled.refusal == "CUPTI took no sample of it"


def test_no_cupti_is_a_reason(measured: Measured, monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise KprofError("there is no CUPTI")

    monkeypatch.setattr(worker, "find_cupti", find)
    assert [result.refusal for result in measured()] == ["there is no CUPTI"] * 2


# A saved launch is repeated with what the L2 held in the program, as far as its time there tells

L2_BYTES = 1000
LEFT_NS, LONGER_NS, SHORTER_NS = 19_570, 10_000, -5_000


@pytest.fixture
def l2_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerHere]:
    """Its launches take longer if the L2 was emptied before them, and less if their input was read."""
    monkeypatch.setattr(measured_launch, "l2_bytes", lambda: L2_BYTES)
    with worker_here() as made:
        gpu = made.gpu

        def scale(grid: tuple[int, int, int], x: Any, out: Any, n: int) -> int:
            read = [memory.size_bytes for memory in gpu.read]
            gpu.longer_ns = {(): 0, (2 * L2_BYTES,): LONGER_NS, (64,): SHORTER_NS}[tuple(read)]
            gpu.read.clear()
            out[: grid[0]] = x[: grid[0]] * n
            return 1

        gpu.host_kernels = {"scale": scale}
        yield made


L2Of = Callable[..., L2Contents]


@pytest.fixture
def l2_of(l2_process: WorkerHere, scale_launch: Path) -> L2Of:
    """Tell what the L2 held in the program, where the launch took so long."""

    def contents(*program_ns: float) -> L2Contents:
        edit(scale_launch, lambda values: values["clean"].update(times_ns=program_ns, empty_launch_ns=0.0))
        device, saved = FakeDevice(l2_process.gpu), read_saved_launch(scale_launch)
        with loaded_launch(device, saved) as loaded, l2_fills(loaded) as fills:
            return contents_as_in_program(loaded, clean_kernel(saved), fills, times=5)

    return contents


@pytest.mark.parametrize(
    ("program_ns", "expected"),
    [(LEFT_NS + 100, "left"), (LEFT_NS + LONGER_NS - 100, "emptied"), (LEFT_NS + SHORTER_NS + 100, "inputs")],
)
def test_a_launch_finds_what_it_found(l2_of: L2Of, program_ns: int, expected: str) -> None:
    assert l2_of(program_ns) == expected


def test_without_times_in_the_program_nothing_is_done(l2_of: L2Of, l2_process: WorkerHere) -> None:
    assert l2_of() == "left"
    assert l2_process.gpu.ran == []


def test_a_launch_that_reads_nothing_has_no_inputs(l2_of: L2Of, scale_launch: Path, l2_process: WorkerHere) -> None:
    edit(scale_launch, lambda values: [memory.update(after="0" * 16) for memory in values["memory"]])
    assert l2_of(1.0) == "left"
    assert len(l2_process.gpu.ran) == 5 * 2, "each time with the L2 as it was left, and emptied"


def test_no_room_empties_no_l2(l2_of: L2Of, monkeypatch: pytest.MonkeyPatch) -> None:
    lend = FakeDevice.borrowed

    def borrowed(device: FakeDevice, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        if size_bytes == 2 * L2_BYTES:
            raise NoDeviceMemory("out of memory")
        return lend(device, size_bytes, stream)

    monkeypatch.setattr(FakeDevice, "borrowed", borrowed)
    assert l2_of(LEFT_NS + LONGER_NS) == "left"


TIMES: dict[L2Contents, list[float]] = {"left": [10.0, 90.0, 10.0], "inputs": [8.0], "emptied": [14.0]}


@pytest.mark.parametrize(
    ("empty_ns", "program", "expected"),
    [
        (3.0, KernelResources(times_ns=(14.0,), empty_launch_ns=7.0), "left"),
        (3.0, KernelResources(times_ns=(14.0,), empty_launch_ns=3.0), "emptied"),
        (3.0, KernelResources(times_ns=(14.0,)), "emptied"),
        (None, KernelResources(times_ns=(14.0,), empty_launch_ns=3.0), "emptied"),
        (3.0, KernelResources(times_ns=(1.0,), empty_launch_ns=3.0), "inputs"),
        (3.0, KernelResources(), "left"),
    ],
)
def test_launching_is_subtracted_if_known(empty_ns: float | None, program: KernelResources, expected: str) -> None:
    assert as_in_program(TIMES, empty_ns, program) == expected
