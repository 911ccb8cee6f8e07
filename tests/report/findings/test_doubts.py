"""What is said of a launch where rules could not judge it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from known_kernels import launched

from kprof_inject.report.findings.doubts import doubts_about
from kprof_inject.report.summary import summarise
from kprof_inject.timeline.timeline import Timeline
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
