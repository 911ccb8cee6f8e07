"""Quantities as text."""

from __future__ import annotations

import pytest

from kprof_inject.quantities import (
    counted,
    numbered,
    percent,
    ratio,
    short_time,
    signed_microseconds,
    size_text,
    time_text,
)


@pytest.mark.parametrize(
    ("nanoseconds", "exact", "short"),
    [
        (None, "-", "-"),
        (0, "0 ns", "0 ns"),
        (999.4, "999 ns", "999 ns"),
        (999.6, "1.000 µs", "1.00 µs"),
        (1000, "1.000 µs", "1.00 µs"),
        (99_960, "99.960 µs", "100 µs"),
        (999_600, "999.600 µs", "1.00 ms"),
        (999_999.6, "1.000 ms", "1.00 ms"),
        (999_999_999.9, "1.000 s", "1.00 s"),
        (1_234_000_000_000, "1234.000 s", "1230 s"),
    ],
)
def test_times_bear_their_unit(nanoseconds: float | None, exact: str, short: str) -> None:
    assert (time_text(nanoseconds), short_time(nanoseconds)) == (exact, short)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(-9_056.0, "-9.06 µs"), (306.0, "+0.31 µs"), (-2.0, "+0.00 µs"), (1_234_567.0, "+1234.57 µs")],
)
def test_differences_of_one_column_have_one_unit(nanoseconds: float, text: str) -> None:
    assert signed_microseconds(nanoseconds) == text


def test_sizes_have_the_unit_that_suits_them() -> None:
    assert [size_text(size) for size in (1, 999, 1_000, 4_049_000, 3_000_000_000)] == [
        *("1 byte", "999 bytes", "1.0 kB", "4.0 MB", "3.0 GB")
    ]


def test_shares_are_percentages() -> None:
    shares = (0.0, 0.0004, -0.0001, -0.001, 0.255, 1.0)
    assert [percent(share) for share in shares] == ["0.0 %", "0.0 %", "0.0 %", "-0.1 %", "25.5 %", "100.0 %"]


def test_ratios_are_finer_where_they_are_small() -> None:
    assert [ratio(value) for value in (0.0, 0.534, 1.0, 1.949, 1.95, 1.996, 9.14, 120.0)] == [
        *("0.00 x", "0.53 x", "1.00 x", "1.95 x", "1.95 x", "2.0 x", "9.1 x", "120.0 x")
    ]


def test_numbers_in_a_row_are_a_range() -> None:
    lists = ([3], [4, 5, 6, 7], [0, 2], [0, 1, 2, 8, 10, 11])
    assert [numbered("warp", numbers) for numbers in lists] == [
        *("warp 3", "warps 4-7", "warps 0, 2", "warps 0-2, 8, 10-11")
    ]


def test_one_is_singular() -> None:
    assert [counted(number, "warp") for number in (0, 1, 2)] == ["0 warps", "1 warp", "2 warps"]
    assert [counted(number, "launch") for number in (1, 2)] == ["1 launch", "2 launches"]
