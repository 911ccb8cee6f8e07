"""How a page's room is shared, and what is said of it."""

from __future__ import annotations

from pathlib import Path

from known_launch import known_launch

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.report.html.document import omissions
from kprof_inject.report.html.scope_columns import shares


def test_what_small_launches_leave_the_large_ones_get() -> None:
    assert shares([10, 500, 20, 900], 1000) == [10, 485, 20, 485]
    assert shares([10, 20], 1000) == [10, 20]
    assert shares([], 1000) == []


def test_together_they_never_get_more_than_there_is() -> None:
    assert sum(shares([700, 701, 702], 1000)) <= 1000


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    report = LaunchAnalysis.of(known_launch(tmp_path, scope_count=16))
    assert omissions([report], 16) == []
    (line,) = omissions([report], 15)
    assert line.startswith("kernel, launch 0: ")
    assert "16 scopes" in line
