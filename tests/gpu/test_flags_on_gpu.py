"""What ended each wait for a flag, against what the kernels themselves stored: matched or unknown, never wrong."""

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

from kprof_inject.timeline.wait_ends import WaitEnds

PROGRAM = Path(__file__).parent / "programs/flags.py"
LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
GATHER = EXAMPLES / "gather_matmul.py"
BLOCKS, SENDERS = 8, 4
DIGEST = re.compile(r"rank (\d) of 2, .* sha256 (\w+)")


def launch_of(ends: WaitEnds, visit: Any) -> Any:
    return ends.visits.launches[visit["launch"]].timeline.launch


@pytest.fixture(params=[(), ("--late-cta", "5")], ids=["alike", "late"])
def flags(kprof: Kprof, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any], bool]:
    truth = tmp_path / "truth.json"
    ended = kprof(
        "profile", "-o", tmp_path / "ws", "--launches", "all", "--", sys.executable, PROGRAM, truth, *request.param
    )
    print(ended.stdout)
    return tmp_path / "ws/captures/001", json.loads(truth.read_text()), bool(request.param)


def test_flags_of_one_gpu(flags: tuple[Path, dict[str, Any], bool]) -> None:
    capture, truth, is_late = flags
    first = 1

    def is_last(ends: WaitEnds, wait: Any, change: Any) -> bool:
        launch = launch_of(ends, wait)
        same = change["launch"] == wait["launch"] and change["round"] == wait["round"]
        return bool(same and truth["barrier_kernel"][launch.index - first][wait["round"]] == change["cta"])

    def is_part(ends: WaitEnds, wait: Any, change: Any) -> bool:
        launch = launch_of(ends, wait)
        seen = truth["stream_k_kernel"][launch.index - first][wait["cta"]]
        return bool(change["launch"] == wait["launch"] and seen[wait["round"]] == change["cta"])

    for kernel, judge in (("barrier_kernel", is_last), ("stream_k_kernel", is_part)):
        found = judged(capture, judge, kernel)
        print(kernel, dict(found))
        assert found["right"]
        assert not found["wrong"]
        if is_late or kernel == "stream_k_kernel":
            assert found["right"] >= 0.95 * (found.total() - found["CHANGED"] - found["CHANGED_BEFORE"])


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
        assert "rank 1, device 1, CTA 0 holds" in ended.stdout
