"""Sums and masks over named axes, against numpy's own over all of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter import axis_arrays
from kprof_inject.analysis.interpreter.axis_arrays import (
    CTA,
    AxisArray,
    IntegerExpr,
    Mask,
    TooLarge,
    compared,
    constant,
    dimension,
    joined,
    loop_axis,
    where,
)

SIZES = {CTA: 3, loop_axis(5): 2, dimension(0): 4, dimension(1): 2}
AXES = tuple(SIZES)
quick = settings(max_examples=50, deadline=None, derandomize=True)
ORDERS: list[Callable[..., NDArray[np.bool_]]] = [np.less, np.less_equal, np.greater, np.greater_equal]

Array = NDArray[np.int64]


def over_all(*parts: AxisArray) -> list[Array]:
    return [np.broadcast_to(part.over(AXES), list(SIZES.values())) for part in parts]


def whole(value: IntegerExpr | Mask) -> Array:
    """Along all axes."""
    if isinstance(value, IntegerExpr):
        return np.asarray(np.sum(over_all(*value.parts), axis=0))
    return np.asarray(np.logical_and.reduce(over_all(constant(True), *value.factors)))


@st.composite
def parts(draw: st.DrawFn) -> AxisArray:
    axes = sorted(draw(st.sets(st.sampled_from(AXES))))
    shape = [SIZES[axis] for axis in axes]
    count = int(np.prod(shape, dtype=int))
    return AxisArray(
        tuple(axes), np.array(draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count))).reshape(shape)
    )


sums = st.lists(parts(), min_size=1, max_size=3).map(lambda found: IntegerExpr.of(*found))
masks = st.lists(parts(), max_size=2).map(
    lambda found: Mask(tuple(AxisArray(one.axes, one.values > 0) for one in found))
)


@given(sums, sums)
@quick
def test_sums_are_reckoned_with_as_arrays_are(one: IntegerExpr, other: IntegerExpr) -> None:
    assert (whole(one + other) == whole(one) + whole(other)).all()
    assert (whole(-one) == -whole(one)).all()
    assert (whole(one * other) == whole(one) * whole(other)).all()
    assert np.array_equal(over_all(one.joint())[0], whole(one))
    assert all(len({part.axes for part in value.parts}) == len(value.parts) for value in (one + other, one * other))


@given(sums)
@quick
def test_bounds_hold_everywhere(value: IntegerExpr) -> None:
    low, high = value.bounds()
    assert (low <= whole(value)).all() and (whole(value) <= high).all()
    assert value.only() in (None, *whole(value).flat)


@given(masks, masks, sums, sums)
@quick
def test_masks_are_joined_inverted_and_counted(
    one: Mask, other: Mask, then: IntegerExpr, otherwise: IntegerExpr
) -> None:
    assert (whole(one & other) == (whole(one) & whole(other))).all()
    assert np.array_equal(over_all(one.joint())[0], whole(one))
    inverted = one.inverted()
    assert inverted is not None and (whole(inverted) == ~whole(one)).all()
    assert (one & other).count(SIZES) == np.count_nonzero(whole(one) & whole(other))
    assert (whole(where(one, then, otherwise)) == np.where(whole(one), whole(then), whole(otherwise))).all()


@given(sums, sums, st.sampled_from([*ORDERS, np.equal, np.not_equal]), st.sampled_from((3, 8, 20, 1 << 22)))
@quick
def test_a_comparison_holds_where_it_says(
    one: IntegerExpr, other: IntegerExpr, compare: Callable[..., NDArray[np.bool_]], most: int
) -> None:
    """Everywhere else it does not, unless it is too large for that."""
    holds = compare(whole(one), whole(other))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axis_arrays, "MAX_ELEMENTS", most)
        try:
            found = compared(compare, one, other)
        except TooLarge:
            return
    assert (whole(found) <= holds).all()
    assert found.is_lower_bound or (whole(found) == holds).all()


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
