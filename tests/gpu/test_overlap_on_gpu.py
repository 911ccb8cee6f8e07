"""Figures on communication, against the same kernel without it, and against the bytes that it must move."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import pytest
import torch
from gpu_support import EXAMPLES, Kprof

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.communication_notes import exchange_notes, exchanges
from kprof_inject.results import load
from kprof_inject.runtime.counters.permission import is_permitted

LAUNCHER = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
ROWS, K = 8 * 128, 1024
MOVED_BYTES = 2 * ROWS * K
"""Half precision numbers of a rank, all of which its peer needs."""


def reports_of(kprof: Kprof, workspace: Path, *options: str) -> tuple[str, list[LaunchAnalysis]]:
    """Profile the example; return what it printed, and its launches but the first two, which compile."""
    program = (sys.executable, *LAUNCHER, EXAMPLES / "gather_matmul.py", "--repeat", "22", *options)
    ended = kprof("profile", "--launches", "all", "-o", workspace, "--", *program)
    return ended.stdout, [one for one in load(workspace).reports if one.launch.index >= 2]


def of_rank(reports: Sequence[LaunchAnalysis], rank: int) -> list[LaunchAnalysis]:
    return [one for one in reports if one.launch.place.rank == rank]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_time_without_communication_is_that_of_the_kernel_without(kprof: Kprof, tmp_path: Path) -> None:
    printed, whole = reports_of(kprof, tmp_path / "whole")
    alone, tiles = reports_of(kprof, tmp_path / "tiles", "--only", "tiles")
    digests = [{line for line in text.splitlines() if "sha256" in line} for text in (printed, alone)]
    assert digests[0] == digests[1]
    assert len(digests[0]) == 2
    assert not exchanges(tiles)
    found = {one.place: one for one in exchanges(whole)}
    print(*exchange_notes([*found.values()]), sep="\n")
    if is_permitted():
        assert any(one.counted for one in found.values())
    for rank in (0, 1):
        one = found[f"rank {rank}, device {rank}"]
        assert one.overlap is not None
        measured_ns = median(report.duration_ns for report in of_rank(tiles, rank))
        print(f"rank {rank}: {one.overlap.without_ns} ns without communication, measured {measured_ns} ns")
        assert one.overlap.without_ns == pytest.approx(measured_ns, rel=0.15)
        # Senders also set a flag of 4 bytes after each block.
        assert one.written_bytes == pytest.approx(MOVED_BYTES, rel=0.001)
        if one.counted is not None:
            # What the peer sends may arrive before this rank's launch begins.
            assert one.counted.sent_bytes == pytest.approx(MOVED_BYTES, rel=0.1)
