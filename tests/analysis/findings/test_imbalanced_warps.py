"""Warps that have more to do than the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known_kernels import WORK, Known, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check

from kprof_inject.capture.scopes import Partition
from kprof_inject.timeline.partitions import partitions_of
from kprof_inject.timeline.timeline import Timeline

NOBODY: dict[int, int] = {}


def worked(*work_ns: int) -> Known:
    """What each warp works; what comes after it is in no scope of its own."""
    return Known(warps=len(work_ns), work_ns=dict(enumerate(work_ns)), wait_ns=NOBODY)


def test_it_is_of_the_ctas_that_ran_the_scope(tmp_path: Path) -> None:
    block = launched(tmp_path / "in all", worked(20, 20, 80, 20)).scopes
    in_half = block[(block["scope"] != WORK) | (block["cta"] < 4)]
    finding = the_finding(launched(tmp_path, worked(20, 20, 80, 20), _blocks=[in_half]))
    assert "in each of 4 CTAs" in finding.text
    check("analysis/findings", sentences_of(finding), "a slow warp in some CTAs")
    assert (finding.figures["mean_ns"], finding.figures["other_mean_ns"]) == (1600, 400)
    assert (finding.figures["slow_warp_ids"], finding.figures["slow_warps"]) == ("2", 1)


def test_a_warp_of_its_own_pace_shows_in_the_innermost_scope(tmp_path: Path) -> None:
    block = launched(tmp_path / "with a barrier", worked(20, 20, 80, 20)).scopes
    # Without one, warp 2 takes longer in all that stands around its work, too.
    block["duration_ns"][(block["warp"] == 2) & (block["scope"] < WORK)] += 60
    freed = launched(tmp_path / "without", worked(20, 20, 80, 20), _blocks=[block])
    assert the_finding(freed).scope == "work"


def partitioned(timeline: Timeline, partition: int | None) -> Timeline:
    """The same as a kernel of two partitions, of which this one, or (None) both run all scopes."""
    names = (Partition("default partition", 1), Partition("partition 0", 3))
    scopes = tuple(replace(scope, partition=partition) for scope in timeline.table.scopes)
    table = replace(timeline.table, scopes=scopes, partitions=names)
    rows = 2 if partition is None else partition
    records = np.zeros((rows + 1, len(timeline.warps)), dtype=np.int64)
    records[rows] = 100
    return replace(timeline, table=table, partitions=partitions_of(table, records, timeline.warps))


def test_warps_of_several_partitions_are_not_compared(tmp_path: Path) -> None:
    timeline = launched(tmp_path, worked(20, 20, 80, 20))
    assert rules_of(timeline) == ["imbalanced-warps"]
    assert rules_of(partitioned(timeline, None)) == []


@pytest.mark.parametrize(("partition", "team"), [(0, "the default partition"), (1, "partition 0")])
def test_the_others_are_those_of_the_partition(tmp_path: Path, partition: int, team: str) -> None:
    finding = the_finding(partitioned(launched(tmp_path, worked(20, 20, 80, 20)), partition))
    assert f"3 warps of {team} (" in finding.text
    assert finding.advice.endswith(f"all warps of {team}")
