"""Distinct bytes of memory against sets of them, and repeated addresses against all addresses."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from brute_force import bytes_in
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter import axis_arrays, footprints
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
from kprof_inject.analysis.interpreter.footprints import max_repeats, touched

quick = settings(max_examples=60, deadline=None, derandomize=True)
SIZES = {CTA: 3, loop_axis(7): 2, dimension(0): 4, dimension(1): 2}


def bytes_from(found: list[tuple[int, int]]) -> set[int]:
    return {byte for start, size in found for byte in range(start, start + size)}


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
    for factor in mask.parts:
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


def test_bytes_of_a_sector_count_together_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel of three interleaved ones is every third byte."""
    monkeypatch.setattr(footprints, "MAX_ELEMENTS", 100)
    columns = AxisArray((dimension(0),), 3 * np.arange(32))

    def rows(count: int) -> IntegerExpr:
        return IntegerExpr((AxisArray((CTA,), np.arange(count) << 10), columns))

    assert touched(rows(3), Mask(), 1).size_bytes == 3 * 32
    assert touched(rows(9), Mask(), 1).size_bytes == 9 * (3 * 31 + 1)


def test_elements_of_a_triangle_are_counted_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "MAX_ELEMENTS", 100)
    monkeypatch.setattr(axis_arrays, "MAX_ELEMENTS", 100)

    def triangle(rows: int) -> tuple[IntegerExpr, Mask]:
        row, column = np.arange(rows), np.arange(16)
        start = AxisArray((CTA,), 4 * (row * (row + 1) // 2))
        is_inside = AxisArray((CTA, dimension(0)), column <= row[:, None])
        return IntegerExpr((start, AxisArray((dimension(0),), 4 * column))), Mask((is_inside,))

    assert touched(*triangle(16), 4).size_bytes == 4 * 16 * 17 // 2
    with pytest.raises(TooLarge):
        touched(*triangle(80), 4)


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
