"""Columns kept scope by scope, and exact quantiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.spread import ScopeColumn, narrow, take_quantiles

INT32_MAX = 2**31 - 1


def column(*blocks: list[tuple[int, int]]) -> ScopeColumn:
    """Blocks of scopes and their values, for a table of three scopes."""
    kept = ScopeColumn(3)
    for block in blocks:
        scope, values = np.array(block, dtype=np.int64).reshape(-1, 2).T
        kept.add(scope.astype(np.int16), narrow(values))
    return kept


def test_each_scope_has_its_values_in_the_order_of_the_blocks() -> None:
    kept = column([(0, 7), (0, 5), (2, 9)], [], [(0, 1), (1, 3), (2, 8)])
    assert [kept.joined(scope).tolist() for scope in range(3)] == [[7, 5, 1], [3], [9, 8]]
    assert [part.tolist() for part in kept.parts(2)] == [[9], [], [8]]


def test_a_scope_without_values_is_empty() -> None:
    assert column().joined(0).size == column([(1, 5)]).joined(0).size == 0
    assert [part.size for part in column().parts(0)] == [0]


def test_what_is_added_later_leaves_earlier_values_alone() -> None:
    kept = column(*[[(0, block), (1, -block)] for block in range(100)])
    assert kept.joined(0).tolist() == list(range(100))
    assert kept.joined(1).tolist() == [-block for block in range(100)]


def test_a_copy_may_be_reordered() -> None:
    kept = column([(0, 3), (0, 1)])
    kept.joined(0).sort()
    assert kept.joined(0).tolist() == [3, 1]


@pytest.mark.parametrize("value", [INT32_MAX + 1, -INT32_MAX - 2, 2**62])
def test_large_values_are_kept_whole(value: int) -> None:
    assert column([(0, 1)], [(0, value)], [(0, 2)]).joined(0).tolist() == [1, value, 2]


def test_small_values_take_four_bytes() -> None:
    assert narrow(np.array([INT32_MAX, -INT32_MAX - 1])).itemsize == 4
    assert narrow(np.array([INT32_MAX + 1])).itemsize == 8


@given(st.lists(st.integers(0, 50) | st.integers(0, 2**40), min_size=1), st.lists(st.floats(0, 1), min_size=1))
def test_quantiles_are_those_of_numpy(values: list[int], points: list[float]) -> None:
    expected = np.quantile(np.array(values), points)
    assert take_quantiles(narrow(np.array(values)), points) == pytest.approx(expected.tolist(), rel=1e-12)
