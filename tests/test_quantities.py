"""Quantities as text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

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
    ("text", "values"),
    [
        (signed_microseconds, {-9_056.0: "-9.06 µs", 306.0: "+0.31 µs", -2.0: "+0.00 µs", 1_234_567.0: "+1234.57 µs"}),
        (size_text, {1: "1 byte", 999: "999 bytes", 1_000: "1.0 kB", 4_049_000: "4.0 MB", 3_000_000_000: "3.0 GB"}),
        (percent, {0.0004: "0.0 %", -0.0001: "0.0 %", -0.001: "-0.1 %", 0.255: "25.5 %", 1.0: "100.0 %"}),
        (ratio, {0.0: "0.00 x", 0.534: "0.53 x", 1.949: "1.95 x", 1.996: "2.0 x", 9.14: "9.1 x", 120.0: "120.0 x"}),
        (
            partial(numbered, "warp"),
            {
                (3,): "warp 3",
                (4, 5, 6, 7): "warps 4-7",
                (0, 2): "warps 0, 2",
                (0, 1, 2, 8, 10, 11): "warps 0-2, 8, 10-11",
            },
        ),
        (lambda number: counted(number, "warp"), {0: "0 warps", 1: "1 warp", 2: "2 warps"}),
        (lambda number: counted(number, "launch"), {1: "1 launch", 2: "2 launches"}),
    ],
)
def test_quantities_read_as_a_person_writes_them(text: Callable[[Any], str], values: dict[Any, str]) -> None:
    assert {value: text(value) for value in values} == values
