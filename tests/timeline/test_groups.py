"""Values that may not fall within their group."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.columns import never_falling

rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=30).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


@given(rows)
def test_no_value_falls_below_those_before_it(rows: list[tuple[int, int]]) -> None:
    group, values = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    expected = []
    for _, mine in groupby(rows, key=lambda row: row[0]):
        found = [value for _, value in mine]
        expected += [max(found[: at + 1]) for at in range(len(found))]
    assert never_falling(values, group).tolist() == expected
