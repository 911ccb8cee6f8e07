"""Which launches are timed, and that a program's own timings have nothing of ours in them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from fake_runs import FakeRuns, RunHere
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.runtime.launch import timing
from kprof_inject.runtime.launch.launcher import TimingLauncher
from kprof_inject.runtime.launch.timing import SAMPLES, EmptyKernel
from kprof_inject.runtime.launch.triton_wrapping import benchmarking
from kprof_inject.timeline.trust import judge

pytestmark = pytest.mark.triton

LAUNCHES = 12


class _BaseEvent:
    """It has no weak references: torch leaves those to its own dangling."""

    __slots__ = ()

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Any:
        return super().__new__(cls)

    def record(self, stream: Any = None) -> str:
        return f"recorded on {stream}"


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """torch's class of events, of a torch that has some."""

    class Event(_BaseEvent):
        __slots__ = ()

        def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> Any:
            return super().__new__(cls, enable_timing, blocking=blocking)

        def record(self, stream: Any = None) -> str:
            return super().record(stream)

    monkeypatch.setattr(timing, "programs_events", timing._ProgramsEvents())
    timing.watch_events_of(SimpleNamespace(Event=Event))  # type: ignore[arg-type]
    yield Event


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What of ours stands on the program's streams, beside launches."""
    names: list[str] = []
    for name in ("hold", "timing_mark"):
        original = getattr(FakeDevice, name)

        def note(*args: Any, name: str = name, original: Any = original) -> Any:
            names.append(name)
            return original(*args)

        monkeypatch.setattr(FakeDevice, name, note)
    return names


def timing_of(run: RunHere) -> dict[str, Any]:
    (path,) = run.folder.glob("*/kernels/*/timing.json")
    return dict(json.loads(path.read_text()))


def test_a_program_with_own_times_has_none_of_ours_between(fake_runs: FakeRuns, event: Any, queued: list[str]) -> None:
    with fake_runs.here() as run:
        run.launch(1)  # saved at once, lest nothing is left of a program that is killed
        queued.clear()
        for n in range(LAUNCHES):
            start, end = event(enable_timing=True), event(True)
            assert start.record("a stream") == "recorded on a stream"
            run.launch(n)
            end.record()
    assert queued == []
    (launch,) = read_capture(run.folder).launches
    verdict = judge(launch.kernel)
    assert verdict.overhead is None
    check("runtime/timing", verdict.text.rpartition("; ")[2], "own CUDA events")


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(lambda event: event().record(), id="an event without time"),
        pytest.param(lambda event: event(enable_timing=True), id="one that is never recorded"),
        pytest.param(lambda event: benchmarking(event(enable_timing=True).record)(), id="an autotuner's"),
    ],
)
def test_what_is_no_timing_of_the_programs_own_leaves_ours_on(fake_runs: FakeRuns, event: Any, record: Any) -> None:
    with fake_runs.here() as run:
        record(event)
        run.launch(*range(LAUNCHES))
    timed = timing_of(run)
    assert len(timed["times_ns"]) == LAUNCHES - 3 and not timed.get("not_timed")


def test_launches_before_the_programs_first_event_stay_timed(fake_runs: FakeRuns, event: Any) -> None:
    with fake_runs.here() as run:
        run.launch(*range(8))
        event(True).record()
        run.launch(*range(8))
    timed = timing_of(run)
    assert (len(timed["times_ns"]), timed["not_timed"]) == (5, timing.TIMES_ITSELF)


class _Kernel:
    """What a launcher is kept by."""

    def __init__(self) -> None:
        self.launched: list[tuple[int, ...]] = []
        self._run: Any = lambda *args: self.launched.append(args)


def test_when_enough_is_timed_the_launcher_is_the_kernels_own_again() -> None:
    kernel, timer = _Kernel(), timing.LaunchTimer(FakeDevice(FakeGpu()), EmptyKernel(128, 0))
    own = kernel._run
    kernel._run = TimingLauncher(kernel, timer)
    launches = 0
    while kernel._run is not own:
        kernel._run(1, 1, 1, 0, None, None, None, None, None, launches)
        launches += 1
    assert kernel.launched == [(1, 1, 1, 0, None, None, None, None, None, number) for number in range(launches)]
    assert len(timer.times_ns()) == 50


def test_an_empty_kernel_of_its_shape_tells_what_launching_takes(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.launching_ns = 2_500
        run.launch(*range(LAUNCHES))
    (launch,) = read_capture(run.folder).launches
    recorded, metadata = launch.kernel.with_records, launch.kernel.metadata
    assert recorded.empty_launch_ns == pytest.approx(2_500)
    assert {*run.gpu.empty} == {(metadata["num_warps"] * 32, metadata["shared"])}
    assert 1 <= len(run.gpu.empty) <= SAMPLES
    assert recorded.times_ns and recorded.without_launching().times_ns == pytest.approx(
        [time_ns - 2_500 for time_ns in recorded.times_ns]
    )


def test_launches_that_the_device_began_before_they_were_queued_do_not_count(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.host_ns = 300_000  # the hold is 100, 200 and 400 us
        run.launch(*range(LAUNCHES))
    (launch,) = read_capture(run.folder).launches
    # One launch and one empty kernel were too early.
    assert len(launch.kernel.with_records.times_ns or ()) == LAUNCHES - 3 - 1


def test_a_host_that_is_always_slower_than_the_device_gets_no_times_but_a_reason(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.host_ns = 10_000_000
        run.launch(*range(LAUNCHES))
    (launch,) = read_capture(run.folder).launches
    recorded = launch.kernel.with_records
    assert not recorded.times_ns and recorded.empty_launch_ns is None
    check("runtime/timing", judge(launch.kernel).text.rpartition("; ")[2], "a slow host")


def test_no_empty_kernel_runs_where_launches_are_not_timed(fake_runs: FakeRuns, event: Any) -> None:
    with fake_runs.here() as run:
        event(True).record()
        run.launch(*range(LAUNCHES))
    assert run.gpu.empty == []
