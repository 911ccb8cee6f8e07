"""Numbers as text, against Python's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.export.text_rows import number_width, thousandths_width, write_numbers, write_thousandths

any_length = st.integers(0, 63).flatmap(lambda bits: st.integers(0, 2**bits - 1))


def written(values: list[int], width: int, write: Callable[..., None]) -> list[str]:
    """The texts, with what is not needed taken out; the bytes around them are left alone."""
    rows = np.full((len(values), width + 3), ord("#"), dtype=np.uint8)
    write(rows, 2, width, np.array(values, dtype=np.int64))
    assert (rows[:, :2] == ord("#")).all() and (rows[:, 2 + width :] == ord("#")).all()
    return [row.tobytes().replace(b"\0", b"").strip(b"#").decode() for row in rows]


def column(values: list[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


@given(st.lists(any_length, min_size=1, max_size=20))
def test_numbers_are_written_in_decimal(values: list[int]) -> None:
    assert written(values, number_width(column(values)), write_numbers) == [str(value) for value in values]


@given(st.lists(any_length | any_length.map(lambda value: -value), min_size=1, max_size=20))
def test_numbers_below_zero_have_a_sign(values: list[int]) -> None:
    assert written(values, number_width(column(values)), write_numbers) == [str(value) for value in values]


@given(st.lists(any_length, min_size=1, max_size=20))
def test_thousandths_have_three_decimals(values: list[int]) -> None:
    shown = written(values, thousandths_width(column(values)), write_thousandths)
    assert shown == [f"{value // 1000}.{value % 1000:03}" for value in values]


@pytest.mark.parametrize("value", [0, 9, 10, 9_999, 10_000, 10_001, 99_999_999, 100_000_000, 10**16, 2**63 - 1])
def test_a_number_stands_beside_a_longer_one(value: int) -> None:
    assert written([value, 2**63 - 1], number_width(column([2**63 - 1])), write_numbers)[0] == str(value)


def test_a_column_is_no_wider_than_its_longest_number_needs() -> None:
    assert [number_width(column([value])) for value in (0, 9_999, 10_000, -1)] == [4, 4, 8, 5]
