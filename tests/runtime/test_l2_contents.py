"""A saved launch is repeated with what the L2 held in the program, as far as its time there tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from fake_gpu.device import FakeDevice
from fake_gpu.repeating import WorkerHere, worker_here
from launch_files import edit

from kprof_inject.capture.measurements import L2Contents
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.saved_launch import read_saved_launch
from kprof_inject.runtime.devices.cuda_driver import NoDeviceMemory
from kprof_inject.runtime.devices.device import Buffer
from kprof_inject.runtime.worker import measured_launch
from kprof_inject.runtime.worker.loaded_launch import loaded_launch
from kprof_inject.runtime.worker.measured_launch import as_in_program, contents_as_in_program, l2_fills
from kprof_inject.runtime.worker.worker import clean_kernel

pytestmark = pytest.mark.triton

L2_BYTES = 1000
LEFT_NS, LONGER_NS, SHORTER_NS = 19_570, 10_000, -5_000


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerHere]:
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


def l2_of(process: WorkerHere, launch: Path, *program_ns: float) -> L2Contents:
    """What the L2 held in the program, where the launch took so long."""
    edit(launch, lambda values: values["clean"].update(times_ns=program_ns, empty_launch_ns=0.0))
    device, saved = FakeDevice(process.gpu), read_saved_launch(launch)
    with loaded_launch(device, saved) as loaded, l2_fills(loaded) as fills:
        return contents_as_in_program(loaded, clean_kernel(saved), fills, times=5)


@pytest.mark.parametrize(
    ("program_ns", "expected"),
    [(LEFT_NS + 100, "left"), (LEFT_NS + LONGER_NS - 100, "emptied"), (LEFT_NS + SHORTER_NS + 100, "inputs")],
)
def test_a_launch_finds_what_it_found_in_the_program(
    scale_launch: Path, process: WorkerHere, program_ns: int, expected: str
) -> None:
    assert l2_of(process, scale_launch, program_ns) == expected


def test_without_times_in_the_program_nothing_is_done(scale_launch: Path, process: WorkerHere) -> None:
    assert l2_of(process, scale_launch) == "left"
    assert process.gpu.ran == []


def test_a_launch_that_reads_nothing_has_no_inputs(scale_launch: Path, process: WorkerHere) -> None:
    edit(scale_launch, lambda values: [memory.update(after="0" * 16) for memory in values["memory"]])
    assert l2_of(process, scale_launch, 1.0) == "left"
    assert len(process.gpu.ran) == 5 * 2, "each time with the L2 as it was left, and emptied"


def test_without_room_the_l2_is_not_emptied(
    scale_launch: Path, process: WorkerHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    lend = FakeDevice.borrowed

    def borrowed(device: FakeDevice, size_bytes: int, stream: int) -> AbstractContextManager[Buffer]:
        if size_bytes == 2 * L2_BYTES:
            raise NoDeviceMemory("out of memory")
        return lend(device, size_bytes, stream)

    monkeypatch.setattr(FakeDevice, "borrowed", borrowed)
    assert l2_of(process, scale_launch, LEFT_NS + LONGER_NS) == "left"


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
def test_what_launching_takes_is_subtracted_if_both_are_known(
    empty_ns: float | None, program: KernelResources, expected: str
) -> None:
    assert as_in_program(TIMES, empty_ns, program) == expected
