"""Loops in which the warps wait."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from buffers import Scope
from known_kernels import ITER, Known, launched, rules_of, the_finding
from replacing import replace

from kprof_inject.analysis.findings.loops import lost_waits
from kprof_inject.analysis.launch import LaunchAnalysis


def waited(*wait_ns: int, wait: Scope | None = None) -> Known:
    """What each warp waits in each iteration of 100 ns."""
    scope = wait or Scope("ttg.async_wait", "op", ITER, ("/src/kernel.py", 9))
    return Known(warps=len(wait_ns), work_ns={}, wait_ns=dict(enumerate(wait_ns)), wait=scope)


def test_a_wait_by_name_around_one_for_the_tensor_cores_is_none(tmp_path: Path) -> None:
    timeline = launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("wait", "marker", ITER)))
    assert rules_of(timeline) == ["waiting"]
    inner = replace(
        timeline.table.scopes[-1], record="inner", name="", kind="op", label="ttng.warp_group_dot_wait", parent=4
    )
    table = replace(timeline.table, scopes=(*timeline.table.scopes, inner))
    assert lost_waits(table, timeline.launch.kernel) == ()
    other = replace(table, scopes=(*timeline.table.scopes, replace(inner, label="ttg.async_wait")))
    assert lost_waits(other, timeline.launch.kernel) == (4,)


def test_an_operation_that_the_user_named_is_known_by_its_own_name(tmp_path: Path) -> None:
    timeline = launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("fetch", "op", ITER)))
    assert rules_of(timeline) == []
    *others, wait = timeline.table.scopes
    table = replace(timeline.table, scopes=(*others, replace(wait, label="ttg.async_wait")))
    assert the_finding(replace(timeline, table=table)).scope == "fetch"


def test_a_wait_in_no_loop_is_none_of_a_loop(tmp_path: Path) -> None:
    assert rules_of(launched(tmp_path, waited(50, 50, 50, 50, wait=Scope("ttg.async_wait", "op", 0)))) == []


@pytest.mark.parametrize("gone", [set(some) for count in range(6) for some in combinations(range(5), count)], ids=str)
def test_whatever_damaged_records_leave_of_the_scopes_is_reported(tmp_path: Path, gone: set[int]) -> None:
    """As where none of a loop's records is sound, but those of its waits are."""
    timeline = launched(tmp_path, waited(61, 61, 61, 61))
    blocks = [block[~np.isin(block["scope"], sorted(gone))] for block in timeline.blocks()]
    report = LaunchAnalysis.of(replace(timeline, _blocks=blocks, scope_count=sum(map(len, blocks))))
    left = {index for block in blocks for index in np.unique(block["scope"]).tolist()}
    assert [bool(scope.count) for scope in report.summary.scopes] == [index in left for index in range(5)]
