from __future__ import annotations

from pathlib import Path

import pytest
from async_launches import BARRIERS, COMMIT, COPIES, LAST, TMA_COPY, TMA_WAIT, WAIT, Span, launched
from replacing import replace
from timelines import cta_rows, incomplete_rows

from kprof_inject.analysis.causal.critical_path import CriticalPath, critical_path
from kprof_inject.analysis.interpreter.executions import evaluated_kernel
from kprof_inject.capture.scopes import Partition
from kprof_inject.timeline.timeline import Timeline


def path_of(timeline: Timeline, end_ns: int) -> CriticalPath:
    found = critical_path(
        replace(timeline, ctas=cta_rows((0, 0, 0, end_ns, end_ns))), evaluated_kernel(timeline.launch)
    )
    assert found is not None
    assert sum(one.share for one in found.blames) + found.outside == pytest.approx(1)
    return found


def shares(found: CriticalPath) -> dict[int, tuple[float, float]]:
    return {one.scope: (round(one.run, 3), round(one.in_flight, 3)) for one in found.blames}


def test_a_wait_leads_to_where_its_work_was_asked_for(tmp_path: Path) -> None:
    """A copy is asked for at 100, and waited for until 900: between the two, nothing else matters."""
    spans: list[Span] = [(0, 0, 100, 120), (2, 0, 300, 900)]
    timeline = launched(tmp_path, COPIES, {"c": COMMIT, "w": WAIT, "last": LAST}, spans)
    found = path_of(timeline, 1000)
    assert shares(found) == {0: (0.0, 0.8)}
    assert found.outside == pytest.approx(0.2)


def test_a_wait_that_found_its_work_done_leads_nowhere(tmp_path: Path) -> None:
    timeline = launched(tmp_path, COPIES, {"c": COMMIT, "w": WAIT, "last": LAST}, [(0, 0, 100, 400), (2, 0, 500, 600)])
    found = path_of(timeline, 1000)
    assert shares(found) == {0: (0.3, 0.0), 2: (0.1, 0.0)}


def test_from_one_warp_to_the_other_by_a_barrier(tmp_path: Path) -> None:
    """Warp 1 copies at 400, what warp 0 waits for until 1000."""
    names = {"ttng.async_tma_copy_global_to_local": TMA_COPY, "ttng.wait_barrier": TMA_WAIT}
    found = path_of(launched(tmp_path, BARRIERS, names, [(0, 1, 400, 450), (1, 0, 10, 1000)]), 1000)
    assert shares(found) == {0: (0.0, 0.6)}
    assert found.outside == pytest.approx(0.4)


MEETING = """\
module {
  tt.func public @k() {
    rocdl.sched.barrier 0
    rocdl.s.setprio 1
    gpu.barrier
    tt.return
  }
}
"""


@pytest.mark.parametrize(("slow", "fast"), [(0, 1), (1, 0)])
def test_where_warps_meet_the_path_goes_on_with_the_last(tmp_path: Path, slow: int, fast: int) -> None:
    """Four times, each warp works and comes to a barrier; one of them works for 700 ns, the other one for 200."""
    spans: list[Span] = []
    for number in range(4):
        begin = 1000 * number
        spans += [(0, slow, begin, begin + 700), (2, slow, begin + 700, begin + 1000)]
        spans += [(1, fast, begin, begin + 200), (2, fast, begin + 200, begin + 1000)]
    found = path_of(launched(tmp_path, MEETING, {"long": 3, "short": 4, "barrier": 5}, spans), 4000)
    assert shares(found) == {0: (0.7, 0.0), 2: (0.3, 0.0)}


def test_what_warps_leave_as_they_came_is_no_meeting(tmp_path: Path) -> None:
    spans: list[Span] = [(0, 0, 0, 500), (0, 1, 400, 900), (1, 0, 500, 950), (1, 1, 900, 1000)]
    found = path_of(launched(tmp_path, MEETING, {"a": 3, "b": 4}, spans), 1000)
    assert shares(found) == {0: (0.5, 0.0), 1: (0.1, 0.0)}


def test_the_inner_scope_has_its_time_and_the_outer_one_the_rest(tmp_path: Path) -> None:
    spans: list[Span] = [(0, 0, 0, 1000), (1, 0, 200, 500)]
    found = path_of(launched(tmp_path, MEETING, {"outer": 3, "inner": 4}, spans), 1000)
    assert shares(found) == {0: (0.7, 0.0), 1: (0.3, 0.0)}


def test_what_older_records_were_lost_of_is_left_out(tmp_path: Path) -> None:
    """From 400 on both warps have records: the path covers 600 ns of 1000."""
    spans: list[Span] = [(0, 0, 300, 500), (0, 1, 400, 700), (1, 1, 700, 1000)]
    timeline = launched(tmp_path, MEETING, {"a": 3, "b": 4}, spans)
    found = path_of(replace(timeline, incomplete=incomplete_rows({"cta": 0})), 1000)
    assert shares(found) == {0: (0.5, 0.0), 1: (0.5, 0.0)}


def test_partitions_that_are_not_seen_to_wait_for_each_other_have_no_path(tmp_path: Path) -> None:
    timeline = launched(tmp_path, MEETING, {"a": 3, "b": 4}, [(0, 0, 0, 500), (1, 1, 0, 900)])
    partitions = (Partition("default partition", 1), Partition("partition 0", 1))
    apart = replace(timeline, table=replace(timeline.table, partitions=partitions))
    assert critical_path(apart, evaluated_kernel(apart.launch)) is None
