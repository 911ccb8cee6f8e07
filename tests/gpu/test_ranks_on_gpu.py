"""Ranks that wait for each other: results stay, and no launch is repeated."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from gpu_support import Kprof
from program_runs import PROGRAMS

LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
PROGRAM = (*LAUNCHER, PROGRAMS / "all_reduce.py", "--repeat", "26")
DIGEST = re.compile(r"rank (\d) of 2, .* sha256 (\w+)")


def digests(printed: str) -> dict[str, str]:
    return dict(DIGEST.findall(printed))


def test_results_stay_and_no_launch_is_repeated(kprof: Kprof, tmp_path: Path) -> None:
    """On a single GPU, two ranks run in turn."""
    bare = subprocess.run([sys.executable, *PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    ended = kprof("profile", "-o", tmp_path / "ws", "--", sys.executable, *PROGRAM)
    assert digests(ended.stdout) == digests(bare.stdout)
    assert len(digests(bare.stdout)) == 2
    assert "repeating" not in ended.stderr
