"""How often elements of one execution have the same address, against all addresses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.analysis.interpreter.axis_arrays import CTA, AxisArray, IntegerExpr, dimension
from kprof_inject.analysis.interpreter.footprints import max_repeats

ROWS, COLUMNS = dimension(0), dimension(1)


def along(*axes_and_values: object) -> AxisArray:
    *axes, values = axes_and_values
    return AxisArray(tuple(axes), np.array(values))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "repeats"),
    [
        # Eight weights of four bits in a word: rows // 8, and the columns beside each other.
        ((along(ROWS, np.arange(16) // 8 * 4096), along(COLUMNS, np.arange(4) * 4)), 8),
        # Windows that overlap.
        ((along(ROWS, np.arange(16)), along(COLUMNS, np.arange(4))), 4),
        # Each element has its own; what the CTA adds is the same for all.
        ((along(CTA, [0, 9]), along(ROWS, np.arange(16) * 64), along(COLUMNS, np.arange(4) * 4)), 1),
        # Rows that wrap around in some CTA; columns that are not in the address.
        ((along(CTA, ROWS, [np.arange(16), np.arange(16) % 10]),), 8),
    ],
)
def test_repeats(parts: tuple[AxisArray, ...], repeats: int) -> None:
    assert max_repeats(IntegerExpr(parts), (16, 4)) == repeats


def test_repeats_along_one_dimension() -> None:
    address = IntegerExpr((along(ROWS, COLUMNS, np.add.outer(np.arange(16) // 8, np.arange(4) // 2)),))
    assert [max_repeats(address, (16, 4), dimension) for dimension in (0, 1)] == [8, 2]


OFFSETS = st.lists(st.integers(-3, 40), min_size=4, max_size=4)


@given(OFFSETS, OFFSETS, st.lists(OFFSETS, min_size=2, max_size=2))
def test_no_execution_repeats_an_address_more_often(
    rows: list[int], columns: list[int], rows_by_cta: list[list[int]]
) -> None:
    """And some execution does, unless the steps along a dimension are unknown."""
    address = IntegerExpr((along(ROWS, rows), along(COLUMNS, columns), along(CTA, ROWS, rows_by_cta)))
    places = np.array(rows_by_cta)[:, :, None] + np.array(rows)[None, :, None] + np.array(columns)[None, None, :]
    assert max_repeats(address, (4, 4)) == max(max(Counter(one.ravel().tolist()).values()) for one in places)
