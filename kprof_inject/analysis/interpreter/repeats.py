"""Count the elements of one execution that share an address: their data moves only once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.axis_arrays import AxisArray, GridAxis, IntegerExpr, dimension


def max_repeats(address: IntegerExpr, shape: Sequence[int], along: int | None = None) -> int:
    """Return the largest number of elements of a tensor that share an address in any execution. Raises ``TooLarge``.

    With ``along``, only elements that differ in no other dimension are counted.
    """
    axes = {dimension(number): size for number, size in enumerate(shape) if along in (None, number)}
    groups = [_Group.of(parts, axes) for parts in _by_dimensions(address.parts, axes)]
    unused = prod(size for axis, size in axes.items() if all(axis not in part.axes for part in address.parts))
    span = 0
    for group in sorted(groups, key=lambda one: one.step):
        if span >= group.step:
            # The step of one dimension is within the range of another: rows may overlap.
            everything = [part for part in address.parts if not axes.keys().isdisjoint(part.axes)]
            return unused * _Group.of(everything, axes).repeats
        span += group.span
    return unused * prod(group.repeats for group in groups)


class _Group:
    """Terms of an address that vary along the same dimensions of the tensor."""

    def __init__(self, repeats: int, step: int, span: int) -> None:
        self.repeats, self.step, self.span = repeats, step, span

    @classmethod
    def of(cls, parts: Sequence[AxisArray], axes: dict[GridAxis, int]) -> _Group:
        """Return the group; its step is the smallest difference of two unequal addresses."""
        joint = IntegerExpr(tuple(parts)).joint()
        inside = prod(size for axis, size in joint.sizes.items() if axis in axes)
        # A dimension that the tensor repeats has size 1 here.
        repeated = prod(axes[axis] for axis in joint.axes if axis in axes) // max(inside, 1)
        order = sorted(range(len(joint.axes)), key=lambda place: joint.axes[place] in axes)
        values = np.sort(joint.values.transpose(order).reshape(-1, inside), axis=1)
        differences = np.diff(values, axis=1)
        positive = differences[differences > 0]
        span = int((values[:, -1] - values[:, 0]).max(initial=0))
        return cls(repeated * _longest_run(differences == 0), int(positive.min(initial=1 << 62)), span)


def _longest_run(equal: NDArray[np.bool_]) -> int:
    """Return the longest run of equal neighbours in any row."""
    ends = np.pad(~equal, ((0, 0), (1, 1)), constant_values=True)
    return int(np.diff(np.flatnonzero(ends)).max(initial=1))


def _by_dimensions(parts: Sequence[AxisArray], axes: dict[GridAxis, int]) -> list[list[AxisArray]]:
    """Group terms that share dimensions of the tensor; terms without any are skipped."""
    groups: list[list[AxisArray]] = []
    for part in parts:
        mine = set(part.axes) & axes.keys()
        if not mine:
            continue
        together = [group for group in groups if any(not mine.isdisjoint(one.axes) for one in group)]
        groups = [group for group in groups if group not in together]
        groups.append([part, *(one for group in together for one in group)])
    return groups
