"""How a page's room is shared."""

from __future__ import annotations

from kprof_inject.report.html.columns import shares


def test_what_small_launches_leave_the_large_ones_get() -> None:
    assert shares([10, 500, 20, 900], 1000) == [10, 485, 20, 485]
    assert shares([10, 20], 1000) == [10, 20]
    assert shares([], 1000) == []
