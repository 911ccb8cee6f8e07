"""When the host made a launch: before the call and after it."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_gpu.kernels import scale
from fake_runs import FakeRuns, RunHere

from kprof_inject.capture.reader import read_capture

pytestmark = pytest.mark.triton


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


@pytest.mark.parametrize("launches", ["last", "all"])
def test_the_call_of_a_launch_is_between_its_times(fake_runs: FakeRuns, launches: str) -> None:
    with fake_runs.here(launches=launches) as run:
        inside = [launch(run, n) for n in (1, 2)]
        after_ns = time.time_ns()
    times = times_in(run.folder)
    assert len(times) == (1 if launches == "last" else 2)
    assert all(begin <= at <= end for (begin, end), at in zip(times, inside[-len(times) :], strict=True))
    assert all(end <= begin for (_, end), (begin, _) in pairwise([*times, (after_ns, 0)]))


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
