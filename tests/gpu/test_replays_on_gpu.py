"""Programs under ``profile --try`` print, compute, allocate and end as alone; kernels that they launch too seldom are
launched again to time them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from program_runs import PROGRAMS, Ended, ProgramRuns, Run

from kprof_inject.capture.model import Kernel
from kprof_inject.runtime.devices.cuda_driver import Driver, loaded_driver
from kprof_inject.runtime.devices.worker_device import WorkerDevice
from kprof_inject.timeline.trust import Level, judge

# Each prints what torch's allocator took. Those of in_place, counting and flagged change what the next launch reads.
WAYS = (
    *("once", "thrice", "graph", "warmed_graph", "autotuned", "inductor", "in_place", "counting", "flagged", "locking"),
    *("pointers", "descriptor", "view"),
)
REFUSED = {"full": "exceeds the limit", "self_timed": "its own CUDA events"}
KINDS = {
    **{way: ("seldom.py", "--way", way) for way in (*WAYS, "self_timed")},
    "Gluon": ("gluon_scale.py",),
    "three processes": ("workers.py",),
    "warp-specialised": ("specialised.py",),
}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ended, Ended, Path]]:
    """Each program alone and under ``profile --try``, and its folder. Several run at once."""

    def both(kind: str) -> tuple[Ended, Ended, Path]:
        name, *arguments = KINDS[kind]
        folder = folders / kind
        folder.mkdir()
        with ProgramRuns(folder) as runs:
            program = (PROGRAMS / name, *arguments, "--save")
            plain = runs.start(*program, "plain.npy")
            ended = runs.start_kprof("profile", "--try", "--at", "func", "--", *program, "with.npy").wait(None)
            return plain.wait(None), ended, folder

    folders = tmp_path_factory.mktemp("profiled")  # in one thread: pytest makes a basis for it first
    with ThreadPoolExecutor(6) as pool:
        return dict(zip(KINDS, pool.map(both, KINDS), strict=True))


def kernels_of(run: Run) -> list[Kernel]:
    kernels = list({launch.kernel.folder: launch.kernel for launch in run.launches}.values())
    assert kernels
    return kernels


@pytest.mark.parametrize("kind", KINDS)
def test_a_program_prints_computes_allocates_and_ends_as_alone(
    profiled: dict[str, tuple[Ended, Ended, Path]], kind: str
) -> None:
    alone, ended, folder = profiled[kind]
    news = [line for line in ended.stdout.splitlines() if "faster" in line or "not tried" in line]
    print(f"{alone.stdout.splitlines()[-1:]}; {'; '.join(news)[:200]}")
    assert ended.exit_code == alone.exit_code, ended
    assert not alone.stdout or ended.stdout.count(alone.stdout) == 1, f"{alone} {ended}"
    ProgramRuns(folder).assert_same_results("plain.npy", "with.npy", ended)


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_launched_seldom_has_a_verdict(profiled: dict[str, tuple[Ended, Ended, Path]], way: str) -> None:
    _, ended, folder = profiled[way]
    for kernel in kernels_of(Run(folder / "kprof_out")):
        verdict = judge(kernel)
        print(f"{kernel.name} {verdict.sentence}, {len(kernel.clean.replayed_ns or ())} times")
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
