"""Functions of columns of numbers agree with their plain definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.columns import distinct, merged_ranges

NUMBERS = st.lists(st.integers(-20, 20), max_size=40)


@given(NUMBERS)
def test_distinct_values_ascend(values: list[int]) -> None:
    assert distinct(np.array(values, np.int64)).tolist() == sorted(set(values))
    assert distinct(np.array([values, values], np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=20))
def test_merged_ranges_have_the_same_numbers_and_gaps_between_them(ranges: list[tuple[int, int]]) -> None:
    starts, ends = (np.array(side, np.int64) for side in ([b for b, _ in ranges], [b + size for b, size in ranges]))
    merged = [array.tolist() for array in merged_ranges(starts, ends)]
    covered = {number for begin, size in ranges for number in range(begin, begin + size)}
    assert {number for begin, end in zip(*merged, strict=True) for number in range(begin, end)} == covered
    assert all(end < begin for end, begin in zip(merged[1], merged[0][1:], strict=False))
