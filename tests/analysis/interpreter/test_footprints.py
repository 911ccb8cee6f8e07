"""Distinct bytes of memory, against sets of them."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import bytes_in
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter import footprints
from kprof_inject.analysis.interpreter.axis_arrays import (
    CTA,
    AxisArray,
    GridAxis,
    IntegerExpr,
    Mask,
    TooLarge,
    dimension,
    loop_axis,
)
from kprof_inject.analysis.interpreter.footprints import Ranges, touched, union

quick = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = {CTA: 3, loop_axis(7): 2, dimension(0): 4, dimension(1): 2}

pairs = st.lists(st.tuples(st.integers(-20, 60), st.integers(1, 9)), max_size=12)


def ranges_of(found: list[tuple[int, int]]) -> Ranges:
    starts = np.array([start for start, _ in found], np.int64)
    return Ranges.of(starts, starts + np.array([size for _, size in found], np.int64))


def bytes_from(found: list[tuple[int, int]]) -> set[int]:
    return {byte for start, size in found for byte in range(start, start + size)}


@given(pairs)
@quick
def test_ranges_are_in_order_and_apart(found: list[tuple[int, int]]) -> None:
    ranges = ranges_of(found)
    assert bytes_in(ranges) == bytes_from(found)
    assert (ranges.starts[1:] > ranges.ends[:-1]).all()


@given(st.lists(pairs, max_size=4))
@quick
def test_a_union_has_each_byte_once(several: list[list[tuple[int, int]]]) -> None:
    assert bytes_in(union(map(ranges_of, several))) == {byte for found in several for byte in bytes_from(found)}


@given(pairs, st.lists(st.integers(-50, 50), max_size=5))
@quick
def test_ranges_repeat_from_each_offset(found: list[tuple[int, int]], offsets: list[int]) -> None:
    repeated = ranges_of(found).from_each(np.array(offsets, np.int64))
    assert bytes_in(repeated) == {offset + byte for offset in offsets for byte in bytes_from(found)}


def arrays(draw: st.DrawFn, values: st.SearchStrategy[int]) -> AxisArray:
    axes: list[GridAxis] = sorted(draw(st.sets(st.sampled_from(sorted(SIZES)))))
    shape = [SIZES[axis] for axis in axes]
    count = int(np.prod(shape, dtype=int))
    return AxisArray(tuple(axes), np.array(draw(st.lists(values, min_size=count, max_size=count))).reshape(shape))


@st.composite
def addresses(draw: st.DrawFn) -> IntegerExpr:
    return IntegerExpr.of(*(arrays(draw, st.integers(-30, 30)) for _ in range(draw(st.integers(1, 3)))))


@st.composite
def masks(draw: st.DrawFn) -> Mask:
    parts = [arrays(draw, st.integers(0, 1)) for _ in range(draw(st.integers(0, 3)))]
    return Mask(tuple(AxisArray(part.axes, part.values.astype(bool)) for part in parts))


def everywhere(part: AxisArray) -> NDArray[np.int64]:
    """Along all axes there are."""
    found: NDArray[np.int64] = np.broadcast_to(part.over(tuple(SIZES)), list(SIZES.values()))
    return found


@given(addresses(), masks(), st.sampled_from((1, 2, 8)))
@quick
def test_what_is_touched_is_what_each_element_is(address: IntegerExpr, mask: Mask, element_bytes: int) -> None:
    all_addresses = sum((everywhere(part) for part in address.parts), np.zeros(list(SIZES.values()), np.int64))
    inside = np.full(list(SIZES.values()), True)
    for factor in mask.factors:
        inside = inside & everywhere(factor)
    starts = all_addresses[inside].tolist()
    assert bytes_in(touched(address, mask, element_bytes)) == bytes_from([(start, element_bytes) for start in starts])
    assert mask.count(SIZES) == np.count_nonzero(inside)


def test_rows_that_lie_apart_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """But rows that lie side by side become one range, however many there are."""
    monkeypatch.setattr(footprints, "MAX_ELEMENTS", 100)
    rows, columns = np.arange(64), np.arange(32)

    def tile(stride: int) -> IntegerExpr:
        return IntegerExpr((AxisArray((dimension(0),), stride * rows), AxisArray((dimension(1),), 4 * columns)))

    assert touched(tile(4 * 32), Mask(), 4).size_bytes == 4 * 64 * 32
    assert touched(tile(4 * 64), Mask(), 4).size_bytes == 4 * 64 * 32
    with pytest.raises(TooLarge):
        touched(IntegerExpr((*tile(4 * 64).parts, AxisArray((CTA,), np.arange(9) << 20))), Mask(), 4)
