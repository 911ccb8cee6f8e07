"""The summary of a launch in numbers, and as JSON."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from buffers import save_launch
from known_launch import FUNC, ITER, SCOPES, known_launch, known_rows
from timelines import incomplete_rows

from kprof_inject.analysis.summary import RecordFaults, summarise
from kprof_inject.capture.mode import RecordCost
from kprof_inject.timeline.timeline import decode_launch


def test_scopes_bear_their_names_and_their_statistics(tmp_path: Path) -> None:
    scopes = summarise(known_launch(tmp_path)).scopes
    assert [(scope.scope, scope.kind, scope.depth, scope.source) for scope in scopes] == [
        ("kernel", "func", 0, "/src/my kernel.py:12"),
        ("loop[0]", "loop", 1, "/src/my kernel.py:15"),
        ("iter[0]", "iter", 2, "/src/my kernel.py:15"),
        ("tail", "loop", 1, ""),
    ]
    # Shares are of 2 CTAs of 1,000 ns with 2 warps each.
    assert [(scope.count, scope.total_ns, scope.self_ns, scope.share) for scope in scopes] == [
        (4, 3400, 2400, 0.85),
        (2, 1000, 720, 0.25),
        (10, 280, 280, 0.07),
        (0, None, None, None),
    ]
    assert [scope.mean_ns for scope in scopes] == [850.0, 500.0, 28.0, None]


def test_the_self_time_of_a_loop_with_iterations_is_between_these(tmp_path: Path) -> None:
    scopes = summarise(known_launch(tmp_path / "all")).scopes
    assert [scope.between_iterations_ns for scope in scopes] == [None, 720, None, None]
    without = [row for row in known_rows() if row.scope != ITER]
    scopes = summarise(known_launch(tmp_path / "none", rows=without)).scopes
    assert [scope.between_iterations_ns for scope in scopes] == [None] * 4


def test_records_without_a_partner_are_told_of_their_scope(tmp_path: Path) -> None:
    timeline = known_launch(tmp_path, open_starts=np.array([0, 3, 0, 1]), stray_ends=np.array([2, 4, 0, 0]))
    assert [scope.without_partner for scope in summarise(timeline).scopes] == [2, 7, 0, 1]


def test_what_is_missing_is_told_of_its_warps(tmp_path: Path) -> None:
    incomplete = incomplete_rows(
        {"cta": 0, "warp": 1, "records_written": 9, "records_lost": 1, "open_starts": 1},
        {"cta": 1, "warp": 0, "records_written": 12, "records_lost": 4},
    )
    summary = summarise(known_launch(tmp_path, incomplete=incomplete))
    assert summary.lost == RecordFaults(5, 2, 2, 1, 0, 4, 12)
    assert summary.open_starts == RecordFaults(1, 1, 1, 0, 1, 1, 9)
    assert (summary.stray_ends, summary.damaged) == (None, None)


def test_what_was_subtracted_is_of_all_scopes(tmp_path: Path) -> None:
    cost = RecordCost(34.0, 34.0, 2.0)
    rows = [row._replace(record_ns=17) for row in known_rows() if row.scope == FUNC]
    summary = summarise(known_launch(tmp_path, rows=rows, kernel={"record_cost": cost}))
    assert (summary.record_cost, summary.subtracted_ns) == (cost, 4 * 17)
    assert (summary.scopes[FUNC].raw_total_ns, summary.scopes[FUNC].total_ns) == (3468, 3400)


def test_a_launch_that_never_ran_has_a_summary(tmp_path: Path) -> None:
    summary = summarise(decode_launch(save_launch(tmp_path, SCOPES, [None, None], slots=4)))
    assert (summary.ctas, summary.ctas_never_ran, summary.duration_ns, summary.waves) == (0, 2, 0, None)
    assert [(scope.count, scope.total_ns, scope.share) for scope in summary.scopes] == [(0, None, None)] * 4
