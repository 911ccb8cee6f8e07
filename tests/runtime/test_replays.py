"""A kernel is launched again to be timed: without records and with them in turn, and nobody notices."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import time
import types
import weakref
from collections.abc import Iterator
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import triton
from fake_gpu.device import FakeDevice
from fake_gpu.gpu import FakeGpu
from fake_gpu.kernels import cycles_of, power, scale
from fake_runs import FakeRuns, RunHere
from snapshots import check

from kprof_inject.capture.cta_samples import CtaSample
from kprof_inject.capture.model import Kernel
from kprof_inject.runtime.experiments import back_to_back, record_overhead, replays_in_program
from kprof_inject.runtime.experiments.paired_launches import LaunchPairs, PairedLaunches, PairedTimes
from kprof_inject.runtime.experiments.relaunch import NotReplayable, Relaunch
from kprof_inject.runtime.launch import timing
from kprof_inject.runtime.launch.launch_choice import REPLAYS, ReplayChoice
from kprof_inject.runtime.launch.triton_wrapping import Launchable
from kprof_inject.runtime.process_report import read_reports
from kprof_inject.timeline.trust import judge

pytestmark = pytest.mark.triton

FIVE = ReplayChoice(times=5)


def kernel_of(run: RunHere) -> Kernel:
    """The one kernel that was saved."""
    (kernel,) = {launch.kernel.folder: launch.kernel for launch in run.launches()}.values()
    return kernel


def replays(run: RunHere) -> int:
    kernel = kernel_of(run)
    clean, with_records = kernel.clean.replayed_ns or (), kernel.with_records.replayed_ns or ()
    assert len(clean) == len(with_records)
    return len(clean)


def test_a_kernel_is_timed_at_its_first_launch_both_ways(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=FIVE) as run:
        run.launch(3, 4)
        free_bytes = run.gpu.free_bytes
    assert replays(run) == 5
    assert run.saved() == [(1, 4)]
    assert free_bytes == FakeGpu().free_bytes, "memory was not given back"
    verdict = judge(kernel_of(run))
    # As the fake GPU has it: 19,570 ns, and 200 more for each of 4 warps' 2 records.
    assert verdict.overhead is not None
    assert verdict.overhead.percent == pytest.approx(100 * 1600 / 19_570, abs=0.01)


def test_both_sides_take_turns(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=FIVE) as run:
        run.launch(3)
    with_records = [has for _, has in run.ran()]
    assert with_records[-1], "the program's own launch"
    turns = [has for has, _ in groupby(with_records[:-1])]
    assert turns.count(True) >= 5


def test_a_kernel_that_adds_to_what_is_there_finds_it_as_it_was(fake_runs: FakeRuns) -> None:
    """The fake GPU's ``power``, in place: x to the 2 would be x to the 4 if it ran twice."""
    x = torch.arange(1, 17, dtype=torch.float32)
    with fake_runs.here(replays=FIVE) as run:
        power[(16,)](x, x, 2)
        run.gpu.wait()
    assert torch.equal(x, torch.arange(1, 17, dtype=torch.float32) ** 2)
    assert replays(run) == 5


def test_what_is_measured_is_the_first_launch_that_is_kept(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=FIVE, launches="2") as run:
        run.launch(1, 2)
        assert len(run.gpu.ran) == 2
        run.launch(3)
        assert len(run.gpu.ran) > 2
        ran = len(run.gpu.ran)
        run.launch(4)
        assert len(run.gpu.ran) == ran + 1
    assert replays(run) == 5


def test_only_the_kernels_that_need_it_are_launched_again(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=ReplayChoice(only=("another",))) as run:
        run.launch(1)
    assert run.ran() == [("scale", True)]


@pytest.fixture
def self_timed() -> Iterator[None]:
    timing.programs_events.were_recorded = True
    yield
    timing.programs_events.were_recorded = False


@pytest.mark.usefixtures("self_timed")
def test_a_program_that_times_itself_is_asked_first(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=REPLAYS) as run:
        run.launch(1)
    assert run.ran() == [("scale", True)]
    check("runtime/replays", kernel_of(run).not_replayed, "a program that times itself")


def refusal(run: RunHere) -> str:
    assert replays(run) == 0
    assert run.ran()[-1:] == [("scale", True)], "the program's own launch"
    return kernel_of(run).not_replayed


def test_memory_that_the_device_has_no_room_to_save_is_left_alone(fake_runs: FakeRuns) -> None:
    with fake_runs.here(replays=FIVE) as run:
        run.gpu.free_bytes = 100
        run.launch(1)
    check("runtime/replays", refusal(run), "100 bytes")


def test_a_raw_pointer_does_not_say_how_much_lies_behind_it(fake_runs: FakeRuns) -> None:
    x, out = torch.ones(16), torch.zeros(16)
    with fake_runs.here(replays=FIVE) as run:
        run.gpu.host_kernels = {**run.gpu.host_kernels, "scale": scale_at_addresses}
        scale[(16,)](x, SimpleNamespace(data_ptr=out.data_ptr, dtype=out.dtype), 3)
        run.gpu.wait()
    assert out.tolist() == [3.0] * 16
    check("runtime/replays", refusal(run), "SimpleNamespace")


def scale_at_addresses(grid: tuple[int, int, int], x: Any, out: Any, n: int) -> int:
    """The fake GPU's kernel, of arguments that need not be tensors."""
    sides = ((ctypes.c_float * grid[0]).from_address(side.data_ptr()) for side in (x, out))
    source, destination = map(np.ctypeslib.as_array, sides)
    destination[:] = source * n
    return cycles_of(n)


def test_what_ends_a_replay_puts_memory_back(fake_runs: FakeRuns) -> None:
    """Ctrl-C in the midst of it."""
    x = torch.full((16,), 2.0)

    def launch(gpu: FakeGpu, *arguments: object) -> None:
        FakeGpu.launch(gpu, *arguments)  # type: ignore[arg-type]
        if len(gpu.ran) == 4:
            raise KeyboardInterrupt

    with fake_runs.here(replays=FIVE) as run:
        run.gpu.launch = types.MethodType(launch, run.gpu)  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            scale[(16,)](x, x, 3)
        run.gpu.wait()
        assert x.tolist() == [2.0] * 16
        run.gpu.launch = types.MethodType(FakeGpu.launch, run.gpu)  # type: ignore[method-assign]
        scale[(16,)](x, x, 3)
        run.gpu.wait()
        assert x.tolist() == [6.0] * 16
    assert kernel_of(run).not_replayed == "it was interrupted"


def test_the_programs_memory_is_only_read(fake_runs: FakeRuns) -> None:
    """Other threads and streams may use it meanwhile."""
    x, written_to = torch.full((16,), 2.0), []

    def square(grid: tuple[int, int, int], source: torch.Tensor, out: torch.Tensor, n: int) -> int:
        written_to.append(out.data_ptr())
        out[:16] = source[:16] ** n
        return cycles_of(n)

    with fake_runs.here(replays=FIVE) as run:
        run.gpu.host_kernels = {**run.gpu.host_kernels, "power": square}
        power[(16,)](x, x, 2)
        run.gpu.wait()
    assert replays(run) == 5
    assert written_to.index(x.data_ptr()) == len(written_to) - 1, "written by a replay"
    assert x.tolist() == [4.0] * 16


def test_scratch_memory_is_not_the_programs(fake_runs: FakeRuns) -> None:
    calls = []

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        calls.append(size)
        return torch.zeros(size)

    x = torch.ones(16)
    with fake_runs.here(replays=FIVE) as run:
        triton.set_allocator(allocate)
        kernel = scale.warmup(x, x, 3, grid=(16,))
        kernel._init_handles()
        kernel._run._builds.build_for((16, 1, 1), 1 << 30).launch.global_scratch_size = 4
        scale[(16,)](x, x, 3)
        scale[(16,)](x, x, 3)
    assert replays(run) == 5
    assert calls == [64, 64], "of the program's launches"


WAYS_OUT = {
    "measured": {},
    "refused": {"free_bytes": lambda _: 100},
    "copying fails": {"copy": lambda *_: fail()},
    "no memory": {"borrowed": lambda *_: fail()},
    "marking fails": {"timing_mark": lambda *_: fail()},
}


def fail() -> None:
    raise RuntimeError("a fault")


@pytest.mark.parametrize("way", WAYS_OUT)
def test_nothing_keeps_the_programs_tensors(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    """Inductor's graph trees find out by counting references what of their pool may be used again."""
    for name, stand_in in WAYS_OUT[way].items():
        monkeypatch.setattr(FakeDevice, name, stand_in)
    with fake_runs.here(replays=FIVE) as run:
        scale.warmup(torch.ones(16), torch.ones(16), 3, grid=(16,))._init_handles()
        gc.collect()
        gc.disable()
        try:
            x, out = torch.ones(16), torch.zeros(16)
            kept = [weakref.ref(x), weakref.ref(out)]
            scale[(16,)](x, out, 3)
            run.gpu.wait()
            run.gpu.ran.clear()
            del x, out
            assert [one() for one in kept] == [None, None]
        finally:
            gc.enable()


def test_one_in_a_graph_alone_is_not_launched_again(fake_runs: FakeRuns) -> None:
    x = torch.ones(16)
    with fake_runs.here(replays=FIVE) as run:
        scale.warmup(x, x, 3, grid=(16,))._init_handles()
        with run.gpu.captured() as graph:
            scale[(16,)](x, x, 3)
        graph.replay()
        assert run.ran() == [("scale", True)]
    check("runtime/replays", refusal(run), "a graph alone")
    assert [note.refusal for note in read_reports(run.reports).replays] == [refusal(run)]


def test_a_host_that_is_slower_than_the_device_gets_no_times(fake_runs: FakeRuns) -> None:
    x = torch.ones(16)
    with fake_runs.here(replays=FIVE) as run:
        run.gpu.host_ns = 1_000_000_000
        scale[(16,)](x, x, 3)
    check("runtime/replays", refusal(run), "a slow host")


def test_launches_are_queued_again_where_the_device_had_begun_before_all_were() -> None:
    gpu = FakeGpu()
    gpu.host_ns = back_to_back.MIN_HOLD_NS + 1
    timed = back_to_back.BackToBack(FakeDevice(gpu), 0, None, restores=False)  # type: ignore[arg-type]
    launched = []

    def launch() -> None:
        time.sleep(0.001)
        launched.append(gpu.host_ns)

    timed.queued([launch])
    assert timed.was_held and len(launched) == 2
    gpu.host_ns = 1_000_000_000
    timed.queued([launch])
    assert not timed.was_held


@pytest.mark.parametrize("pair_s", [0.001, 0.1, 3.0])
def test_replays_of_a_process_take_no_longer_than_their_limit(monkeypatch: pytest.MonkeyPatch, pair_s: float) -> None:
    """But for what was begun when it was reached: five pairs of launches."""
    now = [0.0]

    def run(launches: Any, until_s: float, max_rounds: int, is_enough: Any, min_rounds: int) -> PairedTimes:
        rounds = max(min(int((until_s - now[0]) / pair_s), max_rounds), min_rounds)
        now[0] += rounds * pair_s
        pairs = LaunchPairs([21_000.0] * rounds, [20_000.0] * rounds)
        return PairedTimes([pairs], [], 1, True, rounds * pair_s, "time")

    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr(replays_in_program, "time", clock)
    monkeypatch.setattr(record_overhead, "time", clock)
    monkeypatch.setattr(record_overhead, "_empty_times", lambda *_: (0.0, 0.0))
    monkeypatch.setattr(PairedLaunches, "run", run)
    metadata = SimpleNamespace(target=None, num_warps=4, shared=0)
    clean = Launchable(lambda *_: None, None, None, metadata)
    table = SimpleNamespace(relaunch=SimpleNamespace(refusal="", waits=False))
    record = SimpleNamespace(scope_table=table, known_metadata=metadata, name="kernel")
    build: Any = SimpleNamespace(
        record=record,
        buffer_bytes=lambda grid: 128,
        sample=lambda grid: CtaSample(1, 1, 0),
        launch=None,
        function=None,
        packed_metadata=None,
        variant="kernel-1",
    )
    session: Any = SimpleNamespace(replays=REPLAYS, launches="last")
    replays = replays_in_program.KernelReplays(FakeDevice(FakeGpu()), session, None)  # type: ignore[arg-type]
    measured = 0
    for _ in range(1000):
        with contextlib.suppress(NotReplayable):
            replays.require_allowed(table.relaunch)  # type: ignore[arg-type]
            replays.replayed(build, clean, Relaunch((1, 1, 1), 0, ()), ())
            measured += 1
    assert now[0] <= 20.0 + 5 * pair_s
    assert measured > 3 or pair_s > 1
