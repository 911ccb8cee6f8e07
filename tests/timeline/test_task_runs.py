"""Tasks of a persistent kernel whose runs and waits are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Scope
from flag_launches import SCOPES, SET, WAIT, WORK, Use, launch
from replacing import replace
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.flag_notes import flag_notes, waits_in
from kprof_inject.timeline.holders import flag_waits
from kprof_inject.timeline.task_runs import task_statistics
from kprof_inject.timeline.wait_ends import WaitEnds, wait_ends

# The values of ``work`` are its task and another tag.
WITH_TASKS: list[Scope] = [*SCOPES[:WORK], replace(SCOPES[WORK], tags=("task", "other"))]


def task(cta: int, number: int, start_ns: int, end_ns: int) -> Use:
    return Use(cta, WORK, start_ns, end_ns, 0, address=number)


LATE = [
    *(task(0, 1, 1_000, 6_000), Use(0, SET, 5_000, 5_900, 1)),
    *(task(1, 1, 1_000, 26_000), Use(1, SET, 25_000, 25_900, 1, 0x7F00_0000_2000)),
    *(task(2, 2, 2_000, 30_000), Use(2, WAIT, 2_100, 26_500, 1, 0x7F00_0000_2000)),
    *(task(2, 2, 31_000, 33_000), Use(2, WAIT, 31_100, 31_300, 1)),
]


@pytest.fixture
def late(tmp_path: Path) -> WaitEnds:
    (ends,) = wait_ends([launch(tmp_path, LATE, scopes=WITH_TASKS)])
    return ends


def test_tasks_have_their_times_waits_and_those_they_wait_for(late: WaitEnds) -> None:
    one, two = sorted(task_statistics(late, 0), key=lambda found: found.task)
    assert (one.task, one.runs, one.total_ns, one.p50_ns, one.waits_ns, one.sms) == (1, 2, 30_000, 15_000.0, 0, 2)
    assert one.uneven == pytest.approx(25 / 15)
    assert (two.task, two.runs, two.total_ns, two.waits_ns, two.sms) == (2, 2, 30_000, 24_600, 1)
    assert two.depends_on == ((1, 1, 24_400),)


def test_who_holds_others_up_is_named_with_the_task(late: WaitEnds) -> None:
    (waits,) = flag_waits([late])
    (holder,) = waits.holders
    assert (holder.cta, holder.tasks, holder.late_ns) == (1, (1,), 10_000)


def test_the_notes_on_waits(late: WaitEnds) -> None:
    report = LaunchAnalysis.of(late.visits.launches[0].timeline)
    check("report/flags", "\n".join(flag_notes(waits_in(report))), "a late task")
