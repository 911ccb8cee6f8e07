"""Changes that ended waits for flags, against what the kernels themselves stored: matched or unknown, never wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from flag_truth import judged
from gpu_support import EXAMPLES, Kprof

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.foreign import timelines_of
from kprof_inject.timeline.holders import flag_waits
from kprof_inject.timeline.task_runs import task_statistics
from kprof_inject.timeline.wait_ends import WaitEnds, wait_ends

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM = PROGRAMS / "flags.py"
CTAS, LATE_NS = 64, 20_000
LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
GATHER = EXAMPLES / "gather_matmul.py"
BLOCKS, SENDERS = 8, 4
DIGEST = re.compile(r"rank (\d) of 2, .* sha256 (\w+)")


def launch_of(ends: WaitEnds, visit: Any) -> Any:
    return ends.visits.launches[visit["launch"]].timeline.launch


def alone(capture: Path, kernel: str) -> list[WaitEnds]:
    """Return the matched waits of each launch of a kernel, each by itself, in the order of the launches."""
    launches = [launch for launch in read_capture(capture).launches if launch.kernel.name == kernel]
    return [wait_ends(place_launches(list(timelines_of([launch]))))[0] for launch in launches]


@pytest.fixture(params=[(), ("--late-cta", "5")], ids=["alike", "late"])
def flags(kprof: Kprof, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any], bool]:
    capture, truth = ran(kprof, tmp_path, *request.param)
    return capture, truth, bool(request.param)


@pytest.fixture
def late(kprof: Kprof, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    return ran(kprof, tmp_path, "--late-cta", "5")


def ran(kprof: Kprof, tmp_path: Path, *words: str) -> tuple[Path, dict[str, Any]]:
    truth = tmp_path / "truth.json"
    ended = kprof("profile", "-o", tmp_path / "ws", "--launches", "all", "--", sys.executable, PROGRAM, truth, *words)
    print(ended.stdout)
    return tmp_path / "ws/captures/001", json.loads(truth.read_text())


def test_flags_of_one_gpu(flags: tuple[Path, dict[str, Any], bool]) -> None:
    capture, truth, is_late = flags

    def is_last(ends: WaitEnds, wait: Any, change: Any) -> bool:
        same = change["launch"] == wait["launch"] and change["round"] == wait["round"]
        return bool(same and truth["barrier_kernel"][wait["launch"]][wait["round"]] == change["cta"])

    def is_part(ends: WaitEnds, wait: Any, change: Any) -> bool:
        seen = truth["stream_k_kernel"][wait["launch"]][wait["cta"]]
        return bool(change["launch"] == wait["launch"] and seen[wait["round"]] == change["cta"])

    for kernel, judge in (("barrier_kernel", is_last), ("stream_k_kernel", is_part)):
        found = judged(capture, judge, kernel)
        print(kernel, dict(found))
        assert not found["wrong"]
        if is_late or kernel == "stream_k_kernel":
            assert found["right"] >= 0.95 * (found["right"] + sum(found[name] for name in found if "unknown" in name))


def test_a_late_cta_is_named_in_every_launch(late: tuple[Path, dict[str, Any]]) -> None:
    """In each round of the barrier, another CTA is late."""
    capture, truth = late
    launches = alone(capture, "barrier_kernel")
    assert len(launches) == len(truth["barrier_kernel"]) == 22
    for ends, lasts in zip(launches, truth["barrier_kernel"], strict=True):
        (waits,) = flag_waits([ends])
        found = {holder.cta: holder for holder in waits.holders}
        assert set(found) <= set(lasts)
        for holder in found.values():
            assert holder.late_ns == pytest.approx(LATE_NS, rel=0.1)
            assert holder.ctas == CTAS - 1


def test_a_late_task_is_named_in_every_launch(kprof: Kprof, tmp_path: Path) -> None:
    words = ("--at", "func", "--at", "spin", "--at", "signal", "--at", "iter[0]", "--tag", "task=task")
    program = (sys.executable, PROGRAMS / "tasks.py", tmp_path / "times.json", "--late-task", "100")
    ended = kprof("profile", "-o", tmp_path / "ws", "--launches", "all", *words, "--", *program)
    print(ended.stdout)
    launches = alone(tmp_path / "ws/captures/001", "tasks_kernel")
    assert len(launches) == 22
    for ends in launches:
        (waits,) = flag_waits([ends])
        worst = waits.holders[0]
        assert (worst.cta, worst.tasks) == (100 % CTAS, (100,))
        assert worst.late_ns == pytest.approx(LATE_NS, rel=0.1)
        # Task 163 needs it, and task 226 that one.
        (task,) = [found for found in task_statistics(ends, 0) if found.task == 163]
        assert task.depends_on[0][:2] == (100, 1)


def test_flags_of_two_ranks(kprof: Kprof, tmp_path: Path) -> None:
    """On a single GPU, ranks run in turn, and what crosses them is unknown."""
    words = (sys.executable, *LAUNCHER, GATHER, "--repeat", "6", "--late-rank", "1", "--late-us", "100")
    bare = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    ended = kprof("profile", "-o", tmp_path / "ws", "--launches", "1:6", "--", *words)
    print(ended.stdout)
    assert dict(DIGEST.findall(ended.stdout)) == dict(DIGEST.findall(bare.stdout))

    def is_sender(ends: WaitEnds, wait: Any, change: Any) -> bool:
        launch, sender = launch_of(ends, wait), launch_of(ends, change)
        tile = wait["cta"] - SENDERS + wait["round"] * (launch.grid[0] - SENDERS)
        row = (tile // 8 + launch.origin.rank * BLOCKS) % (2 * BLOCKS)
        same = sender.origin.rank == row // BLOCKS and sender.index == launch.index
        return bool(same and change["cta"] == row % BLOCKS % SENDERS and change["round"] == row % BLOCKS // SENDERS)

    found: Counter[str] = judged(tmp_path / "ws/captures/001", is_sender)
    print(dict(found))
    assert found["right"]
    assert not found["wrong"]
    if torch.cuda.device_count() > 1:
        assert found["right"] == found["CHANGED"] + found["CHANGED_BEFORE"] == found.total() // 2
        assert "critical path of rank" in ended.stdout
