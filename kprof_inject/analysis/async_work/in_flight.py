"""Asynchronous work that was in flight in a launch, from its issue to its completion.

No record shows when work completes, but a wait that blocks does: the work was in flight until the wait ended. If the
wait did not block, the work had completed at an unknown time before it.

Signals of barriers are paired with waits by the phases that a barrier goes through. A ring keeps a warp's latest
records. The number of executions of an operation is known, so the latest records belong to the latest executions:
phases are counted back from the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.flights import (
    IN_FLIGHT_COLUMNS,
    MAX_ROWS,
    InFlight,
    Numbers,
    begins_group,
    by_scope,
    ends_group,
    first_of_group,
    greatest_so_far,
    group_numbers,
    last_of_group,
    numbers_in_group,
    running_sums,
    starts_async,
)
from kprof_inject.analysis.async_work.issues_and_waits import Await, Issue, async_work
from kprof_inject.analysis.interpreter.accesses import Executed
from kprof_inject.analysis.interpreter.axis_arrays import CTA, IntegerExpr, Mask, TooLarge, Value
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated_kernel
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline

# A wait that finds its work done takes no longer, without the cost of its records: with four and five stages, three of
# four waits of a matmul on an H200 took up to 130 cycles, including the barrier after them.
_READY_CYCLES = 130


def recorded_in_flight(timeline: Timeline) -> InFlight | None:
    """Return the asynchronous work that was recorded; None if there was none or the kernel cannot be evaluated."""
    if not any(map(starts_async, timeline.table.scopes)):
        return None
    try:
        with evaluating():
            return in_flight(timeline, evaluated_kernel(timeline.launch))
    except KprofError:
        return None


def in_flight(timeline: Timeline, ran: ExecutedKernel) -> InFlight:
    """Return the work of the asynchronous operations that were recorded (``--at async``, ``--at parts``)."""
    work = async_work(ran.operations)
    operations = [*(one.counted.operation for one in work.issues), *(one.counted.operation for one in work.awaits)]
    scope_of = ran.scope_map.sole_scopes(operations)
    issues = {scope_of[one.counted.operation]: one for one in work.issues if one.counted.operation in scope_of}
    awaits = {scope_of[one.counted.operation]: one for one in work.awaits if one.counted.operation in scope_of}
    unpaired = dict.fromkeys(work.unnamed, UNNAMED)
    awaited = {(one.work, one.slot.allocation if one.slot else None) for one in work.awaits}
    for issue in work.issues:
        if (issue.work, issue.slot.allocation if issue.slot else None) not in awaited:
            unpaired[issue.counted.operation.name] = "no wait for it was found"
    if not issues or not awaits:
        return InFlight(np.empty(0, IN_FLIGHT_COLUMNS), {}, unpaired)
    rows = _recorded(timeline, [*issues, *awaits])
    found = []
    for kind in dict.fromkeys(one.work for one in issues.values()):
        mine = {scope: one for scope, one in issues.items() if one.work == kind and one.slot is None}
        its = {scope: one for scope, one in awaits.items() if one.work == kind and one.slot is None}
        if mine and its:
            found.append(_in_order(rows, mine, its, len(timeline.warps)))
    barriers = dict.fromkeys(one.slot.allocation for one in issues.values() if one.slot)
    for allocation in barriers:
        signals = {scope: one for scope, one in issues.items() if one.slot and one.slot.allocation is allocation}
        waits = {scope: one for scope, one in awaits.items() if one.slot and one.slot.allocation is allocation}
        if waits:
            try:
                begins, ends = pairs_by_barrier(rows, signals, waits)
            except NotCounted as reason:
                unpaired.update(dict.fromkeys((one.counted.operation.name for one in signals.values()), str(reason)))
                continue
            groups = _groups(begins, ends, np.zeros(len(begins), np.int64), begins["bytes"])
            groups["depth"] = _overlapping(groups)
            found.append(groups)
    groups = np.concatenate(found) if found else np.empty(0, IN_FLIGHT_COLUMNS)
    works = {scope: one.work for scope, one in issues.items()}
    return InFlight(groups[np.lexsort((groups["start_cycles"], groups["warp"], groups["cta"]))], works, unpaired)


def _recorded(timeline: Timeline, scopes: Sequence[int]) -> NDArray[np.void]:
    blocks = [block[np.isin(block["scope"], scopes)] for block in timeline.blocks()]
    rows: NDArray[np.void] = np.concatenate([np.empty(0, timeline.columns), *blocks])
    return rows[np.lexsort((rows["start_record"], rows["warp"], rows["cta"]))]


def _in_order(
    rows: NDArray[np.void], issues: Mapping[int, Issue], awaits: Mapping[int, Await], warps: int
) -> NDArray[np.void]:
    """Pair work that completes in order with its waits.

    Records older than a ring's oldest one are not needed: each wait counts back from the latest group.
    """
    rows = rows[np.isin(rows["scope"], [*issues, *awaits])]
    group = group_numbers(rows["cta"], rows["warp"])
    is_issue = np.isin(rows["scope"], list(issues))
    issued = running_sums(is_issue.astype(np.int64), group)
    pending = by_scope(rows["scope"], {scope: one.pending for scope, one in awaits.items()})
    completed = greatest_so_far(np.where(is_issue, 0, issued - pending), group)
    asked, waited = np.flatnonzero(is_issue), np.flatnonzero(~is_issue)
    place = np.searchsorted(group[waited] * MAX_ROWS + completed[waited], group[asked] * MAX_ROWS + issued[asked])
    is_paired = place < waited.size
    asked, place = asked[is_paired], place[is_paired]
    wait = waited[place]
    same = group[wait] == group[asked]
    asked, wait = asked[same], wait[same]
    depth = issued[asked] - completed[asked]
    group_bytes = by_scope(rows["scope"][asked], {scope: one.group_bytes // warps for scope, one in issues.items()})
    return _groups(rows[asked], rows[wait], depth, group_bytes)


def _groups(
    asked: NDArray[np.void], wait: NDArray[np.void], depth: NDArray[np.int64], group_bytes: NDArray[np.int64]
) -> NDArray[np.void]:
    found = np.empty(len(asked), IN_FLIGHT_COLUMNS)
    for name in ("cta", "sm", "warp", "scope", "start_cycles", "start_ns"):
        found[name] = asked[name]
    blocks = wait["duration_cycles"] > _READY_CYCLES
    found["wait_scope"] = wait["scope"]
    found["record"] = asked["start_record"]
    end_cycles: NDArray[np.int64] = wait["end_cycles"]
    end_ns: NDArray[np.int64] = wait["end_ns"]
    found["end_cycles"] = np.where(blocks, end_cycles, wait["start_cycles"])
    found["end_ns"] = np.where(blocks, end_ns, wait["start_ns"])
    found["known_ns"] = np.where(blocks, end_ns, asked["end_ns"])
    found["blocked_ns"] = np.where(blocks, wait["duration_ns"], 0)
    found["depth"], found["bytes"] = depth, group_bytes
    return found


def _overlapping(groups: NDArray[np.void]) -> NDArray[np.int64]:
    """Return how many groups of the CTA were in flight once each had begun, including itself."""
    if not groups.size:
        return np.empty(0, np.int64)
    least = groups["start_cycles"].min()
    far = groups["end_cycles"].max() - least + 1
    base = group_numbers(groups["cta"]) * far - least
    begins = base + groups["start_cycles"]
    ends = np.sort(base + groups["end_cycles"])
    found: NDArray[np.int64] = np.searchsorted(np.sort(begins), begins, "right")
    found -= np.searchsorted(ends, begins, "right")
    return found


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
    signals = _completing(rows, issues)
    waits = np.concatenate([_waited(rows[rows["scope"] == scope], one) for scope, one in awaits.items()])
    keys = [_key(rows["cta"].astype(np.int64), rows["slot"]) for rows in (signals, waits)]
    _, barrier = np.unique(np.concatenate(keys), return_inverse=True)
    key = (barrier + 1) * MAX_ROWS + np.concatenate([signals["phase"], waits["phase"]])
    signal_key, wait_key = np.split(key, [len(signals)])
    # Of several waiting warps, the first to continue shows when the work was done.
    order = np.lexsort((waits["end_cycles"], wait_key))
    waits, wait_key = waits[order], wait_key[order]
    place = np.searchsorted(wait_key, signal_key)
    is_paired = np.append(wait_key, -1)[place] == signal_key
    return signals[is_paired], waits[place[is_paired]]


def _key(cta: Numbers, slot: Numbers) -> Numbers:
    found: Numbers = cta * _SLOTS + slot
    return found


def _completing(rows: NDArray[np.void], issues: Mapping[int, Issue]) -> NDArray[np.void]:
    """Return the rows that complete a phase, with its number in ``phase``, from 1.

    Of each execution, there is the row of the first warp.
    """
    uses: list[tuple[Issue, _Uses]] = []
    parts = []
    # For each CTA that lost older records: before an operation's oldest one, signals may be missing from the count.
    lost_before: dict[int, int] = {}
    for scope, issue in issues.items():
        its = _Uses.of(issue.counted.executed, issue.slot.index if issue.slot else None, issue.predicate)
        found, is_whole = its.of_rows(rows[rows["scope"] == scope])
        found["bytes"] = issue.group_bytes
        found["arrivals"] = issue.arrivals
        for number in np.unique(found["cta"][~is_whole]).tolist():
            cycles = int(found[found["cta"] == number]["start_cycles"].min())
            lost_before[number] = max(lost_before.get(number, cycles), cycles)
        found = found[found["number"] > 0]
        found = found[np.lexsort((found["start_cycles"], found["execution"], found["cta"]))]
        parts.append(found[begins_group(group_numbers(found["cta"], found["execution"]))])
        uses.append((issue, its))
    signals = np.concatenate(parts)
    signals = signals[np.lexsort((signals["start_cycles"], signals["slot"], signals["cta"]))]
    group = group_numbers(signals["cta"], signals["slot"])
    cta, slot = signals["cta"].astype(np.int64), signals["slot"]
    in_all = sum((issue.arrivals * its.in_all(cta, slot) for issue, its in uses), np.zeros(len(signals), np.int64))
    so_far = running_sums(signals["arrivals"], group)
    needed = max(issue.needed for issue in issues.values())
    signals["phase"] = -((last_of_group(so_far, group) - so_far - in_all) // needed)
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
        longest = max((slots, *others), key=lambda one: one.begins.size)
        begins, lengths = longest.begins, np.diff(np.append(longest.begins, longest.values.size))
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
        """Return the number of times that each CTA executes the operation for a slot."""
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

    def at(self, cta: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self.values[self.begins[cta if self.begins.size > 1 else 0] + number]
        return found
