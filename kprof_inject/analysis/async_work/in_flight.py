"""Asynchronous work that was in flight in a launch, from its issue to its completion.

Copies by threads, dots of warp groups and TMA stores complete in order, warp by warp, and a wait gives the number of
latest groups that may still be in flight: PTX ISA, "cp.async.wait_group", "wgmma.wait_group",
"cp.async.bulk.wait_group". TMA copies and dots of the fifth generation signal a barrier in shared memory on which a
warp waits: "mbarrier".

Work was in flight until a wait that blocked ended. If the wait did not block, the work completed at an unknown time
before it. A ring keeps a warp's latest records, which belong to an operation's latest executions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.flights import IN_FLIGHT_COLUMNS, InFlight, by_scope, group_numbers, starts_async
from kprof_inject.analysis.interpreter.accesses import Executed
from kprof_inject.analysis.interpreter.axis_arrays import CTA, IntegerExpr, Mask, SharedMemorySlice, TooLarge, Value
from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel, evaluated_kernel
from kprof_inject.analysis.unjudged import evaluating
from kprof_inject.errors import KprofError
from kprof_inject.timeline.columns import Numbers
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.dialect import BARRIER_WAIT, COMMIT_GROUP, DOT_COMMIT
from kprof_inject.ttgir.loops import is_asynchronous_dot
from kprof_inject.ttgir.nodes import Block, Operation
from kprof_inject.ttgir.ssa_values import names_in, operand_names

# A wait that finds its work done takes no longer, without the cost of its records: with four and five stages, three of
# four waits of a matmul on an H200 took up to 130 cycles, including the barrier after them.
_READY_CYCLES = 130

_UNNAMED = "its barrier cannot be evaluated"

COPIES, DOTS, STORES = "copies", "dots", "stores"


class AsyncOperation(Struct, frozen=True):
    """An operation that issues asynchronous work, that closes a group of it, or that waits for it.

    Issues of a block that signal the same barrier are represented by the first: they complete the same phase.
    """

    counted: CountedOperation
    work: str
    slot: SharedMemorySlice | None = None
    """The barrier that is signalled, or waited for; None for work that completes in order."""
    predicate: Value = None
    group_bytes: int = 0  # the maximum that one execution of an issue moves for a CTA
    pending: int = 0  # the number of groups that may still be in flight after a wait

    @property
    def queue(self) -> str | Operation:
        """Key that pairs issues with waits: the barriers' allocation, or the kind of work that completes in order."""
        return self.slot.allocation if self.slot else self.work


class AsyncWork(Struct, frozen=True):
    """The asynchronous operations of a kernel, in the order of the text."""

    issues: tuple[AsyncOperation, ...]
    waits: tuple[AsyncOperation, ...]
    unnamed: frozenset[str]  # the names of operations that signal an unknown barrier


class NotCounted(Exception):
    """It is unknown which barrier an operation's executions signal, or wait for."""


def recorded_in_flight(timeline: Timeline) -> InFlight | None:
    """Return the asynchronous work that was recorded, if the kernel can be evaluated."""
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
    scope_of = ran.scope_map.sole_scopes(one.counted.operation for one in (*work.issues, *work.waits))
    issues = {scope_of[one.counted.operation]: one for one in work.issues if one.counted.operation in scope_of}
    waits = {scope_of[one.counted.operation]: one for one in work.waits if one.counted.operation in scope_of}
    awaited = {one.queue for one in work.waits}
    unpaired = dict.fromkeys(work.unnamed, _UNNAMED)
    for issue in work.issues:
        if issue.queue not in awaited:
            unpaired[issue.counted.operation.name] = "no wait for it was found"
    if not issues or not waits:
        return InFlight(np.empty(0, IN_FLIGHT_COLUMNS), {}, unpaired)
    blocks = (block[np.isin(block["scope"], [*issues, *waits])] for block in timeline.blocks())
    rows: NDArray[np.void] = np.concatenate([np.empty(0, timeline.columns), *blocks])
    rows = rows[np.lexsort((rows["start_record"], rows["warp"], rows["cta"]))]
    found = [np.empty(0, IN_FLIGHT_COLUMNS)]
    for queue in dict.fromkeys(one.queue for one in issues.values()):
        mine = {scope: one for scope, one in issues.items() if one.queue == queue}
        its = {scope: one for scope, one in waits.items() if one.queue == queue}
        if not its:
            continue
        try:
            of_queue = _in_order if isinstance(queue, str) else _by_barrier
            found.append(of_queue(rows[np.isin(rows["scope"], [*mine, *its])], mine, its, len(timeline.warps)))
        except NotCounted as reason:
            unpaired.update(dict.fromkeys((one.counted.operation.name for one in mine.values()), str(reason)))
    groups = np.concatenate(found)
    works = {scope: one.work for scope, one in issues.items()}
    return InFlight(groups[np.lexsort((groups["start_cycles"], groups["warp"], groups["cta"]))], works, unpaired)


def _in_order(
    rows: NDArray[np.void], issues: Mapping[int, AsyncOperation], waits: Mapping[int, AsyncOperation], warps: int
) -> NDArray[np.void]:
    """Pair work that completes in order with its waits: each counts back from the latest group."""
    warp = group_numbers(rows["cta"], rows["warp"])
    is_issue = np.isin(rows["scope"], list(issues))
    so_far = np.cumsum(is_issue)
    first = np.searchsorted(warp, warp)
    issued = so_far - so_far[first] + is_issue[first]
    pending = by_scope(rows["scope"], {scope: one.pending for scope, one in waits.items()})
    # Each warp's numbers come after those of the warp before it.
    base = warp * (len(rows) + 1)
    completed = np.maximum.accumulate(np.maximum(np.where(is_issue, 0, issued - pending), 0) + base)
    asked, waited = np.flatnonzero(is_issue), np.flatnonzero(~is_issue)
    place = np.searchsorted(completed[waited], (base + issued)[asked])
    wait = np.append(waited, -1)[place]
    is_paired = (place < waited.size) & (warp[wait] == warp[asked])
    asked, wait = asked[is_paired], wait[is_paired]
    group_bytes = {scope: one.group_bytes // warps for scope, one in issues.items()}
    return _groups(rows[asked], rows[wait], (base + issued - completed)[asked], group_bytes)


def _groups(
    asked: NDArray[np.void], wait: NDArray[np.void], depth: Numbers | int, group_bytes: Mapping[int, int]
) -> NDArray[np.void]:
    found = np.empty(len(asked), IN_FLIGHT_COLUMNS)
    for name in ("cta", "sm", "warp", "scope", "start_cycles", "start_ns"):
        found[name] = asked[name]
    blocks = wait["duration_cycles"] > _READY_CYCLES
    found["wait_scope"] = wait["scope"]
    found["record"] = asked["start_record"]
    found["end_cycles"] = np.where(blocks, wait["end_cycles"], wait["start_cycles"])
    found["end_ns"] = np.where(blocks, wait["end_ns"], wait["start_ns"])
    found["known_ns"] = np.where(blocks, wait["end_ns"], asked["end_ns"])
    found["blocked_ns"] = np.where(blocks, wait["duration_ns"], 0)
    found["depth"], found["bytes"] = depth, by_scope(asked["scope"], group_bytes)
    return found


def _by_barrier(
    rows: NDArray[np.void], issues: Mapping[int, AsyncOperation], waits: Mapping[int, AsyncOperation], _: int
) -> NDArray[np.void]:
    """Pair each signal of a barrier with the wait that ends next, unless the barrier is signalled again before."""
    # A barrier is signalled again only when no warp waits for the previous signal.
    signals, signal_slots = _executions(rows, issues, "start_cycles")
    ends, wait_slots = _executions(rows, waits, "end_cycles")
    uses, slot = np.concatenate([signals, ends]), np.concatenate([signal_slots, wait_slots])
    is_signal = np.arange(len(uses)) < len(signals)
    order = np.lexsort((is_signal, np.concatenate([signals["start_cycles"], ends["end_cycles"]]), slot, uses["cta"]))
    barrier = group_numbers(uses["cta"][order], slot[order])
    is_pair = is_signal[order[:-1]] & ~is_signal[order[1:]] & (barrier[1:] == barrier[:-1])
    group_bytes = {scope: one.group_bytes for scope, one in issues.items()}
    groups = _groups(uses[order[:-1][is_pair]], uses[order[1:][is_pair]], 0, group_bytes)
    if not groups.size:
        return groups
    # How many groups of the CTA were in flight once each had begun, including itself.
    least = groups["start_cycles"].min()
    base = group_numbers(groups["cta"]) * (groups["end_cycles"].max() - least + 1) - least
    starts, done = base + groups["start_cycles"], np.sort(base + groups["end_cycles"])
    groups["depth"] = np.searchsorted(np.sort(starts), starts, "right") - np.searchsorted(done, starts, "right")
    return groups


def _executions(
    rows: NDArray[np.void], operations: Mapping[int, AsyncOperation], time: str
) -> tuple[NDArray[np.void], Numbers]:
    """Return the record of each execution's first warp, by ``time``, and the slots of the barriers that they use."""
    found, slots = [], []
    for scope, one in operations.items():
        mine = rows[rows["scope"] == scope]
        warp = group_numbers(mine["cta"], mine["warp"])
        left = np.searchsorted(warp, warp, "right") - np.arange(len(mine))
        slot = _values_of(one.counted.executed, one.slot.index if one.slot else None, mine["cta"], left)
        is_used = slot >= 0
        if one.predicate is not None:
            is_used = _values_of(one.counted.executed, one.predicate, mine["cta"], left) != 0
        order = np.lexsort((mine[time], left, mine["cta"]))
        is_first = np.diff(group_numbers(mine["cta"][order], left[order]), prepend=-1) > 0
        first = order[is_first & is_used[order]]
        found.append(mine[first])
        slots.append(slot[first])
    return np.concatenate(found), np.concatenate(slots)


def _values_of(executed: Executed, value: Value, cta: NDArray[np.int32], left: Numbers) -> Numbers:
    """Return a value in executions of an operation, of which ``left`` is 1 for a CTA's last."""
    when = executed.when
    if when is None or when.is_lower_bound or not isinstance(value, IntegerExpr | Mask):
        raise NotCounted(_UNNAMED)
    try:
        joint, mask = value.joint(), when.joint()
    except TooLarge:
        raise NotCounted("it ran too often to be tracked") from None
    # One row if all CTAs are alike.
    by_cta = CTA in joint.axes or CTA in mask.axes
    axes = tuple(axis for axis in sorted(executed.sizes) if by_cta or axis != CTA)
    shape = [executed.sizes[axis] for axis in axes]
    values, is_executed = (np.broadcast_to(part.over(axes), shape) for part in (joint, mask))
    counts = is_executed.reshape(shape[0] if by_cta else 1, -1).sum(axis=1)
    row = cta if by_cta else np.zeros(len(cta), np.int64)
    if (left > counts[row]).any():
        raise NotCounted("it ran more often than its loops allow")
    found: Numbers = values[is_executed].astype(np.int64)[np.cumsum(counts)[row] - left]
    return found


_NUMBER = re.compile(r"\b(?:num|pendings) = (\d{1,10})\b")
_TMA_COPIES = ("ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather")
_TMA_STORES = ("ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter", "ttng.async_tma_reduce")
_WAITS = {
    "ttg.async_wait": COPIES,
    "ttng.warp_group_dot_wait": DOTS,
    "ttng.async_tma_store_wait": STORES,
    "ttng.async_tma_store_token_wait": STORES,
}
_DOTS = ("ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled")
# A dot that signals a barrier by itself prints it last, with its predicate.
_SIGNALS = re.compile(r"\[%[\w$.-]+\]\s*(?:\{|:)")
_BEFORE_PREDICATE = -2


def async_work(operations: Sequence[CountedOperation]) -> AsyncWork:
    """Return the asynchronous work of all operations of a kernel, which are in the order of the text."""
    issues: list[AsyncOperation] = []
    unnamed: set[str] = set()
    first_of: dict[tuple[Block | None, str], int] = {}
    copied_bytes = 0
    for one in operations:
        operation, operands = one.operation, one.executed.operands
        whole_bytes = one.access.whole_bytes if one.access else 0
        if operation.name == "ttg.async_copy_global_to_local":
            copied_bytes += whole_bytes
        elif operation.name == COMMIT_GROUP:
            issues.append(AsyncOperation(one, COPIES, group_bytes=copied_bytes))
            copied_bytes = 0
        elif is_asynchronous_dot(operation):
            issues.append(AsyncOperation(one, DOTS))
        elif operation.name in _TMA_STORES:
            issues.append(AsyncOperation(one, STORES, group_bytes=whole_bytes))
        elif (place := _barrier_place(operation)) is not None:
            slot = operands[place] if -len(operands) <= place < len(operands) else None
            if not isinstance(slot, SharedMemorySlice):
                unnamed.add(operation.name)
                continue
            first = first_of.setdefault((operation.block, operand_names(operation)[place]), len(issues))
            if first < len(issues):
                issues[first] = replace(issues[first], group_bytes=issues[first].group_bytes + whole_bytes)
                continue
            predicate = operands[-1] if place == _BEFORE_PREDICATE else None
            if isinstance(predicate, Mask) and one.executed.predicate is not None:
                predicate &= one.executed.predicate  # a dot that is not computed signals nothing
            work = COPIES if operation.name in _TMA_COPIES else DOTS
            issues.append(AsyncOperation(one, work, slot, predicate, whole_bytes))
    work_of = {issue.slot.allocation: issue.work for issue in issues if issue.slot}
    waits = (found for one in operations if (found := _wait(one, work_of)) is not None)
    return AsyncWork(tuple(issues), tuple(waits), frozenset(unnamed))


def _barrier_place(operation: Operation) -> int | None:
    """Return the place of the operand that is the signalled barrier; in copies and dots, the predicate follows it."""
    if operation.name in _TMA_COPIES or (operation.name in _DOTS and _SIGNALS.search(operation.tail)):
        return _BEFORE_PREDICATE
    return 0 if operation.name == DOT_COMMIT else None


def _wait(one: CountedOperation, work_of: Mapping[Operation, str]) -> AsyncOperation | None:
    operation, operands = one.operation, one.executed.operands
    if operation.name in _WAITS:
        found = _NUMBER.search(operation.tail)
        return AsyncOperation(one, _WAITS[operation.name], pending=int(found[1]) if found else 0)
    if operation.name != BARRIER_WAIT or len(operands) < 2:
        return None
    slot = operands[0]
    if not isinstance(slot, SharedMemorySlice) or slot.allocation not in work_of:
        return None
    # After the barrier and the parity. The buffers that the wait protects are printed last (``deps``): no operands.
    given = len(names_in(operation.tail.partition(" deps ")[0].partition(" : ")[0]))
    predicate = operands[2] if 2 < given <= len(operands) else None
    return AsyncOperation(one, work_of[slot.allocation], slot, predicate)
