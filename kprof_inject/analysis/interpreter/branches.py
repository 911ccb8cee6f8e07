"""Determine which blocks of a region are reached, and with which arguments: functions with early returns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import reduce

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    OPEN,
    IntegerExpr,
    Mask,
    TooLarge,
    Value,
    is_settled,
    joined,
    where,
)
from kprof_inject.ttgir.nodes import Block, Module, Region
from kprof_inject.ttgir.ssa_values import block_arguments, operand_names, successors_of

Condition = Mask | None
"""None is unknown."""


class Arrivals:
    """The conditions and arguments with which the blocks of a region are reached.

    They are known once all predecessors of a block were interpreted. Nothing is known if a branch goes backwards.
    """

    def __init__(self, module: Module, region: Region, when: Condition) -> None:
        self._module = module
        self._region = region
        places = {block.label: place for place, block in enumerate(region.blocks)}
        self._arrivals: dict[str, list[tuple[Condition, Sequence[Value]]]] = defaultdict(list)
        self._arrivals[region.blocks[0].label].append((when, ()))
        self._goes_back = any(
            places.get(label, 0) <= place for place, block in enumerate(region.blocks) for label, _ in _ways_from(block)
        )

    def when(self, block: Block) -> Condition:
        """Return the condition under which a block runs."""
        conditions = [condition for condition, _ in self._arrivals[block.label]]
        if self._goes_back or not conditions:
            return None
        return either(conditions)

    def arguments(self, block: Block) -> dict[str, Value]:
        """Return a block's arguments."""
        names = block_arguments(self._module, self._region, block)
        found: dict[str, Value] = dict.fromkeys(names)
        arrivals = [] if self._goes_back else self._arrivals[block.label]
        for place, name in enumerate(names):
            passed = [(condition, values[place]) for condition, values in arrivals if place < len(values)]
            if passed and len(passed) == len(arrivals):
                value = passed[0][1]
                for condition, other in passed[1:]:
                    value = chosen(condition, other, value)
                found[name] = value
        return found

    def leave(self, block: Block, when: Condition, values: Mapping[str, Value]) -> None:
        """Record the branches at the end of a block that runs under a condition, with the values bound there."""
        ways = _ways_from(block)
        for (label, passed), condition in zip(ways, _conditions(block, len(ways), values), strict=True):
            arriving = when & condition if when is not None and condition is not None else None
            self._arrivals[label].append((arriving, [values.get(name) for name in passed]))


def _ways_from(block: Block) -> list[tuple[str, list[str]]]:
    last = block.operations[-1:]
    return successors_of(last[0]) if last and last[0].traits.is_branch else []


def _conditions(block: Block, count: int, values: Mapping[str, Value]) -> Sequence[Condition]:
    """Return the condition of each successor."""
    if count < 2:
        return [ALWAYS] * count
    branch = block.operations[-1]
    known = branch.name == "cf.cond_br" and count == 2
    names = operand_names(branch)
    return both_ways(values.get(names[0])) if known and names else [None] * count


def both_ways(condition: Value) -> tuple[Condition, Condition]:
    """Return a condition and its negation, each None if unknown."""
    if isinstance(condition, Mask):
        with suppress(TooLarge):
            return condition, condition.inverted()
    return None, None


def either(conditions: Sequence[Condition]) -> Condition:
    """Return the disjunction of conditions."""
    if len(conditions) == 1:
        return conditions[0]
    known = [one for one in conditions if one is not None and not one.is_lower_bound]
    with suppress(TooLarge):
        if len(known) == len(conditions):
            return Mask((joined(lambda *values: reduce(np.logical_or, values), *(one.joint() for one in known)),))
    return None


def chosen(condition: Condition, one: Value, other: Value) -> Value:
    """Return ``one`` where a condition holds, and ``other`` elsewhere."""
    if (
        condition is None
        or condition.is_lower_bound
        or not isinstance(one, IntegerExpr)
        or not isinstance(other, IntegerExpr)
    ):
        return None
    if not (is_settled(condition) and is_settled(one) and is_settled(other)):
        return OPEN
    with suppress(TooLarge):
        return where(condition, one, other)
    return None
