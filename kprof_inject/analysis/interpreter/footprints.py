"""Footprints: the bytes of memory that an access touches, each counted once, and how many elements share an address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.axis_arrays import (
    MAX_ELEMENTS,
    AxisArray,
    GridAxis,
    IntegerExpr,
    Mask,
    TooLarge,
    constant,
    dimension,
    groups_of,
    joined,
)
from kprof_inject.timeline.columns import distinct, merged_ranges

Addresses = NDArray[np.int64]
SECTOR_BYTES = 32  # a sector of the L2, which is moved as a whole (Nsight Compute, Kernel Profiling Guide)


class Ranges(Struct, frozen=True):
    """Bytes of memory as ascending ranges that do not touch each other."""

    starts: Addresses
    ends: Addresses

    @classmethod
    def of(cls, starts: Addresses, ends: Addresses) -> Ranges:
        """Merge ranges, which may be in any order and overlap."""
        return cls(*merged_ranges(starts, ends))

    @property
    def size_bytes(self) -> int:
        """The total size."""
        return int((self.ends - self.starts).sum())

    @property
    def sectors(self) -> Ranges:
        """The whole sectors that the ranges touch."""
        return Ranges.of(self.starts // SECTOR_BYTES * SECTOR_BYTES, -(-self.ends // SECTOR_BYTES) * SECTOR_BYTES)


NOTHING = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))


def union(ranges: Iterable[Ranges]) -> Ranges:
    """Return all bytes that are in any of the ranges."""
    found = [NOTHING, *ranges]
    return Ranges.of(np.concatenate([one.starts for one in found]), np.concatenate([one.ends for one in found]))


_MAX_CHUNKS = 8


def touched(address: IntegerExpr, mask: Mask, element_bytes: int) -> Ranges:
    """Return the bytes of the elements at all addresses where the mask is true. Raises ``TooLarge``.

    If there are too many ranges, gaps in sectors that are touched count as touched.
    """
    offsets = [_offsets(group) for group in groups_of([*address.parts, *mask.parts])]
    ranges = Ranges(np.zeros(1, np.int64), np.full(1, element_bytes, np.int64))
    # The smallest step first: adjacent elements merge into one range.
    for chunks in sorted(offsets, key=lambda one: int(np.diff(one[0]).min()) if one[0].size > 1 else 0):
        if max(one.size for one in chunks) * ranges.starts.size > MAX_ELEMENTS:
            # A smaller gap between two ranges contains no whole sector.
            has_gap = ranges.starts[1:] - ranges.ends[:-1] >= SECTOR_BYTES
            first = np.flatnonzero(np.append(True, has_gap))
            ranges = Ranges(ranges.starts[first], ranges.ends[np.append(first[1:], ranges.ends.size) - 1])
        found: list[Ranges] = []
        for chunk in chunks:
            if chunk.size * ranges.starts.size + sum(one.starts.size for one in found) > MAX_ELEMENTS:
                raise TooLarge
            starts, ends = (np.add.outer(chunk, side).ravel() for side in (ranges.starts, ranges.ends))
            found.append(Ranges.of(starts, ends))
        ranges = union(found)
    return ranges


def _offsets(group: Sequence[AxisArray]) -> list[Addresses]:
    """Return the sum of integers where all booleans are true, in chunks along the first axis if large."""
    sizes: dict[GridAxis, int] = {}
    for part in group:
        sizes |= {axis: max(size, sizes.get(axis, 1)) for axis, size in part.sizes.items()}
    count = -(-prod(sizes.values()) // MAX_ELEMENTS)
    if count < 2:
        return [_offsets_of(group)]
    axis = min(sizes)
    each = sizes[axis] // count
    if count > _MAX_CHUNKS or not each:
        raise TooLarge
    chunks = (slice(first, first + each) for first in range(0, sizes[axis], each))
    return [_offsets_of([_sliced(part, axis, chunk) for part in group]) for chunk in chunks]


def _sliced(part: AxisArray, axis: GridAxis, places: slice) -> AxisArray:
    if part.sizes.get(axis, 1) == 1:
        return part
    return AxisArray(part.axes, part.values[(slice(None),) * part.axes.index(axis) + (places,)])


def _offsets_of(group: Sequence[AxisArray]) -> Addresses:
    values = IntegerExpr.of(constant(0), *(part for part in group if part.values.dtype != bool)).joint()
    conditions = tuple(part for part in group if part.values.dtype == bool)
    if not conditions:
        return distinct(values.values)
    mask = Mask(conditions).joint()
    inside = joined(lambda _, inside: inside, values, mask)
    return distinct(joined(lambda value, _: value, values, mask).values[inside.values])


def max_repeats(address: IntegerExpr, shape: Sequence[int], along: int | None = None) -> int:
    """Return the largest number of elements of a tensor that share an address in any execution. Raises ``TooLarge``.

    With ``along``, only elements that differ in no other dimension are counted.
    """
    axes = {dimension(number): size for number, size in enumerate(shape) if along in (None, number)}
    varying = [part for part in address.parts if not axes.keys().isdisjoint(part.axes)]
    unused = prod(size for axis, size in axes.items() if axis not in address.axes)
    found = sorted(_step_span_and_repeats(parts, axes) for parts in groups_of(varying, axes.keys()))
    total_span = 0
    for step, span, _ in found:
        if total_span >= step:
            # The step of one dimension is within the range of another: rows may overlap.
            return unused * _step_span_and_repeats(varying, axes)[2]
        total_span += span
    return unused * prod(repeats for *_, repeats in found)


def _step_span_and_repeats(parts: Sequence[AxisArray], axes: dict[GridAxis, int]) -> tuple[int, int, int]:
    """Return the smallest step between values of a sum in any execution, their span, and the maximum of equal ones."""
    joint = IntegerExpr(tuple(parts)).joint()
    inside = prod(size for axis, size in joint.sizes.items() if axis in axes)
    # A dimension that the tensor repeats has size 1 here.
    repeated = prod(axes[axis] for axis in joint.axes if axis in axes) // max(inside, 1)
    order = sorted(range(len(joint.axes)), key=lambda place: joint.axes[place] in axes)
    values = np.sort(joint.values.transpose(order).reshape(-1, inside), axis=1)
    differences = np.diff(values, axis=1)
    span = int((values[:, -1] - values[:, 0]).max(initial=0))
    ends = np.pad(differences != 0, ((0, 0), (1, 1)), constant_values=True)
    longest_run = int(np.diff(np.flatnonzero(ends)).max(initial=1))  # of equal neighbours in any row
    return int(differences[differences > 0].min(initial=1 << 62)), span, repeated * longest_run
