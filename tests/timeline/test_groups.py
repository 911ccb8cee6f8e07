"""Columns of values by group."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.columns import NO_LARGEST, NO_SMALLEST, largest, never_falling, smallest

rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=30).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


@given(rows)
def test_extremes_are_those_of_each_group(rows: list[tuple[int, int]]) -> None:
    group, values = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    mine = [[value for at, value in rows if at == number] for number in range(6)]
    assert smallest(group, values, 6).tolist() == [min(found, default=NO_SMALLEST) for found in mine]
    assert largest(group, values, 6).tolist() == [max(found, default=NO_LARGEST) for found in mine]


@given(rows)
def test_no_value_falls_below_those_before_it(rows: list[tuple[int, int]]) -> None:
    group, values = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    expected = []
    for _, mine in groupby(rows, key=lambda row: row[0]):
        found = [value for _, value in mine]
        expected += [max(found[: at + 1]) for at in range(len(found))]
    assert never_falling(values, group).tolist() == expected
