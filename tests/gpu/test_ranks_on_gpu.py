"""Ranks that wait for each other: results stay, no launch is repeated, and the rank that is late is named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from gpu_support import EXAMPLES, Kprof

LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
PROGRAM = (*LAUNCHER, EXAMPLES / "all_reduce.py", "--repeat", "26")
DIGEST = re.compile(r"rank (\d) of 2, .* sha256 (\w+)")
LATE_NS = 100_000


def digests(printed: str) -> dict[str, str]:
    return dict(DIGEST.findall(printed))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_is_late_is_named_in_every_launch(kprof: Kprof, tmp_path: Path, late: int) -> None:
    words = ("--late-rank", str(late), "--late-us", str(LATE_NS / 1e3))
    ended = kprof("profile", "-o", tmp_path / "ws", "--launches", "6:26", "--", sys.executable, *PROGRAM, *words)
    print(ended.stdout)
    # At the second meeting, each rank waits for its own flag and for the other's.
    (line,) = re.findall(rf"spin\[[23]\]: rank {late}, device {late} comes last in 20 of 20 launches.*", ended.stdout)
    (after_us,) = re.findall(r"by ([\d.]+) µs \(median", line)
    assert 1e3 * float(after_us) == pytest.approx(LATE_NS, rel=0.1)
    assert (tmp_path / "ws/captures/001/peer_clocks.json").exists()


def test_results_stay_and_no_launch_is_repeated(kprof: Kprof, tmp_path: Path) -> None:
    """On a single GPU, two ranks run in turn."""
    bare = subprocess.run([sys.executable, *PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    ended = kprof("profile", "-o", tmp_path / "ws", "--", sys.executable, *PROGRAM)
    assert digests(ended.stdout) == digests(bare.stdout)
    assert len(digests(bare.stdout)) == 2
    assert "repeating" not in ended.stderr
