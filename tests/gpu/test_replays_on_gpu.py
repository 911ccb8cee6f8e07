"""Kernels that their program launches too seldom to time them are launched again."""

from __future__ import annotations

import re

import pytest
import torch
from program_runs import ProgramRuns, Run

from kprof_inject.capture.model import Kernel
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver
from kprof_inject.runtime.devices.worker_device import WorkerDevice
from kprof_inject.timeline.trust import Level, judge

RESTORED = {"in_place", "counting", "flagged"}
"""Their launches change what the next one reads."""
REFUSED = {"full": "exceeds the limit", "self_timed": "its own CUDA events"}
OTHERS = (
    "once",
    "thrice",
    "warmed_graph",
    "autotuned",
    "inductor",
    "descriptor",
    "view",
    "locking",
    "pointers",
    "graph",
)

MEMORY = re.compile("torch took .*")


def kernels_of(run: Run) -> list[Kernel]:
    return list({launch.kernel.folder: launch.kernel for launch in run.launches}.values())


@pytest.mark.parametrize("way", [*OTHERS, *sorted(RESTORED)])
def test_a_kernel_launched_seldom_has_a_verdict(runs: ProgramRuns, way: str) -> None:
    bare = runs.start_program("seldom", "--way", way)
    ended, run = runs.profile("seldom", "--at", "func", arguments=("--way", way))
    kernels = kernels_of(run)
    assert MEMORY.findall(ended.stdout) == MEMORY.findall(bare.wait().stdout) != [], ended
    assert kernels
    for kernel in kernels:
        verdict = judge(kernel)
        print(f"{way}: {kernel.name} {verdict.sentence}, {len(kernel.clean.replayed_ns or ())} times")
        assert verdict.level is not Level.UNKNOWN, ended
        assert kernel.clean.replayed_ns and len(kernel.clean.replayed_ns) >= 10


@pytest.mark.parametrize("way", REFUSED)
def test_one_that_cannot_be_launched_again_says_why(runs: ProgramRuns, way: str) -> None:
    ended, run = runs.profile("seldom", "--at", "func", arguments=("--way", way))
    for kernel in kernels_of(run):
        verdict = judge(kernel)
        assert verdict.level is Level.UNKNOWN
        assert REFUSED[way] in verdict.text
        assert re.search(f"no launch of {kernel.name} was saved, .*{REFUSED[way]}", ended.stderr)


def test_what_the_program_might_notice_is_done_on_request(runs: ProgramRuns) -> None:
    _, run = runs.profile("seldom", "--at", "func", "--replay", "12", arguments=("--way", "self_timed"))
    (kernel,) = kernels_of(run)
    assert kernel.clean.replayed_ns and len(kernel.clean.replayed_ns) == 12


def test_memory_is_copied_and_told_apart_to_the_byte() -> None:
    memory = torch.arange(1_000_003, device="cuda").to(torch.uint8)
    stream = torch.cuda.current_stream().cuda_stream
    device = WorkerDevice(Driver(loaded_driver()), torch.cuda.current_device())
    before = memory.clone()
    with device.borrowed(memory.numel(), stream) as buffer:
        device.copy(buffer.data_ptr(), memory.data_ptr(), memory.numel(), stream)
        memory.zero_()
        device.copy(memory.data_ptr(), buffer.data_ptr(), memory.numel(), stream)
        torch.cuda.synchronize()
    assert torch.equal(memory, before)
    address, size_bytes = memory.data_ptr(), memory.numel()
    first = device.digest(address, size_bytes, stream)
    assert first == device.digest(address, size_bytes, stream) != device.digest(address, size_bytes - 1, stream)
    for place in (0, 77_777, size_bytes - 1):
        memory[place] ^= 1
        assert device.digest(address, size_bytes, stream) != first
        memory[place] ^= 1
    memory[[0, 1]] = memory[[1, 0]]
    assert device.digest(address, size_bytes, stream) != first
