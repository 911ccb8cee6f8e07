"""Delays of a causal experiment: how often each is executed, and how long those are that are tried.

CTAs follow each other in a slot of an SM, and the launch ends with the chain of CTAs that ends last. Delays count as
often as this chain executes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import ceil

import numpy as np
from msgspec import Struct
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


class Executions(Struct, frozen=True):
    """Executions of each scope of a table by the mean CTA and by the last chain of CTAs; None if unknown."""

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
    chain = last_chain(timeline.all_ctas)
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
    """Return how often the chain's CTAs executed each scope, or None if one of their records is missing.

    If only a sample of the CTAs recorded, those of the chain count like the mean of these.
    """
    length = len(chain)
    if timeline.unrecorded.size:
        chain = timeline.ctas["cta"]
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
    return counts * (length / max(len(chain), 1))


def _evaluated(ran: ExecutedKernel, scope_map: ScopeMap, index: int, ctas: int) -> float | None:
    rows = scope_map.rows_in(index, ran.lines)
    if not rows or not ctas:
        return None
    begin = scope_map.outermost_from(ran.operations[rows.start].operation, index)
    for one in ran.operations:
        if one.operation.block is begin.block and one.times is not None and not one.executed.is_predicated:
            return one.times / ctas
    return None


SHORTEST_CYCLES = 48
"""A delay spins in steps of some 20 cycles; a shorter one is dominated by noise."""

_LONGEST_CYCLES = 1 << 22
_FACTOR = 3
_MIN_STEPS = 4
_MIN_SHARE = 0.02  # of the time between two executions
# An iteration can be hidden by the work of a stage or two; code that is executed once, by another CTA at most.
_MAX_SHARE_OFTEN, _MAX_SHARE_SELDOM = 2.0, 0.6
_OFTEN = 4.0
# The delays if it is unknown how often the place is executed.
_BLIND = (64, 192, 576, 1728)


def delays_for(kernel_cycles: float | None, by_cta: float | None, by_chain: float | None) -> tuple[int, ...]:
    """Return delays in cycles, ascending; the first is 0.

    ``kernel_cycles`` is how long the kernel takes; ``by_cta`` and ``by_chain`` are how often a CTA, and the last chain
    of CTAs, execute the place.
    """
    if not kernel_cycles or not by_chain:
        return (0, *_BLIND)
    between = kernel_cycles / by_chain
    longest = between * (_MAX_SHARE_OFTEN if (by_cta or 0) >= _OFTEN else _MAX_SHARE_SELDOM)
    steps = _steps(max(_MIN_SHARE * between, SHORTEST_CYCLES), min(longest, _LONGEST_CYCLES))
    return (0, *dict.fromkeys(steps))


def _steps(shortest: float, longest: float) -> Iterator[int]:
    """Yield delays, at least ``_MIN_STEPS``: short ones show no slope, and a few cannot tell a bend from a line."""
    cycles, count = shortest, 0
    while count < _MIN_STEPS or cycles <= longest:
        yield min(round(cycles), _LONGEST_CYCLES)
        cycles *= _FACTOR
        count += 1


def whole_share(delay_cycles: int, kernel_cycles: float | None, by_chain: float | None) -> float:
    """Return the relative slowdown of the kernel if no part of a delay is hidden; 0 if unknown."""
    return delay_cycles * by_chain / kernel_cycles if kernel_cycles and by_chain else 0.0
