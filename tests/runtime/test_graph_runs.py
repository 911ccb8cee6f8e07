"""A launch in a CUDA graph is saved when the graph runs for the first time, with the memory that it finds."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_gpu.gpu import FakeGpu, Graph
from fake_gpu.kernels import scale
from fake_gpu.saving import saving, tensors

from kprof_inject.runtime.launch.triton_wrapping import before_first_run, watch_graphs_of


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
