"""What fails on the way to a launch or behind it, on the fake GPU: the program computes the same, and is told why."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_gpu.device import FakeDevice
from fake_gpu.kernels import scale
from fake_runs import FakeRuns

from kprof_inject.capture.capture_files import CaptureWriter
from kprof_inject.runtime import step
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Device
from kprof_inject.runtime.launch.launch_capture import LaunchCapture
from kprof_inject.runtime.launch.planned_kernel import PlannedKernel

LAUNCH_BYTES = 16 * (8192 + 128)
NO_SPACE = f"the disk failed: {os.strerror(errno.ENOSPC)}"
# Without ``unaffected_by_graphs`` there would be no clean build to fall back on. ``clear`` is for samples (see
# ``test_sampled_launches.py``), ``current_stream`` for torch's graphs, and ``contents`` for memory with addresses.
NOT_HERE = {"can_save_launches", "clear", "contents", "current_stream", "unaffected_by_graphs"}
OF_DEVICE = sorted(name for name in vars(Device) if not name.startswith("_") and name not in NOT_HERE)
X = torch.arange(1, 17, dtype=torch.float32)


def failing(error: Exception, calls: Counter[str] | None = None) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        if calls is not None:
            calls["failed"] += 1
        raise error

    return fail


def test_too_little_device_memory_takes_a_smaller_buffer(fake_runs: FakeRuns) -> None:
    with fake_runs.here(launches="all") as run:
        run.gpu.largest_block_bytes = LAUNCH_BYTES - 1
        run.launch(1, 2)
    assert {launch.kernel.mode.buffer_bytes for launch in run.launches()} == {2048}
    assert run.saved() == [(0, 1), (1, 2)]
    reasons = [reason for _, _, reason in run.states()]
    assert any("16 CTAs, " in reason and " 2048 bytes " in reason for reason in reasons)


@pytest.mark.triton
def test_no_device_memory_at_all_runs_clean(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.largest_block_bytes = 100
        run.launch(1, 2)
    assert run.ran() == [("scale", False)] * 2
    assert run.states_in_short()["scale", "left alone"] == 1


@pytest.mark.triton
def test_memory_that_runs_out_in_a_graph_does_not_break_it(fake_runs: FakeRuns) -> None:
    """Another build is compiled and loaded while the program captures."""
    with fake_runs.here() as run:
        run.launch(1)
        run.gpu.largest_block_bytes = LAUNCH_BYTES - 1
        out = torch.zeros(16)
        with run.gpu.captured() as graph:
            scale[(16,)](X, out, 2)
        graph.replay()
    assert torch.equal(out, 2 * X)
    assert (2048, True) in {(launch.kernel.mode.buffer_bytes, launch.graph) for launch in run.launches()}


@pytest.mark.triton
def test_a_kernel_that_does_not_load_with_records_runs_clean(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.refuses = lambda kernel: bool(kernel.records)
        run.launch(1, 2)
        kernel = scale[(16,)](X, torch.zeros(16), 3)
    assert run.ran() == [("scale", False)] * 3
    (((name, state, reason), count),) = run.states().items()
    assert (name, state, count) == ("scale", "left alone", 1)
    assert reason.endswith(": Triton Error [CUDA]: out of resources")
    assert "proton" not in kernel.asm["ttgir"]


@pytest.mark.triton
def test_a_kernel_that_does_not_load_at_all_fails_as_without_us(fake_runs: FakeRuns) -> None:
    with fake_runs.here() as run:
        run.gpu.refuses = lambda kernel: True
        for _ in range(2):
            with pytest.raises(RuntimeError, match="out of resources"):
                run.launch(1)
    assert run.ran() == []


@pytest.mark.triton
def test_a_launch_that_fails_is_the_programs_own_failure(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_runs.here(launches="all") as run:
        run.launch(1)
        with monkeypatch.context() as broken:
            broken.setattr(run.gpu, "launch", failing(RuntimeError("misaligned address")))
            with pytest.raises(RuntimeError, match="misaligned address"):
                run.launch(2)
        run.launch(3)
    assert [n for _, n in run.saved()] == [1, 3]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        *((FakeDevice, name) for name in OF_DEVICE),
        (LaunchCapture, "begin"),
        (PlannedKernel, "build_for"),
        (step, "variant_of"),
        (CaptureWriter, "add_launch"),
        (CaptureWriter, "finish"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_faults_reach_no_program(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    out, calls = torch.zeros(16), Counter[str]()
    settings = {"max_bytes": 4 * LAUNCH_BYTES, "saved": fake_runs.all_launches()}
    with fake_runs.here(**settings) as run, monkeypatch.context() as broken:
        broken.setattr(owner, name, failing(ValueError("a fault"), calls))
        run.launch(*range(1, 8))
        run.launch(8, ctas=100)
        run.launch_power(3)
        with run.gpu.captured() as graph:
            scale[(16,)](X, out, 9)
        graph.replay()
        run.capture.finish()
    assert torch.equal(out, 9 * X)
    assert calls["failed"] > 0


def test_a_last_launch_is_copied_again_at_the_end(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch, failed = FakeDevice.fetch, Counter[str]()

    def fail_once(*arguments: Any) -> memoryview:
        monkeypatch.setattr(FakeDevice, "fetch", fetch)
        return failing(NoDeviceMemory("none"), failed)()

    monkeypatch.setattr(FakeDevice, "fetch", fail_once)
    with fake_runs.here() as run:
        run.launch(1)
    assert run.saved() == [(0, 1)]
    assert run.left_out() == {"the host has no memory to copy them to": failed.total()}


def test_a_full_disk_ends_the_capture_and_not_the_program(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    add_launch, written = CaptureWriter.add_launch, []

    def add_two(writer: CaptureWriter, launch: Any, data: Any) -> str:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(launch)
        return add_launch(writer, launch, data)

    monkeypatch.setattr(CaptureWriter, "add_launch", add_two)
    with fake_runs.here(launches="all") as run:
        run.launch(*range(10))
    assert run.saved() == [(0, 0), (1, 1)]
    assert run.left_out() == {NO_SPACE: 8}


def test_a_disk_that_is_full_from_the_beginning_leaves_kernels_alone(fake_runs: FakeRuns) -> None:
    (fake_runs.folder / "here").mkdir()
    (fake_runs.folder / "here" / "capture").write_text("no folder")
    with fake_runs.here(launches="all") as run:
        run.launch(1, 2)
    assert run.ran() == [("scale", False)] * 2
    assert run.states_in_short() == {("scale", "left alone"): 1}


def test_a_device_that_fails_ends_the_capture(fake_runs: FakeRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = "CUDA error: unspecified launch failure"
    with fake_runs.here(launches="all") as run:
        run.launch(1)
        run.capture_has(1)
        monkeypatch.setattr(FakeDevice, "fetch", failing(RuntimeError(f"{failure}\nmore")))
        run.launch(2, 3)
    assert run.saved() == [(0, 1)]
    assert run.left_out() == {f"the device failed: {failure}": 2}
