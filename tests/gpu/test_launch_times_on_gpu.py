"""Times by events without what launching takes are the kernel's own, by the device's timer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from gpu_support import EXAMPLES
from program_runs import ProgramRuns

from kprof_inject.capture.reader import read_capture
from kprof_inject.runtime.devices.device import devices_of_process
from kprof_inject.runtime.launch.timing import EmptyKernel, LaunchTimer
from kprof_inject.runtime.worker.paired_launches import BackToBack, empty_ns
from kprof_inject.timeline.timeline import decode_launch
from kprof_inject.timeline.trust import judge
from kprof_inject.workspace import Workspace

pytestmark = pytest.mark.alone
LAUNCHES = 60
# What a CTA does before it reads the timer and after it has, and the timer's own steps.
MOST_NS, MOST_SHARE = 700, 0.01


@triton.jit
def read_timer():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def spin(times_ptr, sink_ptr, rounds):
    begin = read_timer()
    pid = tl.program_id(0)
    value = pid.to(tl.float32)
    for _ in range(rounds):
        for _ in tl.static_range(16):
            value = value * 0.999 + 1.0
    tl.store(sink_ptr + pid, value)
    end = read_timer()
    tl.store(times_ptr + 2 * pid, begin)
    tl.store(times_ptr + 2 * pid + 1, end)


class Spins:
    """Launches of the kernel, each of which writes its times to a place of its own."""

    def __init__(self, ctas: int, rounds: int) -> None:
        self.times = torch.zeros(LAUNCHES, ctas, 2, dtype=torch.int64, device="cuda")
        self.sink = torch.zeros(ctas, device="cuda")
        self.ctas, self.rounds, self.count = ctas, rounds, 0
        self.compiled = self.launch()

    def launch(self) -> Any:
        times = self.times[self.count % LAUNCHES]
        self.count += 1
        return spin[(self.ctas,)](times, self.sink, self.rounds)

    def own_ns(self) -> float:
        """From the first CTA's begin to the last one's end: the median of the launches."""
        torch.cuda.synchronize()
        times = self.times[: min(self.count, LAUNCHES)].cpu()
        return float((times[:, :, 1].amax(1) - times[:, :, 0].amin(1)).median())


def assert_own(what: str, timed_ns: float, launching_ns: float, own_ns: float) -> None:
    corrected_ns = timed_ns - launching_ns
    print(
        f"{what}: {timed_ns:.0f} ns by events, {launching_ns:.0f} ns of an empty kernel, "
        f"{corrected_ns:.0f} ns without, {own_ns:.0f} ns by the device's timer ({corrected_ns - own_ns:+.0f} ns)"
    )
    assert abs(corrected_ns - own_ns) <= MOST_NS + MOST_SHARE * own_ns


@pytest.mark.parametrize("ctas", [1, 132, 1000])
@pytest.mark.parametrize("rounds", [1, 300, 2000])
def test_single_launches(ctas: int, rounds: int) -> None:
    spins, device = Spins(ctas, rounds), devices_of_process()
    timer = LaunchTimer(device, EmptyKernel.like(spins.compiled.metadata))
    stream = device.current_stream()
    for _ in range(LAUNCHES):
        start = timer.begin(stream)
        spins.launch()
        if start is not None:
            timer.end(start, stream)
    own_ns, launching_ns = spins.own_ns(), timer.empty_ns()
    assert launching_ns is not None and 1_000 < launching_ns < 10_000
    assert_own(f"{ctas} CTAs, {rounds} rounds", median(timer.times_ns()), launching_ns, own_ns)


@pytest.mark.parametrize("launches", [1, 5, 20])
@pytest.mark.parametrize("rounds", [50, 300])
def test_launches_back_to_back(launches: int, rounds: int) -> None:
    spins, device = Spins(132, rounds), devices_of_process()
    timed = BackToBack(device, device.current_stream(), None, launches, restores=False)  # type: ignore[arg-type]
    several: list[Callable[[], None]] = [spins.launch] * 8
    for _ in range(2):  # the first loads the kernel, and shows how long the host takes
        times_ns = timed.times_ns(timed.queued(several))
    launching_ns = empty_ns(timed, EmptyKernel.like(spins.compiled.metadata))
    assert timed.was_held and launching_ns is not None
    assert_own(f"{launches} back to back, {rounds} rounds", median(times_ns), launching_ns, spins.own_ns())


@pytest.mark.parametrize("stages", [1, 3])
def test_a_matmul_with_records(tmp_path: Path, stages: int) -> None:
    """Of another shape: by its records it takes from its first CTA's begin until the last has copied them."""
    workspace, program = tmp_path / "ws", ("--", EXAMPLES / "matmul.py", "--repeat", "40", "--num-stages", str(stages))
    with ProgramRuns(tmp_path) as runs:
        runs.start_kprof("dump", "-o", workspace, *program).wait()
        runs.start_kprof("insert", workspace, "--at", "func").wait()
        runs.start_kprof("run", workspace, "--launches", "all", *program).wait()
        (capture,) = Workspace.open(workspace).capture_folders()
        launches = [launch for launch in read_capture(capture).launches if launch.index >= 3]
        ctas = [decode_launch(launch).ctas for launch in launches]
        own_ns = median(int(one["post_final_ns"].max() - one["init_ns"].min()) for one in ctas)
        kernel = launches[0].kernel
        verdict = judge(kernel)
    timed = kernel.with_records
    assert not verdict.has_launching and timed.times_ns and timed.empty_launch_ns is not None
    assert_own(f"matmul, {stages} stages", median(timed.times_ns), timed.empty_launch_ns, own_ns)
    assert verdict.clean_ns is not None and verdict.clean_ns < own_ns + MOST_NS
