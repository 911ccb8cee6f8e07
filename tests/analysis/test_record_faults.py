"""Whose records are missing."""

from __future__ import annotations

from timelines import incomplete_rows

from kprof_inject.analysis.summary import RecordFaults, record_faults

ROWS = incomplete_rows(
    {"cta": 3, "warp": 0, "records_written": 20, "records_lost": 4},
    {"cta": 3, "warp": 1, "records_written": 30, "records_lost": 14, "stray_ends": 1},
    {"cta": 8, "warp": 5, "records_written": 24, "records_lost": 8},
    {"cta": 9, "warp": 2, "records_written": 6, "records_damaged": 2},
)


def test_the_worst_is_named() -> None:
    assert record_faults(ROWS, "records_lost") == RecordFaults(26, 3, 2, 3, 1, 14, 30)


def test_each_count_is_told_by_itself() -> None:
    assert record_faults(ROWS, "stray_ends") == RecordFaults(1, 1, 1, 3, 1, 1, 30)
    assert record_faults(ROWS, "records_damaged") == RecordFaults(2, 1, 1, 9, 2, 2, 6)


def test_nothing_is_missing() -> None:
    assert record_faults(ROWS, "open_starts") is None
    assert record_faults(incomplete_rows(), "records_lost") is None
