"""Count how often a delay is executed on the path from a launch's begin to its end.

CTAs follow each other in a slot of an SM, and the launch ends with the chain of CTAs that ends last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import end_of_work_ns


def last_chain(ctas: NDArray[np.void]) -> NDArray[np.int32]:
    """Return the CTAs that ran one after another until the end of the launch, the last first.

    ``ctas`` are ``CTA_COLUMNS``.
    """
    if not ctas.size:
        return np.empty(0, np.int32)
    ends = end_of_work_ns(ctas)
    row = int(ends.argmax())
    found = [row]
    while True:
        # Its slot was free when it began: the last CTA that left the SM before that made room for it.
        before = np.flatnonzero((ctas["sm"] == ctas["sm"][row]) & (ends <= ctas["init_ns"][row]))
        before = before[ends[before] < ends[row]]
        if not before.size:
            return np.array(ctas["cta"][found], np.int32)
        row = int(before[ends[before].argmax()])
        found.append(row)


def chain_length(ctas: int, slots: int) -> int:
    """Return the length of the last chain if all CTAs take equally long."""
    return max(ceil(ctas / slots), 1) if slots else 1


@dataclass(frozen=True, slots=True)
class Executions:
    """How often the mean CTA, and the last chain of CTAs, execute each scope of a table; None if unknown."""

    by_cta: Sequence[float | None]
    by_chain: Sequence[float | None]


def executions(
    table: ScopeTable, ran: ExecutedKernel | None, ctas: int, slots: int, timeline: Timeline | None
) -> Executions:
    """Count executions by the records of ``timeline``, or by the kernel's arguments where records are missing.

    ``timeline`` is a launch of the same kernel with the same grid. ``slots`` is the number of CTAs that the device
    holds at once.
    """
    evaluated: list[float | None] = [None] * len(table.scopes)
    if ran is not None:
        scope_map = ScopeMap(ran.module, table)
        evaluated = [_evaluated(ran, scope_map, index, ctas) for index in range(len(table.scopes))]
    if timeline is None or not timeline.ctas.size:
        length = chain_length(ctas, slots)
        return Executions(evaluated, [None if one is None else one * length for one in evaluated])
    chain = last_chain(timeline.ctas)
    recorded = _recorded(timeline, chain)
    by_chain: list[float | None] = []
    by_cta: list[float | None] = []
    for scope, one in zip(table.scopes, evaluated, strict=True):
        index = timeline.table.at_site_of(scope)
        counted = None if recorded is None or index is None else float(recorded[index])
        by_chain.append(counted if counted else None if one is None else one * len(chain))
        by_cta.append(one if one is not None else None if counted is None else counted / len(chain))
    return Executions(by_cta, by_chain)


def _recorded(timeline: Timeline, chain: NDArray[np.int32]) -> NDArray[np.float64] | None:
    """Return how often the chain's CTAs executed each scope, or None if one of their records is missing."""
    if np.isin(timeline.incomplete["cta"], chain).any():
        return None
    scopes = len(timeline.table.scopes)
    counts = np.zeros(scopes)
    for block in timeline.blocks():
        rows = block[np.isin(block["cta"], chain)]
        # All warps that execute it do so together.
        keys = np.unique(np.stack([rows["scope"].astype(np.int64), rows["warp"]]), axis=1)
        warps = np.maximum(np.bincount(keys[0], minlength=scopes), 1) if keys.size else np.ones(scopes)
        counts += np.bincount(rows["scope"], minlength=scopes) / warps
    return counts


def _evaluated(ran: ExecutedKernel, scope_map: ScopeMap, index: int, ctas: int) -> float | None:
    """Return how often a CTA executes the block in which a scope begins, by the kernel's arguments."""
    rows = scope_map.rows_in(index, ran.lines)
    if not rows or not ctas:
        return None
    begin = scope_map.outermost_from(ran.operations[rows.start].operation, index)
    for one in ran.operations:
        if one.operation.block is begin.block and one.times is not None and not one.executed.is_predicated:
            return one.times / ctas
    return None
