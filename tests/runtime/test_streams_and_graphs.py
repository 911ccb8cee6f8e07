"""Launches on several streams, by several threads, and in CUDA graphs, on the fake GPU."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpu.captured import number_of
from fake_gpu.gpu import FakeGpu, Graph
from fake_gpu.kernels import scale
from fake_gpu.saving import saving, tensors
from fake_runs import FakeRuns, RunHere
from snapshots import check

from kprof_inject.capture.reader import read_capture
from kprof_inject.runtime.launch.triton_wrapping import before_first_run, watch_graphs_of

X = torch.arange(1, 17, dtype=torch.float32)


def saved_by_stream(run: RunHere) -> set[tuple[int, int]]:
    return {(launch.stream, number_of(launch)) for launch in run.launches()}


def test_two_streams_never_share_a_buffer(fake_runs: FakeRuns) -> None:
    """The second stream's launch is made first and runs last."""
    with fake_runs.here(launches="all") as run, run.gpu.held(7):
        with run.gpu.on_stream(7):
            scale[(16,)](X, torch.zeros(16), 1)
        for n in (2, 3):
            scale[(16,)](X, torch.zeros(16), n)
    assert saved_by_stream(run) == {(7, 1), (0, 2), (0, 3)}


def test_the_last_launch_is_the_one_that_was_made_last_on_any_stream(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.launch(1)
        with run.gpu.held(7):
            with run.gpu.on_stream(7):
                scale[(16,)](X, torch.zeros(16), 2)
            scale[(16,)](X, torch.zeros(16), 3)
            with run.gpu.on_stream(7):
                scale[(16,)](X, torch.zeros(16), 4)
    assert saved_by_stream(run) == {(7, 4)}


def test_a_buffer_is_read_only_when_its_launch_has_run(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all") as run, run.gpu.held():
        for n in (1, 2, 3):
            scale[(16,)](X, torch.zeros(16), n)
        time.sleep(0.05)
        assert list(run.folder.glob("*/launch-*.bin")) == []
    assert run.saved() == [(0, 1), (1, 2), (2, 3)]


def test_a_launch_that_is_saved_frees_its_buffer(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all") as run:
        run.launch(1, ctas=70)
        deadline = time.monotonic() + 30
        while run.gpu.has_block_of(70 * (8192 + 128)):
            assert time.monotonic() < deadline
            time.sleep(0.005)
    assert run.saved() == [(0, 1)]


def test_launching_never_waits_for_the_device(fake_runs: FakeRuns) -> None:
    """Neither for a launch, nor for a copy: the stream stands still all the while."""
    with fake_runs.here(launches="last") as run:
        run.launch(1)
        with run.gpu.held():
            for n in range(2, 200):
                scale[(16,)](X, torch.zeros(16), n)
            assert len(run.gpu.ran) == 1
    assert run.saved() == [(198, 199)]


def test_threads_that_launch_at_once_lose_and_mix_nothing(fake_runs: FakeRuns) -> None:
    threads, launches = 4, 40

    def launch(run: RunHere, thread: int) -> None:
        with run.gpu.on_stream(thread % 2):  # two of them on each stream
            for number in range(launches):
                scale[(16,)](X, torch.zeros(16), thread * launches + number)

    with fake_runs.here(launches="all") as run:
        together = [threading.Thread(target=launch, args=(run, number)) for number in range(threads)]
        for thread in together:
            thread.start()
        for thread in together:
            thread.join()
    indices, numbers = zip(*run.saved(), strict=True)
    assert list(indices) == list(range(threads * launches))
    assert sorted(numbers) == list(range(threads * launches))
    assert (run.left_out(), run.states_in_short()) == ({}, {("scale", "instrumented"): 1})


@pytest.mark.triton
def test_the_last_replay_of_a_graph_is_saved(fake_runs: FakeRuns) -> None:
    out = torch.zeros(16)
    with fake_runs.here() as run:
        run.launch(1)  # programs warm up first
        with run.gpu.captured() as graph:
            scale[(16,)](X, out, 2)
        assert (len(run.gpu.ran), out.sum()) == (1, 0)
        for _ in range(3):
            graph.replay()
    assert torch.equal(out, 2 * X)
    assert [(launch.graph, number_of(launch)) for launch in run.launches()] == [(True, 2)]
    assert run.left_out() == {}
    assert run.gpu.freed_writes == 0


@pytest.mark.triton
def test_each_launch_of_a_graph_that_is_wanted_is_saved(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all") as run:
        run.launch(1)
        with run.gpu.captured() as graph:
            for n in (2, 3):
                scale[(16,)](X, torch.zeros(16), n)
        graph.replay()
        graph.replay()
    assert [(launch.index, launch.graph, number_of(launch)) for launch in run.launches()] == [
        (0, False, 1),
        (1, True, 2),
        (2, True, 3),
    ]


@pytest.mark.triton
def test_a_graph_that_never_ran_leaves_the_launch_before_it(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.launch(1)
        with run.gpu.captured():
            scale[(16,)](X, torch.zeros(16), 2)
    assert [(launch.graph, number_of(launch)) for launch in run.launches()] == [(False, 1)]
    ((reason, count),) = run.left_out().items()
    assert count == 1
    check("runtime/streams_and_graphs", reason)


@pytest.mark.triton
def test_a_launch_in_a_graph_takes_no_buffer_of_launches_outside(fake_runs: FakeRuns) -> None:
    """After three launches, the stream has a free buffer for a fourth one with the same grid."""
    with fake_runs.here() as run:
        run.launch(1, 2, 3)
        with run.gpu.captured() as graph:
            scale[(16,)](X, torch.zeros(16), 4)
        run.launch(5)
        graph.replay()
    assert [(launch.graph, number_of(launch)) for launch in run.launches()] == [(True, 4)]


@pytest.mark.triton
def test_graphs_stay_replayable_when_their_kernel_is_launched_on(fake_runs: FakeRuns) -> None:
    """A graph keeps the address of its buffer: larger grids, and launches outside, must not take it away."""
    with fake_runs.here() as run:
        run.launch(1)
        with run.gpu.captured() as small:
            scale[(4,)](X, torch.zeros(16), 2)
        with run.gpu.captured() as large:
            scale[(16,)](X, torch.zeros(16), 3)
        run.launch(4)
        small.replay()
        large.replay()
        small.replay()
    assert run.gpu.freed_writes == 0


# When the host made a launch


def launch(run: RunHere, n: int) -> int:
    """Make a launch; returns a time in the midst of the call."""
    inside: list[int] = []

    def launch_on_device(*arguments: Any) -> None:
        inside.append(time.time_ns())
        type(run.gpu).launch(run.gpu, *arguments)

    run.gpu.launch = launch_on_device  # type: ignore[method-assign]
    scale[(16,)](torch.ones(16), torch.zeros(16), n)
    return inside[0]


def times_in(folder: Path) -> list[tuple[int, int]]:
    found = [(launch.host_ns, launch.host_end_ns) for launch in read_capture(folder).launches]
    return [(begin, end) for begin, end in found if end is not None]


@pytest.mark.triton
@pytest.mark.parametrize("launches", ["last", "all"])
def test_the_call_of_a_launch_is_between_its_times(fake_runs: FakeRuns, launches: str) -> None:
    with fake_runs.here(launches=launches) as run:
        inside = [launch(run, n) for n in (1, 2)]
        after_ns = time.time_ns()
    times = times_in(run.folder)
    assert len(times) == (1 if launches == "last" else 2)
    assert all(begin <= at <= end for (begin, end), at in zip(times, inside[-len(times) :], strict=True))
    assert all(end <= begin for (_, end), (begin, _) in pairwise([*times, (after_ns, 0)]))


@pytest.mark.triton
@pytest.mark.parametrize("launches", ["last", "all"])
def test_of_a_graph_it_is_the_call_that_was_captured(fake_runs: FakeRuns, launches: str) -> None:
    with fake_runs.here(launches=launches) as run:
        launch(run, 1)
        with run.gpu.captured() as graph:
            inside = launch(run, 2)
        captured_ns = time.time_ns()
        graph.replay()
    begin, end = times_in(run.folder)[-1]
    assert begin <= inside <= end <= captured_ns


# A launch in a CUDA graph is saved when the graph runs for the first time, with the memory that it finds


def graph_class() -> Any:
    """What torch has as ``CUDAGraph``, on the fake GPU, watched."""

    class CUDAGraph:
        def __init__(self, gpu: FakeGpu) -> None:
            self.gpu = gpu
            self.graph: Graph | None = None
            self.capturing = ExitStack()

        def capture_begin(self, pool: Any = None) -> None:
            self.graph = self.capturing.enter_context(self.gpu.captured())

        def capture_end(self) -> None:
            self.capturing.close()

        def replay(self) -> None:
            assert self.graph is not None
            self.graph.replay()

    watch_graphs_of(SimpleNamespace(CUDAGraph=CUDAGraph))  # type: ignore[arg-type]
    return CUDAGraph


def test_an_action_is_done_once_before_the_graph_runs() -> None:
    gpu = FakeGpu()
    done: list[str] = []
    assert not before_first_run(lambda: done.append("never"))
    first, second = graph_class()(gpu), graph_class()(gpu)
    first.capture_begin(pool=1)
    assert before_first_run(lambda: done.append("first"))
    assert before_first_run(lambda: done.append("again"))
    first.capture_end()
    second.capture_begin()
    second.capture_end()
    assert not before_first_run(lambda: done.append("never"))
    second.replay()
    assert done == []
    first.graph.work.append(lambda: done.append("ran"))
    first.replay()
    first.replay()
    assert done == ["first", "again", "ran", "ran"]


@pytest.mark.triton
def test_a_launch_in_a_graph_is_saved_with_the_memory_of_its_first_run(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()
        graph = graph_class()(saved.gpu)
        graph.capture_begin()
        scale[(16,)](x, out, 3)
        scale[(16,)](x, out, 5)
        graph.capture_end()
        saved.finish()
        assert not saved.folders
        x += torch.arange(1, 17)
        graph.replay()
        x.zero_()
        graph.replay()
        saved.finish()
        assert out.tolist() == [0.0] * 16
    launch = saved.launch()
    assert launch.record.graph
    contents = {
        memory.address: torch.frombuffer(bytearray(next(launch.chunks(memory))[1]), dtype=torch.float32)
        for memory in launch.record.memory
    }
    assert contents[x.data_ptr()].tolist() == list(range(1, 17))
    assert all(memory.after is None for memory in launch.record.memory), "others in the graph ran after it"
    assert not saved.refusals()


@pytest.mark.triton
def test_a_launch_outside_is_saved_instead_of_one_in_a_graph_that_never_ran(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()
        graph = graph_class()(saved.gpu)
        graph.capture_begin()
        scale[(16,)](x, out, 3)
        graph.capture_end()
        scale[(16,)](x, out, 4)
        graph.replay()
    launch = saved.launch()
    assert not launch.record.graph
    assert launch.record.arguments[2].value == "4"  # type: ignore[union-attr]


@pytest.mark.triton
def test_a_graph_of_another_kind_is_a_reason(tmp_path: Path) -> None:
    with tensors(16, 16) as (x, out), saving(tmp_path) as saved:
        scale.warmup(x, out, 3, grid=(16,))._init_handles()
        with saved.gpu.captured():
            scale[(16,)](x, out, 3)
    assert saved.refusals() == ["it was captured into a graph without torch's class for graphs"]
    assert not saved.folders
