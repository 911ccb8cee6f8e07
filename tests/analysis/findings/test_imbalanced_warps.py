"""Warps that have more to do than the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from known_kernels import ITERATIONS, WORK, Known, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check

from kprof_inject.capture.schema import Partition
from kprof_inject.timeline.partitions import partitions_of
from kprof_inject.timeline.timeline import Timeline

NOBODY: dict[int, int] = {}


def worked(*work_ns: int) -> Known:
    """What each warp works; what comes after it is in no scope of its own."""
    return Known(warps=len(work_ns), work_ns=dict(enumerate(work_ns)), wait_ns=NOBODY)


def test_a_warp_that_works_more_than_the_others_is_named(tmp_path: Path) -> None:
    known = worked(20, 20, 80, 20)
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("imbalanced-warps", "work")
    # Spread evenly, each would work for 35 ns.
    assert finding.share == pytest.approx(ITERATIONS * (80 - 35) / known.duration_ns)
    assert "/src/kernel.py:7" in finding.advice
    check("analysis/findings", sentences_of(finding), "a slow warp")


def test_several_slow_warps(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, worked(90, 90, 20, 20, 20, 20, 20, 20)))
    assert finding.figures["slow_warp_ids"] == "0, 1"
    check("analysis/findings", sentences_of(finding), "two slow warps")


def test_it_is_of_the_ctas_that_ran_the_scope(tmp_path: Path) -> None:
    block = launched(tmp_path / "in all", worked(20, 20, 80, 20)).scopes
    in_half = block[(block["scope"] != WORK) | (block["cta"] < 4)]
    finding = the_finding(launched(tmp_path, worked(20, 20, 80, 20), _blocks=[in_half]))
    assert "in each of 4 CTAs" in finding.text
    check("analysis/findings", sentences_of(finding), "a slow warp in some CTAs")
    assert (finding.figures["mean_ns"], finding.figures["other_mean_ns"]) == (1600, 400)
    assert (finding.figures["slow_warp_ids"], finding.figures["slow_warps"]) == ("2", 1)


def test_warps_that_do_nothing_there_at_all(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, worked(80, 0, 0, 0)))
    assert (finding.figures["mean_ns"], finding.figures["other_mean_ns"]) == (1600, 0)
    check("analysis/findings", sentences_of(finding), "the only warp that works")


@pytest.mark.parametrize(
    "work_ns",
    [(20, 20, 80, 80), (80, 80, 80, 20), (60, 60, 60, 60), (20, 80), (60, 62, 58, 61)],
    ids=["half of them", "most of them", "even", "of two", "nearly even"],
)
def test_who_waits_for_whom_must_be_clear(tmp_path: Path, work_ns: tuple[int, ...]) -> None:
    assert rules_of(launched(tmp_path, worked(*work_ns))) == []


# A tenth of 2,160 ns are 10.8 ns in each iteration above the mean; spread over 4 warps, the slowest has 14.4 more.
@pytest.mark.parametrize(("ns", "found"), [(34, []), (35, ["imbalanced-warps"])])
def test_it_costs_a_tenth(tmp_path: Path, ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, worked(20, 20, ns, 20))) == found


@pytest.mark.parametrize(("ns", "found"), [(74, []), (75, ["imbalanced-warps"])])
def test_it_is_a_quarter_more_than_the_others_take(tmp_path: Path, ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, worked(60, 60, ns, 60))) == found


def test_by_the_waits_of_the_others_if_nothing_else_shows_it(tmp_path: Path) -> None:
    known = Known(work_ns=NOBODY, wait_ns={0: 50, 1: 2, 2: 50, 3: 50})
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("imbalanced-warps", "ttg.async_wait")
    assert finding.share == pytest.approx(ITERATIONS * (38 - 2) / known.duration_ns)
    check("analysis/findings", sentences_of(finding), "a warp that arrives last")


def test_who_waits_more_than_the_others_is_not_slow(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, Known(work_ns=NOBODY, wait_ns={0: 80, 1: 2, 2: 2, 3: 2}))) == []


def test_the_work_is_named_before_the_wait(tmp_path: Path) -> None:
    known = Known(work_ns={0: 90, 1: 20, 2: 20, 3: 20}, wait_ns={0: 2, 1: 72, 2: 72, 3: 72})
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("imbalanced-warps", "work")


def test_a_warp_of_its_own_pace_shows_in_the_innermost_scope(tmp_path: Path) -> None:
    block = launched(tmp_path / "with a barrier", worked(20, 20, 80, 20)).scopes
    # Without one, warp 2 takes longer in all that stands around its work, too.
    block["duration_ns"][(block["warp"] == 2) & (block["scope"] < WORK)] += 60
    freed = launched(tmp_path / "without", worked(20, 20, 80, 20), _blocks=[block])
    assert the_finding(freed).scope == "work"


def test_lost_records_make_no_imbalance(tmp_path: Path) -> None:
    timeline = launched(tmp_path, worked(20, 20, 80, 20))
    assert rules_of(replace(timeline, records_lost=1)) == []
    assert rules_of(replace(timeline, records_damaged=1)) == []


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
