"""Whose records are missing."""

from __future__ import annotations

from timelines import incomplete_rows

from kprof_inject.analysis.summary import Shortfall, shortfall_of

ROWS = incomplete_rows(
    {"cta": 3, "warp": 0, "records_written": 20, "records_lost": 4},
    {"cta": 3, "warp": 1, "records_written": 30, "records_lost": 14, "stray_ends": 1},
    {"cta": 8, "warp": 5, "records_written": 24, "records_lost": 8},
    {"cta": 9, "warp": 2, "records_written": 6, "records_damaged": 2},
)


def test_the_worst_is_named() -> None:
    assert shortfall_of(ROWS, "records_lost") == Shortfall(26, 3, 2, 3, 1, 14, 30)


def test_each_count_is_told_by_itself() -> None:
    assert shortfall_of(ROWS, "stray_ends") == Shortfall(1, 1, 1, 3, 1, 1, 30)
    assert shortfall_of(ROWS, "records_damaged") == Shortfall(2, 1, 1, 9, 2, 2, 6)


def test_nothing_is_missing() -> None:
    assert shortfall_of(ROWS, "open_starts") is None
    assert shortfall_of(incomplete_rows(), "records_lost") is None
