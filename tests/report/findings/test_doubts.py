"""What is said of a launch where rules could not judge it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from buffers import Cta, Scope, end, save_launch, start
from known_kernels import launched

from kprof_inject.report.findings.doubts import doubts_about
from kprof_inject.report.summary import summarise
from kprof_inject.timeline.timeline import Timeline, decode_launch
from kprof_inject.timeline.trust import Level, judge


def doubts(timeline: Timeline, **changes: Any) -> list[str]:
    summary = replace(summarise(timeline), **changes)
    return list(doubts_about(timeline, summary, judge(timeline.launch.kernel)))


def test_of_a_whole_launch_there_is_none(tmp_path: Path) -> None:
    assert doubts(launched(tmp_path, kernel={"sm_count": 8})) == []


@pytest.mark.parametrize(
    ("changes", "begin"),
    [
        ({"records_lost": 3}, "records were lost"),
        ({"records_lost": 3, "records_damaged": 1}, "records were lost"),
        ({"records_damaged": 1}, "records are damaged"),
        ({"ctas_never_ran": 2}, "CTAs are missing"),
        ({"ctas_damaged": 2}, "CTAs are missing"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, changes: dict[str, int], begin: str) -> None:
    (doubt,) = doubts(launched(tmp_path, kernel={"sm_count": 8}, **changes))
    assert doubt.startswith(begin)


def test_the_devices_size_may_be_unknown(tmp_path: Path) -> None:
    (doubt,) = doubts(launched(tmp_path))
    assert "how many SMs" in doubt


def test_without_a_timer_nothing_is_known_of_ctas(tmp_path: Path) -> None:
    (doubt,) = doubts(launched(tmp_path), waves=None)
    assert doubt.startswith("no timer was read")


def test_a_disturbed_kernel_may_be_limited_by_its_records(tmp_path: Path) -> None:
    timeline = launched(tmp_path, kernel={"sm_count": 8})
    verdict = replace(judge(timeline.launch.kernel), level=Level.UNRELIABLE)
    (doubt,) = doubts_about(timeline, summarise(timeline), verdict)
    assert doubt.startswith("the records disturb this kernel so much")


@pytest.mark.parametrize(
    ("scopes", "doubt"),
    [
        ([Scope("loop[0]", "loop")], "the kernel's whole body was not recorded (--at func), so that prologue and"),
        ([Scope("work", "marker")], "no loop was recorded (--at loop --at iter), so that neither phases, iterations"),
        ([Scope("func")], "no loop was recorded"),
        ([], "no scope was recorded, so that only CTAs and SMs are judged"),
    ],
    ids=["no func", "a marker", "no loop", "nothing"],
)
def test_what_was_not_recorded_is_said(tmp_path: Path, scopes: list[Scope], doubt: str) -> None:
    warp = [start(0, 10), end(0, 1990)] if scopes else []
    timeline = decode_launch(save_launch(tmp_path, scopes, [Cta([warp])], slots=4))
    of_scopes, _ = doubts(timeline)
    assert of_scopes.startswith(doubt)


def test_a_loop_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    timeline = launched(tmp_path, kernel={"sm_count": 8})
    func, loop, iteration, *others = timeline.table.scopes
    second = (func, replace(loop, name="main", label="loop[2]"), replace(iteration, label="iter[2]"), *others)
    (doubt,) = doubts(replace(timeline, table=replace(timeline.table, scopes=second)))
    assert doubt == "loop[0] was not recorded (--at loop), so that the prologue is not judged"


def test_where_no_cta_ran_nothing_is_judged(tmp_path: Path) -> None:
    timeline = decode_launch(save_launch(tmp_path, [Scope("func")], [None, None], slots=4))
    assert doubts(timeline) == ["no CTA ran, so that nothing is judged"]
