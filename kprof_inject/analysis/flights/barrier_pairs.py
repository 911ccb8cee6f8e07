"""What tells a barrier, and what waits for that: paired by the phases that a barrier goes through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.evaluation.grids import CTA, Mask, Sum, TooLarge
from kprof_inject.analysis.evaluation.values import Value
from kprof_inject.analysis.evaluation.walk import Executed
from kprof_inject.analysis.flights.async_work import Await, Issue
from kprof_inject.analysis.flights.grouped_rows import (
    MOST_ROWS,
    begins_group,
    first_of_group,
    group_numbers,
    numbers_in_group,
)

UNNAMED = "which barrier it tells cannot be evaluated"


class NotCounted(Exception):
    """Nobody knows which barrier an operation's executions are for."""


def pairs_by_barrier(
    rows: NDArray[np.void], issues: Mapping[int, Issue], awaits: Mapping[int, Await]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Of records of an allocation's barriers, by scope: those that ask for work, with ``bytes``, and the wait of each.
    The k-th time that a barrier is told is what the k-th wait for it waits for. Raises ``NotCounted``."""
    told = np.concatenate([_told(rows[rows["scope"] == scope], one) for scope, one in issues.items()])
    told = told[np.lexsort((told["start_cycles"], told["slot"], told["cta"]))]
    told_number = numbers_in_group(group_numbers(told["cta"], told["slot"]))
    waits = np.concatenate([_waited(rows[rows["scope"] == scope], one) for scope, one in awaits.items()])
    waits = waits[np.lexsort((waits["start_cycles"], waits["slot"], waits["warp"], waits["cta"]))]
    of_warp = group_numbers(waits["cta"], waits["warp"], waits["slot"])
    # The first wait for a barrier that nothing has told yet may be for the phase before.
    number = numbers_in_group(of_warp) - first_of_group(waits["phase"], of_warp)
    told_key, wait_key = _barriers(told, waits)
    told_key, wait_key = told_key * MOST_ROWS + told_number, wait_key * MOST_ROWS + number
    # Of several warps that wait, the first to go on knows.
    order = np.lexsort((waits["end_cycles"], wait_key))
    waits, wait_key = waits[order], wait_key[order]
    place = np.searchsorted(wait_key, told_key)
    is_paired = np.append(wait_key, -1)[place] == told_key
    return told[is_paired], waits[place[is_paired]]


# More than an allocation has barriers.
_SLOTS = 1 << 20


def _barriers(told: NDArray[np.void], waits: NDArray[np.void]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The number of each row's barrier, from 1 on."""
    keys = [rows["cta"].astype(np.int64) * _SLOTS + rows["slot"] for rows in (told, waits)]
    _, number = np.unique(np.concatenate(keys), return_inverse=True)
    return number[: len(told)] + 1, number[len(told) :] + 1


_EXTRA = [("slot", "i8"), ("phase", "i8"), ("bytes", "i8")]


def _told(rows: NDArray[np.void], issue: Issue) -> NDArray[np.void]:
    """The executions that ask for work: once for all warps that execute it, by the first."""
    found = _with_slots(rows, issue.counted.executed, issue.slot.index if issue.slot else None, issue.predicate)
    found["bytes"] = issue.group_bytes
    order = np.lexsort((found["start_cycles"], found["phase"], found["cta"]))
    found = found[order]
    return found[begins_group(group_numbers(found["cta"], found["phase"]))]


def _waited(rows: NDArray[np.void], wait: Await) -> NDArray[np.void]:
    found = _with_slots(rows, wait.counted.executed, wait.slot.index if wait.slot else None, wait.predicate)
    sequence = _Sequence.of(wait.counted.executed, wait.phase)
    found["phase"] = sequence.at(found["cta"], found["phase"])
    return found


def _with_slots(rows: NDArray[np.void], executed: Executed, index: Sum | None, predicate: Value) -> NDArray[np.void]:
    """Each execution with its slot; in ``phase``, its number. Raises ``NotCounted``."""
    found = np.empty(len(rows), np.dtype([*rows.dtype.descr, *_EXTRA]))
    for name in rows.dtype.names or ():
        found[name] = rows[name]
    number = numbers_in_group(group_numbers(rows["cta"], rows["warp"])) - 1
    found["phase"] = number
    found["slot"] = _Sequence.of(executed, index).at(rows["cta"], number)
    if predicate is None:
        return found
    is_asked = _Sequence.of(executed, predicate).at(rows["cta"], number) != 0
    return np.compress(is_asked, found)


@dataclass(frozen=True, slots=True)
class _Sequence:
    """A value in each execution, CTA by CTA: of CTA c from ``begins[c]`` on; of all alike if there is one begin."""

    values: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, executed: Executed, value: Value) -> _Sequence:
        """Raises ``NotCounted``."""
        when = executed.when
        if when is None or when.is_least or not isinstance(value, Sum | Mask):
            raise NotCounted(UNNAMED)
        try:
            joint, mask = value.joint(), when.joint()
        except TooLarge:
            raise NotCounted("there are too many of its executions") from None
        by_cta = CTA in joint.axes or CTA in mask.axes
        axes = tuple(axis for axis in sorted(executed.sizes) if by_cta or axis != CTA)
        shape = [executed.sizes[axis] for axis in axes]
        values, is_executed = (np.broadcast_to(part.over(axes), shape) for part in (joint, mask))
        if not by_cta:
            return cls(values[is_executed].astype(np.int64), np.zeros(1, np.int64))
        counts = is_executed.reshape(shape[0], -1).sum(axis=1)
        return cls(values[is_executed].astype(np.int64), np.cumsum(counts) - counts)

    def at(self, cta: NDArray[np.int32], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Raises ``NotCounted`` if there were more executions than the text tells."""
        place = self.begins[cta if self.begins.size > 1 else 0] + number
        if place.size and place.max() >= self.values.size:
            raise NotCounted("it was executed more often than its loops tell")
        found: NDArray[np.int64] = self.values[place]
        return found
