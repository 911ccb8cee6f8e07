"""Which bytes of memory are touched, each counted once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.axis_arrays import (
    MOST_ELEMENTS,
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
    """Bytes of memory, as ranges that are in order and apart from each other."""

    starts: Addresses
    ends: Addresses

    @classmethod
    def of(cls, starts: Addresses, ends: Addresses) -> Ranges:
        """Of ranges in any order, which may overlap."""
        return cls(*merged(starts, ends))

    @property
    def size_bytes(self) -> int:
        return int((self.ends - self.starts).sum())

    def from_each(self, offsets: Addresses) -> Ranges:
        """The same ranges from each of some offsets on. Raises ``TooLarge``."""
        if offsets.size * self.starts.size > MOST_ELEMENTS:
            raise TooLarge
        return Ranges.of(np.add.outer(offsets, self.starts).ravel(), np.add.outer(offsets, self.ends).ravel())


NOTHING = Ranges(np.empty(0, np.int64), np.empty(0, np.int64))


def union(ranges: Iterable[Ranges]) -> Ranges:
    found = list(ranges)
    if not found:
        return NOTHING
    return Ranges.of(np.concatenate([one.starts for one in found]), np.concatenate([one.ends for one in found]))


def touched(address: IntegerExpr, mask: Mask, element_bytes: int) -> Ranges:
    """The elements at all addresses where the mask is true. Raises ``TooLarge``."""
    factors = set(map(id, mask.factors))
    offsets = [
        _offsets([part for part in group if id(part) not in factors], [part for part in group if id(part) in factors])
        for group in groups_of([*address.parts, *mask.factors])
    ]
    ranges = Ranges(np.zeros(1, np.int64), np.full(1, element_bytes, np.int64))
    # From the closest on: what lies side by side becomes one range.
    for found in sorted(offsets, key=_least_step):
        ranges = ranges.from_each(found)
    return ranges


def _offsets(parts: Sequence[AxisArray], factors: Sequence[AxisArray]) -> Addresses:
    """All different sums of parts that share axes."""
    values = IntegerExpr(tuple(parts)).joint() if parts else constant(0)
    if factors:
        mask = reduce(lambda one, another: joined(np.logical_and, one, another), factors)
        both = joined(lambda values, mask: np.broadcast_arrays(values, mask)[0], values, mask)
        inside = joined(lambda values, mask: np.broadcast_arrays(values, mask)[1], values, mask)
        return np.unique(both.values[inside.values])
    return np.unique(values.values)


def _least_step(offsets: Addresses) -> int:
    return int(np.diff(offsets).min()) if offsets.size > 1 else 0
