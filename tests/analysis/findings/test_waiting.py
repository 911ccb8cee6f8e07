"""Loops in which the warps wait."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from known_kernels import ITER, ITERATIONS, Known, launched, rules_of, sentences_of, the_finding
from replacing import replace
from snapshots import check

from kprof_inject.analysis.findings.loops import lost_waits
from kprof_inject.analysis.launch import LaunchAnalysis


def waited(*wait_ns: int, wait: Scope | None = None) -> Known:
    """What each warp waits in each iteration of 100 ns."""
    scope = wait or Scope("ttg.async_wait", "op", ITER, ("/src/kernel.py", 9))
    return Known(warps=len(wait_ns), work_ns={}, wait_ns=dict(enumerate(wait_ns)), wait=scope)


def test_a_loop_that_waits_for_its_loads(tmp_path: Path) -> None:
    known = waited(61, 61, 61, 61)
    finding = the_finding(launched(tmp_path, known))
    assert (finding.rule, finding.scope) == ("waiting", "ttg.async_wait")
    assert finding.share == pytest.approx(61 * ITERATIONS / known.duration_ns)
    check("analysis/findings", sentences_of(finding), "every warp waits")
    assert "/src/kernel.py:9" in finding.advice
    assert finding.figures["least_of_loop"] == 0.61


def test_what_the_one_waits_that_waits_least_counts(tmp_path: Path) -> None:
    finding = the_finding(launched(tmp_path, waited(61, 55, 61, 61)))
    assert finding.figures["least_of_loop"] == 0.55
    check("analysis/findings", sentences_of(finding), "one warp waits less")


@pytest.mark.parametrize(("ns", "found"), [(24, []), (25, ["waiting"])])
def test_it_is_a_quarter_of_the_loop(tmp_path: Path, ns: int, found: list[str]) -> None:
    assert rules_of(launched(tmp_path, waited(ns, ns, ns, ns))) == found


def test_the_warps_of_a_producer_may_wait(tmp_path: Path) -> None:
    for looping in ((2, 3), (1, 2, 3)):
        known = Known(work_ns={}, wait_ns=dict.fromkeys(looping, 90), looping=looping)
        assert rules_of(launched(tmp_path / str(len(looping)), known)) == []


@pytest.mark.parametrize("dot", ["tt.dot", "ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ttng.tc_gen5_mma"])
def test_those_that_multiply_may_not(tmp_path: Path, dot: str) -> None:
    consumers = Known(
        work_ns={1: 2, 2: 2, 3: 2}, wait_ns={1: 90, 2: 90, 3: 90}, looping=(1, 2, 3), work=Scope(dot, "op", ITER)
    )
    finding = the_finding(launched(tmp_path, consumers))
    assert "warps 1-3 each" in finding.text and " 90.0 %" in finding.text
    assert finding.figures["waiting_warps"] == 3


def test_where_some_warps_were_not_recorded_nobody_knows_what_these_do(tmp_path: Path) -> None:
    timeline = launched(tmp_path, waited(61, 61, 61, 61))
    kernel = replace(timeline.launch.kernel, num_warps=12)
    assert rules_of(replace(timeline, launch=replace(timeline.launch, kernel=kernel))) == []


def test_who_never_waits_in_the_loop_waits_least(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, Known(work_ns={}, wait_ns={1: 90, 2: 90, 3: 90}))) == []


def test_a_wait_by_name_around_one_for_the_tensor_cores_is_none(tmp_path: Path) -> None:
    timeline = launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("wait", "marker", ITER)))
    assert rules_of(timeline) == ["waiting"]
    inner = replace(timeline.table.scopes[-1], name="", kind="op", label="ttng.warp_group_dot_wait", parent=4)
    table = replace(timeline.table, scopes=(*timeline.table.scopes, inner))
    assert lost_waits(table, timeline.launch.kernel) == ()
    other = replace(table, scopes=(*timeline.table.scopes, replace(inner, label="ttg.async_wait")))
    assert lost_waits(other, timeline.launch.kernel) == (4,)


@pytest.mark.parametrize(
    ("wait", "arch", "found"),
    [
        (Scope("ttng.wait_barrier", "op", ITER), 90, ["waiting"]),
        # The tensor cores tell by it that they are done.
        (Scope("ttng.wait_barrier", "op", ITER), 100, []),
        (Scope("ttng.warp_group_dot_wait", "op", ITER), 90, []),
        (Scope("ttng.arrive_barrier", "op", ITER), 90, []),
        (Scope("wait for A", "marker", ITER), 90, ["waiting"]),
        (Scope("wait_a", "line", ITER), 100, ["waiting"]),
        (Scope("await_nothing", "marker", ITER), 90, []),
        (Scope("load", "marker", ITER), 90, []),
        (Scope("wait", "func", ITER), 90, []),
    ],
    ids=lambda value: f"{value.kind} {value.name}" if isinstance(value, Scope) else None,
)
def test_what_counts_as_a_wait(tmp_path: Path, wait: Scope, arch: int, found: list[str]) -> None:
    target = {"backend": "cuda", "arch": arch, "warp_size": 32}
    timeline = launched(tmp_path, waited(50, 50, 50, 50, wait=wait), kernel={"metadata": {"target": target}})
    assert rules_of(timeline) == found


def test_an_operation_that_the_user_named_is_known_by_its_own_name(tmp_path: Path) -> None:
    timeline = launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("fetch", "op", ITER)))
    assert rules_of(timeline) == []
    *others, wait = timeline.table.scopes
    table = replace(timeline.table, scopes=(*others, replace(wait, label="ttg.async_wait")))
    assert the_finding(replace(timeline, table=table)).scope == "fetch"


def test_a_wait_in_no_loop_is_none_of_a_loop(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("ttg.async_wait", "op", 0)))) == []


def test_lost_records_tell_nothing_of_waits(tmp_path: Path) -> None:
    assert rules_of(replace(launched(tmp_path, waited(61, 61, 61, 61)), records_lost=1)) == []


@pytest.mark.parametrize("gone", [set(some) for count in range(6) for some in combinations(range(5), count)], ids=str)
def test_whatever_damaged_records_leave_of_the_scopes_is_reported(tmp_path: Path, gone: set[int]) -> None:
    """As where none of a loop's records is sound, but those of its waits are."""
    timeline = launched(tmp_path, waited(61, 61, 61, 61))
    blocks = [block[~np.isin(block["scope"], sorted(gone))] for block in timeline.blocks()]
    report = LaunchAnalysis.of(replace(timeline, _blocks=blocks, scope_count=sum(map(len, blocks))))
    left = {index for block in blocks for index in np.unique(block["scope"]).tolist()}
    assert [bool(scope.count) for scope in report.summary.scopes] == [index in left for index in range(5)]
