"""Loops that go on while a condition holds, gone through one iteration after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kprof_inject.analysis.interpreter.abstract_values import Value
from kprof_inject.analysis.interpreter.axis_arrays import ALWAYS, AxisArray, GridAxis, IntegerExpr, Mask, joined
from kprof_inject.analysis.interpreter.branches import chosen
from kprof_inject.analysis.interpreter.recurrences import CountedLoop, stacked


@dataclass(slots=True)
class LoopRounds:
    """How often CTAs go through a block of a loop, and what it is given in each round."""

    loop: CountedLoop
    values: list[Value]


class Steps:
    """Of a loop that goes on while a condition holds, one iteration after the other. ``results`` are what each CTA had
    when its condition did not hold."""

    def __init__(self) -> None:
        self.results: list[Value] = []
        self._given: list[Sequence[Value]] = []
        self._passed: list[Sequence[Value]] = []
        self._going = [ALWAYS]

    def take(self, given: Sequence[Value], condition: Mask, passed: Sequence[Value]) -> bool:
        """What the condition was made of, and what the block before it passed on; returns whether any CTA goes on.
        Raises ``TooLarge``."""
        before = self._going[-1]
        self.results = [chosen(before, *both) for both in zip(passed, self.results or passed, strict=True)]
        self._given.append(given)
        goes_on = (before & condition).joint()
        if goes_on.values.any():
            self._passed.append(passed)
            self._going.append(Mask((goes_on,)))
        return bool(goes_on.values.any())

    def __len__(self) -> int:
        """How many iterations there are."""
        return len(self._passed)

    def checks(self, axis: GridAxis) -> LoopRounds:
        """Those of the condition."""
        return self._rounds(axis, self._given, 1)

    def inside(self, axis: GridAxis) -> LoopRounds:
        """Those of the body."""
        return self._rounds(axis, self._passed, 0)

    def _rounds(self, axis: GridAxis, values: Sequence[Sequence[Value]], more: int) -> LoopRounds:
        trips = AxisArray((), np.array(more))
        for going in self._going[1:]:
            trips = joined(np.add, trips, going.joint())
        loop = CountedLoop(axis, IntegerExpr.integer(0), IntegerExpr.integer(1), trips, len(values))
        return LoopRounds(loop, [stacked(one, axis) for one in zip(*values, strict=True)])
