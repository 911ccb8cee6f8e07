"""Ranks wait for the one that is late, in launches whose CTAs wait at known times."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from barrier_launches import Visits, launch
from programs.child import REPO
from replacing import replace
from snapshots import check

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.reader import read_capture
from kprof_inject.report.explanation import explanation
from kprof_inject.report.rank_notes import last_ranks_in, rank_notes
from kprof_inject.timeline.axis import Axis, DeviceClock, PlacedLaunch
from kprof_inject.timeline.rank_waits import RankWait, last_ranks, rank_waits
from kprof_inject.timeline.timeline import Timeline, decode_launch

CTAS = 4
ERROR_NS = 600
BEGIN_NS, WORK_NS = 1_000, 5_000
LEAVES_AFTER_NS = 700
"""A flag takes as long to the other GPU."""


def ranks(folder: Path, *late_ns: Sequence[int], left_early_ns: int = 0) -> list[PlacedLaunch]:
    """A launch of each rank, whose CTAs come so much late to a meeting of all CTAs with their number."""
    comes_ns = [[BEGIN_NS + WORK_NS + ns for ns in one] for one in late_ns]
    placed = []
    for rank, own_ns in enumerate(comes_ns):
        visits: Visits = []
        for cta, mine_ns in enumerate(own_ns):
            all_ns = [one[cta] for one in comes_ns]
            wait_ns = LEAVES_AFTER_NS if mine_ns < max(all_ns) else 100
            visits.append([(mine_ns, max(max(all_ns) + wait_ns - left_early_ns, mine_ns + 100))])
        timeline = launch(folder / str(rank), visits)
        placed.append(on_axis(at_begin(timeline, BEGIN_NS), f"rank {rank}"))
    return placed


def at_begin(timeline: Timeline, begin_ns: int) -> Timeline:
    ctas = timeline.ctas.copy()
    ctas["init_ns"] = begin_ns
    return replace(timeline, ctas=ctas)


def on_axis(timeline: Timeline, place_name: str) -> PlacedLaunch:
    axis = Axis(number=0, devices=2, zero_ns=0, error_ns=ERROR_NS)
    return PlacedLaunch(timeline, place_name, DeviceClock(axis, None, ERROR_NS, ""), None)


def only(launches: list[PlacedLaunch]) -> RankWait:
    (wait,) = rank_waits(launches)
    return wait


@pytest.mark.parametrize("late", [0, 1, 2])
def test_a_rank_that_is_late_is_named_with_its_delay(tmp_path: Path, late: int) -> None:
    wait = only(ranks(tmp_path, *([20_000 + cta if rank == late else 0 for cta in range(CTAS)] for rank in range(3))))
    assert (wait.last, wait.last_in, wait.visits, wait.unknown) == (f"rank {late}", CTAS, CTAS, 0)
    assert wait.after_ns == 20_001.5
    assert (wait.cta, wait.max_ns) == (CTAS - 1, 20_003)
    assert wait.waited_ns[late] == pytest.approx(100, abs=5)
    assert wait.waited_ns[late - 1] == pytest.approx(20_702, abs=15)


def test_a_single_late_cta_is_named_though_others_of_the_other_rank_are_last(tmp_path: Path) -> None:
    wait = only(ranks(tmp_path, [300, 300, 300, 0], [0, 0, 0, 8_000]))
    assert (wait.last, wait.last_in, wait.cta, wait.max_ns) == ("rank 1", 1, 3, 8_000)


def test_within_the_clocks_error_none_is_last(tmp_path: Path) -> None:
    wait = only(ranks(tmp_path, [ERROR_NS] * CTAS, [0] * CTAS))
    assert (wait.last_in, wait.cta, wait.max_ns) == (0, -1, ERROR_NS)


def test_a_rank_that_left_before_the_last_came_waited_for_something_else(tmp_path: Path) -> None:
    assert not list(rank_waits(ranks(tmp_path, [0] * CTAS, [20_000] * CTAS, left_early_ns=19_000)))


def test_launches_that_did_not_run_at_the_same_time_are_not_compared(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, [0] * CTAS, [20_000] * CTAS)
    ctas = second.timeline.ctas.copy()
    for field in ("init_ns", "pre_final_ns", "post_final_ns"):
        ctas[field] += 2_000_000
    later = replace(second, timeline=replace(second.timeline, ctas=ctas))
    assert not list(rank_waits([first, later]))


def test_launches_of_one_rank_wait_for_nobody(tmp_path: Path) -> None:
    first, second = ranks(tmp_path, [0] * CTAS, [20_000] * CTAS)
    assert not list(rank_waits([first, replace(second, place_name=first.place_name)]))


def test_of_many_launches_a_line_says_who_is_last_most_often(tmp_path: Path) -> None:
    waits = [
        only(ranks(tmp_path / str(number), [0] * CTAS, [late_ns] * CTAS))
        for number, late_ns in enumerate((4_000, 5_000, 300))
    ]
    waits[1] = replace(waits[1], unknown=2)
    check("report/ranks", "\n".join(rank_notes(last_ranks(waits))), "late")
    check("report/ranks", "\n".join(rank_notes(last_ranks(waits[2:]))), "none is late")
    assert last_ranks([]) == []


def test_the_waits_are_those_of_the_scope_that_polls(tmp_path: Path) -> None:
    wait = only(ranks(tmp_path, [0] * CTAS, [20_000] * CTAS))
    assert (wait.scope, wait.error_ns) == ("spin[0]", ERROR_NS)
    assert np.isfinite(wait.waited_ns).all()


def test_a_cta_that_was_late_on_two_gpus_is_found_in_every_launch() -> None:
    """20 launches of ``examples/all_reduce.py --late-rank 1 --late-cta 37`` on two H100.

    CTA 37 of rank 1 waits for 20 µs between two meetings, and then reads alone, which takes some 5 µs less.
    """
    reports = [
        LaunchAnalysis.of(decode_launch(recorded))
        for recorded in read_capture(REPO / "tests/captures/late-rank").launches
    ]
    found = {rank.scope: rank for rank in last_ranks_in(reports)}
    assert list(found) == ["spin[0]", "spin[1]", "spin[2]", "spin[3]"]
    # In this one, rank 0 waits for rank 1; in ``spin[2]``, rank 1 for rank 0, and each in the other for itself.
    late = found["spin[3]"]
    assert (late.last, late.launches_last, late.launches, late.cta) == ("rank 1, device 1", 20, 20, 37)
    assert late.cta_after_ns == pytest.approx(15_100, abs=200)
    assert late.error_ns < 1_700
    # The host of rank 0 launches later.
    assert found["spin[0]"].last == "rank 0, device 0"
    assert found["spin[0]"].begins_after_ns == pytest.approx(found["spin[0]"].after_ns, rel=0.01)
    assert [fact.scope for fact in explanation(reports).ranks] == list(found)


def test_one_rank_alone_waits_for_none() -> None:
    launches = read_capture(REPO / "tests/captures/late-rank").launches
    reports = [LaunchAnalysis.of(decode_launch(one)) for one in launches if one.origin.rank == 0]
    assert last_ranks_in(reports) == []
