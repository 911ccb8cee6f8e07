"""Bounds of arrays over named axes."""

from __future__ import annotations

import numpy as np
import pytest

from kprof_inject.analysis.interpreter import axis_arrays
from kprof_inject.analysis.interpreter.axis_arrays import (
    CTA,
    AxisArray,
    IntegerExpr,
    Mask,
    TooLarge,
    compared,
    dimension,
    joined,
)


def test_where_a_tile_lies_inside_as_a_whole_a_mask_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 0 to 3 and so on of 8 CTAs lie below 14: the first 3 CTAs' as a whole, 2 of the next."""
    rows = IntegerExpr((AxisArray((CTA,), 4 * np.arange(8)), AxisArray((dimension(0),), np.arange(4))))
    sizes = {CTA: 8, dimension(0): 4}
    exact = compared(np.less, rows, IntegerExpr.integer(14))
    assert exact.count(sizes) == 14
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 31)
    least = compared(np.less, rows, IntegerExpr.integer(14))
    assert least.count(sizes) == 12
    assert (exact.is_lower_bound, least.is_lower_bound, (least & Mask()).is_lower_bound) == (False, True, True)
    assert least.inverted() is None
    with pytest.raises(TooLarge):
        compared(np.equal, rows, IntegerExpr.integer(14))


def test_an_array_has_no_more_elements_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 12)
    one, other = AxisArray((CTA,), np.arange(3)), AxisArray((dimension(0),), np.arange(4))
    assert joined(np.add, one, other).values.size == 12
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 11)
    with pytest.raises(TooLarge):
        joined(np.add, one, other)
    with pytest.raises(TooLarge):
        IntegerExpr((one, other)).joint()
    with pytest.raises(TooLarge):
        IntegerExpr((one,)) * IntegerExpr((other,))
    # They may still be added, and told apart.
    assert (IntegerExpr((one,)) + IntegerExpr((other,))).bounds() == (0, 5)
