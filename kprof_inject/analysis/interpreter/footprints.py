"""Footprints: the bytes of memory that an access touches, each counted once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.axis_arrays import (
    MAX_ELEMENTS,
    AxisArray,
    IntegerExpr,
    Mask,
    TooLarge,
    constant,
    groups_of,
    joined,
)
from kprof_inject.timeline.ranges import merged

Addresses = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Bytes of memory as ascending ranges that do not touch each other."""

    starts: Addresses
    ends: Addresses

    @classmethod
    def of(cls, starts: Addresses, ends: Addresses) -> Ranges:
        """Merge ranges, which may be in any order and overlap."""
        return cls(*merged(starts, ends))

    @property
    def size_bytes(self) -> int:
        """The total size."""
        return int((self.ends - self.starts).sum())

    def from_each(self, offsets: Addresses) -> Ranges:
        """Return the union of these ranges shifted by each offset. Raises ``TooLarge``."""
        if offsets.size * self.starts.size > MAX_ELEMENTS:
            raise TooLarge
        return Ranges.of(np.add.outer(offsets, self.starts).ravel(), np.add.outer(offsets, self.ends).ravel())


NOTHING = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))


def union(ranges: Iterable[Ranges]) -> Ranges:
    """Return all bytes that are in any of the ranges."""
    found = list(ranges)
    if not found:
        return NOTHING
    return Ranges.of(np.concatenate([one.starts for one in found]), np.concatenate([one.ends for one in found]))


def touched(address: IntegerExpr, mask: Mask, element_bytes: int) -> Ranges:
    """Return the bytes of the elements at all addresses where the mask is true. Raises ``TooLarge``."""
    factors = set(map(id, mask.factors))
    offsets = [
        _offsets([part for part in group if id(part) not in factors], [part for part in group if id(part) in factors])
        for group in groups_of([*address.parts, *mask.factors])
    ]
    ranges = Ranges(np.zeros(1, np.int64), np.full(1, element_bytes, np.int64))
    # The smallest step first: adjacent elements merge into one range.
    for found in sorted(offsets, key=_min_step):
        ranges = ranges.from_each(found)
    return ranges


def _offsets(parts: Sequence[AxisArray], factors: Sequence[AxisArray]) -> Addresses:
    """Return the distinct sums of parts that share axes, where the factors hold."""
    values = IntegerExpr(tuple(parts)).joint() if parts else constant(0)
    if factors:
        mask = reduce(lambda one, another: joined(np.logical_and, one, another), factors)
        both = joined(lambda values, mask: np.broadcast_arrays(values, mask)[0], values, mask)
        inside = joined(lambda values, mask: np.broadcast_arrays(values, mask)[1], values, mask)
        return np.unique(both.values[inside.values])
    return np.unique(values.values)


def _min_step(offsets: Addresses) -> int:
    return int(np.diff(offsets).min()) if offsets.size > 1 else 0
