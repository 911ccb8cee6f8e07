"""Pair signals of barriers with waits, by the phases that a barrier goes through.

A ring keeps a warp's latest records. The number of executions of an operation is known, so the latest records belong to
the latest executions: phases are counted back from the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import (
    MAX_ROWS,
    Numbers,
    begins_group,
    ends_group,
    first_of_group,
    group_numbers,
    last_of_group,
    numbers_in_group,
    running_sums,
)
from kprof_inject.analysis.async_work.issues_and_waits import Await, Issue
from kprof_inject.analysis.interpreter.axis_arrays import CTA, IntegerExpr, Mask, TooLarge, Value
from kprof_inject.analysis.interpreter.executed_operation import Executed

UNNAMED = "its barrier cannot be evaluated"

_SLOTS = 1 << 20  # more than an allocation has barriers


class NotCounted(Exception):
    """It is unknown which barrier an operation's executions signal, or wait for."""


def pairs_by_barrier(
    rows: NDArray[np.void], issues: Mapping[int, Issue], awaits: Mapping[int, Await]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return the records that issue work, with ``bytes``, and for each the record of its wait. Raises ``NotCounted``.

    ``rows`` are records of operations on the barriers of one allocation; ``issues`` and ``awaits`` are by scope. The
    k-th wait on a barrier waits for the signals that complete its k-th phase.
    """
    signals = _completing([_Signals.of(rows[rows["scope"] == scope], one) for scope, one in issues.items()])
    waits = np.concatenate([_waited(rows[rows["scope"] == scope], one) for scope, one in awaits.items()])
    _, barrier = np.unique(np.concatenate([_barrier(signals), _barrier(waits)]), return_inverse=True)
    key = (barrier + 1) * MAX_ROWS + np.concatenate([signals["phase"], waits["phase"]])
    signal_key, wait_key = np.split(key, [len(signals)])
    # Of several waiting warps, the first to continue shows when the work was done.
    order = np.lexsort((waits["end_cycles"], wait_key))
    waits, wait_key = waits[order], wait_key[order]
    place = np.searchsorted(wait_key, signal_key)
    is_paired = np.append(wait_key, -1)[place] == signal_key
    return signals[is_paired], waits[place[is_paired]]


def _barrier(rows: NDArray[np.void]) -> Numbers:
    return _key(rows["cta"].astype(np.int64), rows["slot"])


def _key(cta: Numbers, slot: Numbers) -> Numbers:
    found: Numbers = cta * _SLOTS + slot
    return found


class _Signals(Struct, frozen=True):
    """The executions of an operation that signals barriers, each by the first warp that executes it."""

    rows: NDArray[np.void]
    uses: _Uses
    issue: Issue
    lost_before: Mapping[int, int]
    """For each CTA that lost older records, when its oldest record began, in cycles."""

    @classmethod
    def of(cls, rows: NDArray[np.void], issue: Issue) -> _Signals:
        uses = _Uses.of(issue.counted.executed, issue.slot.index if issue.slot else None, issue.predicate)
        found, is_whole = uses.of_rows(rows)
        found["bytes"] = issue.group_bytes
        found["arrivals"] = issue.arrivals
        lost_before: dict[int, int] = {}
        for cta in np.unique(found["cta"][~is_whole]).tolist():
            starts_cycles: Numbers = found[found["cta"] == cta]["start_cycles"]
            lost_before[cta] = int(starts_cycles.min())
        found = found[found["number"] > 0]
        found = found[np.lexsort((found["start_cycles"], found["execution"], found["cta"]))]
        firsts = found[begins_group(group_numbers(found["cta"], found["execution"]))]
        return cls(firsts, uses, issue, lost_before)


def _completing(operations: Sequence[_Signals]) -> NDArray[np.void]:
    """Return the rows that complete a phase, with its number in ``phase``, from 1."""
    signals = np.concatenate([one.rows for one in operations])
    signals = signals[np.lexsort((signals["start_cycles"], signals["slot"], signals["cta"]))]
    group = group_numbers(signals["cta"], signals["slot"])
    cta, slot = signals["cta"].astype(np.int64), signals["slot"]
    in_all = sum(
        (one.issue.arrivals * one.uses.in_all(cta, slot) for one in operations), np.zeros(len(signals), np.int64)
    )
    so_far = running_sums(signals["arrivals"], group)
    needed = max(one.issue.needed for one in operations)
    signals["phase"] = -((last_of_group(so_far, group) - so_far - in_all) // needed)
    # Before the oldest record of an operation, signals may be missing from the count.
    lost_before: dict[int, int] = {}
    for one in operations:
        for number, cycles in one.lost_before.items():
            lost_before[number] = max(lost_before.get(number, cycles), cycles)
    is_known = np.ones(len(signals), bool)
    for number, cycles in lost_before.items():
        is_known &= (signals["cta"] != number) | (signals["start_cycles"] >= cycles)
    return signals[is_known & ends_group(group_numbers(signals["cta"], signals["slot"], signals["phase"]))]


def _waited(rows: NDArray[np.void], wait: Await) -> NDArray[np.void]:
    """Return the rows of a wait, with the number of its phase in ``phase``; 0 is the phase before the first."""
    uses = _Uses.of(wait.counted.executed, wait.slot.index if wait.slot else None, wait.predicate, wait.phase)
    found, _ = uses.of_rows(rows)
    return found[found["number"] > 0]


_EXTRA = [("slot", "i8"), ("number", "i8"), ("execution", "i8"), ("phase", "i8"), ("bytes", "i8"), ("arrivals", "i8")]


class _Uses(Struct, frozen=True):
    """The executions of an operation in each CTA, in their order.

    ``slot`` is the barrier that each is for, ``number`` its number among those for the same barrier, from 1; 0 where a
    predicate disables it. ``phase`` is that number less the first one's parity. ``begins`` and ``lengths`` are by CTA,
    or have one element if all CTAs are alike.
    """

    slot: Numbers
    number: Numbers
    phase: Numbers
    begins: Numbers
    lengths: Numbers

    @classmethod
    def of(cls, executed: Executed, index: IntegerExpr | None, predicate: Value, parity: Value = None) -> _Uses:
        """Evaluate the executions of an operation. Raises ``NotCounted``."""
        slots = _Sequence.of(executed, index)
        others = [_Sequence.of(executed, one) for one in (predicate, parity) if one is not None]
        begins, lengths = max((slots, *others), key=lambda one: one.begins.size).layout
        cta = np.repeat(np.arange(begins.size), lengths)
        execution = np.arange(cta.size) - begins[cta]
        slot = slots.at(cta, execution)
        asks = _Sequence.of(executed, predicate).at(cta, execution) != 0 if predicate is not None else slot >= 0
        asking = np.flatnonzero(asks)
        order = asking[np.lexsort((execution[asking], _key(cta, slot)[asking]))]
        group = group_numbers(_key(cta, slot)[order])
        number = np.zeros(cta.size, np.int64)
        number[order] = numbers_in_group(group)
        phase = number.copy()
        if parity is not None:
            phase[order] -= first_of_group(_Sequence.of(executed, parity).at(cta, execution)[order], group)
        return cls(slot, number, phase, begins, lengths)

    def of_rows(self, rows: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.bool_]]:
        """Return the operation's records, in each warp's order, with ``_EXTRA``; and which warps lost none.

        Raises ``NotCounted`` if there are more records than executions.
        """
        found = np.empty(len(rows), np.dtype([*rows.dtype.descr, *_EXTRA]))
        for name in rows.dtype.names or ():
            found[name] = rows[name]
        of_warp = group_numbers(rows["cta"], rows["warp"])
        number = numbers_in_group(of_warp)
        segment: NDArray[np.integer] = rows["cta"] if self.begins.size > 1 else np.zeros(len(rows), np.int64)
        lost = self.lengths[segment] - last_of_group(number, of_warp)
        if lost.min(initial=0) < 0:
            raise NotCounted("it ran more often than its loops allow")
        found["execution"] = number - 1 + lost
        place = self.begins[segment] + found["execution"]
        for name in ("slot", "number", "phase"):
            found[name] = getattr(self, name)[place]
        return found, lost == 0

    def in_all(self, cta: Numbers, slot: Numbers) -> Numbers:
        """Return how often each CTA executes the operation for a slot."""
        segment = cta if self.begins.size > 1 else np.zeros(len(cta), np.int64)
        own = np.repeat(np.arange(self.begins.size), self.lengths)
        keys, counts = np.unique(_key(own, self.slot)[self.number > 0], return_counts=True)
        wanted = _key(segment, slot)
        place = np.searchsorted(keys, wanted)
        is_there = np.append(keys, -1)[place] == wanted
        found: Numbers = np.where(is_there, np.append(counts, 0)[place], 0)
        return found


class _Sequence(Struct, frozen=True):
    """A value in each execution, CTA by CTA: of CTA c from ``begins[c]``; one begin if all CTAs are alike."""

    values: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, executed: Executed, value: Value) -> _Sequence:
        """Return a value in each execution of an operation. Raises ``NotCounted``."""
        when = executed.when
        if when is None or when.is_lower_bound or not isinstance(value, IntegerExpr | Mask):
            raise NotCounted(UNNAMED)
        try:
            joint, mask = value.joint(), when.joint()
        except TooLarge:
            raise NotCounted("it ran too often to be tracked") from None
        by_cta = CTA in joint.axes or CTA in mask.axes
        axes = tuple(axis for axis in sorted(executed.sizes) if by_cta or axis != CTA)
        shape = [executed.sizes[axis] for axis in axes]
        values, is_executed = (np.broadcast_to(part.over(axes), shape) for part in (joint, mask))
        if not by_cta:
            return cls(values[is_executed].astype(np.int64), np.zeros(1, np.int64))
        counts = is_executed.reshape(shape[0], -1).sum(axis=1)
        return cls(values[is_executed].astype(np.int64), np.cumsum(counts) - counts)

    @property
    def layout(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each CTA, the index of its first execution and the number of its executions."""
        return self.begins, np.diff(np.append(self.begins, self.values.size))

    def at(self, cta: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values in some executions."""
        found: NDArray[np.int64] = self.values[self.begins[cta if self.begins.size > 1 else 0] + number]
        return found
