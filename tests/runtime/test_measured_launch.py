"""A saved launch is measured with its memory restored; what cannot be measured has a reason, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_gpu.repeating import OwnProcessHere, own_process_here

from kprof_inject.capture.measurements import MeasurementsRecord
from kprof_inject.errors import KprofError
from kprof_inject.runtime.counters.cupti import CuptiError
from kprof_inject.runtime.counters.pc_sampler import PcSamples, SampledFunction
from kprof_inject.runtime.experiments.own_process import OwnProcess
from kprof_inject.runtime.experiments.tasks import MeasureLaunch

pytestmark = pytest.mark.triton

METRICS = ("sm__inst_executed.sum", "gpu__time_duration.sum")


@dataclass
class Counters:
    """Stand-ins for CUPTI's range profiler and its sampling: they launch as often as these do."""

    passes: int = 3
    refusal: str = ""
    samples_of_launch: int = 10_000
    full_after: int | None = None
    """Number of batches after which the buffer is full."""
    is_enabled: bool = False
    period_cycles = 256
    batches: list[int] = field(default_factory=list)

    def measure(
        self, metrics: Sequence[str], begin: Callable[[], None], launch: Callable[[], None]
    ) -> tuple[dict[str, float], int]:
        if self.refusal:
            raise CuptiError(self.refusal, 35)
        for _ in range(self.passes):
            begin()
            launch()
        return {metrics[0]: 1000.0, metrics[1]: float("nan")}, self.passes

    @contextmanager
    def enabled(self) -> Iterator[None]:
        if self.refusal:
            raise CuptiError(self.refusal, 35)
        self.is_enabled = True
        yield
        self.is_enabled = False

    @contextmanager
    def sampling(self, samples: PcSamples) -> Iterator[None]:
        assert self.is_enabled
        yield
        if self.full_after is not None and len(self.batches) >= self.full_after:
            raise CuptiError("the device has no memory for its counters", 8)
        self.batches.append(1)
        samples.total += self.samples_of_launch
        samples.by_function[SampledFunction("scale", 1)][16]["wait"] += self.samples_of_launch
        samples.by_function[SampledFunction("memset", 2)][16]["wait"] += self.samples_of_launch


@pytest.fixture
def process(tmp_path: Path) -> Iterator[OwnProcessHere]:
    with own_process_here(tmp_path) as process:
        yield process


def measured(
    process: OwnProcessHere, launch: Path, counters: Counters, monkeypatch: pytest.MonkeyPatch
) -> MeasurementsRecord:
    monkeypatch.setattr(OwnProcess, "counters", lambda self, device: (counters, counters))
    code, (result,) = process.do(MeasureLaunch(launch=str(launch), metrics=METRICS))
    assert code == 0
    assert result is not None and result.measurements is not None, result
    return result.measurements


def test_counters_and_samples(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(process, scale_launch_once, Counters(), monkeypatch)
    assert found.counters is not None
    assert found.counters.metrics == {METRICS[0]: 1000.0}
    assert found.counters.passes == 3
    assert found.samples is not None
    assert found.samples.launches == 1 + 3
    assert [(one.address, dict(one.samples)) for one in found.samples.instructions] == [(16, {"wait": 20_000})]
    assert (found.not_counted, found.not_sampled) == ("", "")


def test_without_permission_there_is_a_reason_for_each(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(process, scale_launch_once, Counters(refusal="no permission"), monkeypatch)
    assert (found.counters, found.samples) == (None, None)
    assert (found.not_counted, found.not_sampled) == ("no permission", "no permission")


def test_a_buffer_that_is_full_leaves_the_samples_of_the_first_launch(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(process, scale_launch_once, Counters(full_after=1), monkeypatch)
    assert found.samples is not None
    assert found.samples.launches == 1


def test_few_samples_of_a_launch_do_not_repeat_it_forever(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = measured(process, scale_launch_once, Counters(samples_of_launch=1), monkeypatch)
    assert found.samples is not None
    assert found.samples.launches == 1 + 60


def test_a_kernel_that_is_never_sampled_says_so(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = Counters()
    counters.sampling = lambda samples: counters.enabled()  # type: ignore[method-assign]
    found = measured(process, scale_launch_once, counters, monkeypatch)
    assert found.samples is None
    assert found.not_sampled == "CUPTI took no sample of it"


def test_where_there_is_no_cupti_the_task_is_refused(
    scale_launch_once: Path, process: OwnProcessHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: OwnProcess, device: object) -> None:
        raise KprofError("there is no CUPTI")

    monkeypatch.setattr(OwnProcess, "counters", refuse)
    code, (result,) = process.do(MeasureLaunch(launch=str(scale_launch_once), metrics=METRICS))
    assert (code, result and result.refusal) == (0, "there is no CUPTI")
