"""Warp-specialised kernels on the device: each partition is a tree of its own, which adds up to its warps' time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from program_runs import ProgramRuns

from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.capture.model import Launch
from kprof_inject.timeline.timeline import decode_launch

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="the program is for Hopper"
)
SELECTED = ("--at", "func", "--at", "loop", "--at", "iter", "--at", "partition", "--at", "default")
WARPS = {
    "three_partitions_kernel": {"default partition": (0, 1, 2, 3), "partition 0": (10,), "partition 1": (4, 5, 6, 7)},
    "specialised_matmul_kernel": {
        "default partition": (0, 1, 2, 3),
        "partition 0": (4, 5, 6, 7),
        "partition 1": (8, 9, 10, 11),
    },
}


def profiled(folder: Path, *options: str) -> dict[str, list[Launch]]:
    """The launches of each kernel, whose results are those without us, bit by bit."""
    with ProgramRuns(folder) as runs:
        ended, run = runs.profile("specialised", *options)
        print(ended.stdout)
        return {kernel: run.launches_of(kernel) for kernel in WARPS}


def trees_of(launch: Launch) -> LaunchSummary:
    """The launch's figures, which must add up."""
    summary = summarise(decode_launch(launch))
    for partition in summary.partitions:
        # Scopes of which no pair is whole have no time; the partition's rings lost records then, and it has no self.
        inside_ns = sum(summary.scopes[index].self_ns or 0 for index in partition.scopes)
        shares = {summary.scopes[index].scope: summary.scopes[index].share for index in partition.scopes}
        print(f"{summary.kernel}, {partition.title}: {inside_ns / max(partition.whole_ns, 1):.1%} recorded, {shares}")
        assert inside_ns + (partition.outside_ns or 0) <= partition.whole_ns
        if not summary.records_lost:
            assert inside_ns + (partition.outside_ns or 0) == partition.whole_ns
        assert all(share is None or 0 <= share <= 1 for share in shares.values())
    return summary


@pytest.mark.parametrize("options", [SELECTED, ("--fit",)], ids=["all regions", "fitted"])
def test_each_partition_has_its_tree(tmp_path: Path, options: tuple[str, ...]) -> None:
    for kernel, launches in profiled(tmp_path, *options).items():
        assert launches, kernel
        for launch in launches:
            summary = trees_of(launch)
            found = {partition.name: partition.warps for partition in summary.partitions}
            assert found == WARPS[kernel]
            for partition in summary.partitions:
                for index in partition.scopes:
                    scope = summary.scopes[index]
                    ran = set(scope.warps.ids.tolist())
                    # A ring keeps the newest: it may have lost the start of what stands around a loop.
                    assert ran == {*partition.warps} if not summary.records_lost else ran <= {*partition.warps}
            if "--fit" in options:
                assert not summary.records_lost


def test_of_selected_warps(tmp_path: Path) -> None:
    for kernel, launches in profiled(tmp_path, "--warps", "1,5").items():
        for launch in launches:
            mine = [partition.warps for partition in trees_of(launch).partitions]
            expected = [tuple(warp for warp in warps if warp in (1, 5)) for warps in WARPS[kernel].values()]
            assert mine == expected
