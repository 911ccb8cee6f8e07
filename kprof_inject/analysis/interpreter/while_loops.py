"""Loops with a condition (``scf.while``), interpreted iteration by iteration."""

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
    """How often CTAs run a block of a loop, and its arguments in each round."""

    loop: CountedLoop
    values: list[Value]


class Steps:
    """The iterations of a ``scf.while``. ``results`` are the values with which each CTA leaves it."""

    def __init__(self) -> None:
        self.results: list[Value] = []
        self._given: list[Sequence[Value]] = []
        self._passed: list[Sequence[Value]] = []
        self._going = [ALWAYS]

    def take(self, given: Sequence[Value], condition: Mask, passed: Sequence[Value]) -> bool:
        """Add an evaluation of the condition, and return whether any CTA goes on. Raises ``TooLarge``.

        ``given`` are the arguments of the condition's block, ``passed`` the values that it passes on.
        """
        before = self._going[-1]
        self.results = [chosen(before, *both) for both in zip(passed, self.results or passed, strict=True)]
        self._given.append(given)
        goes_on = (before & condition).joint()
        if goes_on.values.any():
            self._passed.append(passed)
            self._going.append(Mask((goes_on,)))
        return bool(goes_on.values.any())

    def __len__(self) -> int:
        """Return the number of iterations."""
        return len(self._passed)

    def checks(self, axis: GridAxis) -> LoopRounds:
        """Return the rounds of the condition's block."""
        return self._rounds(axis, self._given, 1)

    def inside(self, axis: GridAxis) -> LoopRounds:
        """Return the rounds of the body."""
        return self._rounds(axis, self._passed, 0)

    def _rounds(self, axis: GridAxis, values: Sequence[Sequence[Value]], more: int) -> LoopRounds:
        trips = AxisArray((), np.array(more))
        for going in self._going[1:]:
            trips = joined(np.add, trips, going.joint())
        loop = CountedLoop(axis, IntegerExpr.integer(0), IntegerExpr.integer(1), trips, len(values))
        return LoopRounds(loop, [stacked(one, axis) for one in zip(*values, strict=True)])
