"""Warps that have more to do than the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from analysis.findings.evidences import HEAD, TAIL
from known_kernels import WORK, Known, evidence_of, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.launch_conditions import imbalanced_warps
from kprof_inject.analysis.interpreter.executions import evaluated
from kprof_inject.capture.scopes import Partition, ScopeTable
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


STORE = "    tt.store %at, %zero MASK: tensor<128x!tt.ptr<f32>, #l>\n"
MASKED = STORE.replace("MASK", ", %few ")
FEW = """\
    %k = arith.constant dense<100> : tensor<128xi32, #l>
    %few = arith.cmpi slt, %r, %k : tensor<128xi32, #l>
"""


@pytest.mark.parametrize(
    ("body", "slow", "advice"),
    [
        (FEW + MASKED, 0, "look at what warp 0 does"),
        (STORE.replace("MASK", ""), 0, None),
        (STORE.replace("MASK", "") + "    tt.store %p, %none : !tt.ptr<f32>\n", 0, "do that less often"),
        (STORE.replace("MASK", "") + "    tt.store %p, %none : !tt.ptr<f32>\n", 2, None),
    ],
)
def test_warps_that_do_the_same_differ_by_the_hardware(
    tmp_path: Path, body: str, slow: int, advice: str | None
) -> None:
    """But masks may differ, and one warp stores a scalar for all."""
    timeline = launched(tmp_path, worked(*(80 if warp == slow else 20 for warp in range(4))))
    ran = evaluated(HEAD + body + TAIL, "kernel.ttgir", (8, 1, 1), (1 << 20, 1 << 24), ScopeTable())
    scopes = tuple(replace(scope, lines=None) for scope in timeline.table.scopes)
    timeline = replace(timeline, table=replace(timeline.table, scopes=scopes))
    found = list(imbalanced_warps(replace(evidence_of(timeline), executed=ran)))
    assert [isinstance(one, Finding) and one.advice.startswith(advice or "-") for one in found] == [True] * bool(advice)
    if advice and "less" in advice:
        check("analysis/findings", sentences_of(*found), "a store of one warp")
