"""The asynchronous operations of a kernel: what each issues, and what each wait waits for.

Copies by threads, dots of warp groups and TMA stores complete in order, warp by warp, and a wait gives the number of
latest groups that may still be in flight: PTX ISA, "cp.async.wait_group", "wgmma.wait_group",
"cp.async.bulk.wait_group". TMA copies and dots of the fifth generation signal a barrier in shared memory on which a
warp waits: "mbarrier".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.interpreter.axis_arrays import Mask, SharedMemorySlice, Value
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.ttgir.dialect import BARRIER_WAIT, COMMIT_GROUP, DOT_COMMIT
from kprof_inject.ttgir.loops import is_asynchronous_dot
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import names_in, operand_names

COPIES, DOTS, STORES = "copies", "dots", "stores"


class Issue(Struct, frozen=True):
    """An operation that issues asynchronous work, or closes a group of it.

    Operations that signal the same barrier together are represented by the first. ``group_bytes`` is the maximum that
    one execution moves for a CTA.
    """

    counted: CountedOperation
    work: str
    group_bytes: int
    slot: SharedMemorySlice | None
    """The barrier that is signalled; None for work that completes in order."""
    predicate: Value


class Await(Struct, frozen=True):
    """A wait: until at most ``pending`` groups are in flight, or until the barrier ``slot`` completes a phase.

    ``phase`` is the parity of that phase.
    """

    counted: CountedOperation
    work: str
    pending: int
    slot: SharedMemorySlice | None
    phase: Value
    predicate: Value


class AsyncWork(Struct, frozen=True):
    """The asynchronous operations of a kernel, in the order of the text."""

    issues: tuple[Issue, ...]
    awaits: tuple[Await, ...]
    unnamed: frozenset[str]
    """The names of operations that signal an unknown barrier."""


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


def async_work(operations: Sequence[CountedOperation]) -> AsyncWork:
    """Return the asynchronous work of all operations of a kernel, which are in the order of the text."""
    issues = [*_in_order(operations), *_signalling(operations)]
    by_place = sorted(issues, key=lambda issue: issue.counted.operation.start)
    work_of = {issue.slot.allocation: issue.work for issue in issues if issue.slot}
    awaits = (found for one in operations if (found := _await(one, work_of)) is not None)
    signalling = (one for one in operations if _barrier_place(one.operation) is not None)
    unnamed = (one.operation.name for one in signalling if not isinstance(_barrier(one), SharedMemorySlice))
    return AsyncWork(tuple(by_place), tuple(awaits), frozenset(unnamed))


def _in_order(operations: Sequence[CountedOperation]) -> Iterator[Issue]:
    copied_bytes = 0
    for one in operations:
        operation = one.operation
        if operation.name == "ttg.async_copy_global_to_local":
            copied_bytes += _whole_bytes(one)
        elif operation.name == COMMIT_GROUP:
            yield Issue(one, COPIES, copied_bytes, None, None)
            copied_bytes = 0
        elif is_asynchronous_dot(operation):
            yield Issue(one, DOTS, 0, None, None)
        elif operation.name in _TMA_STORES:
            yield Issue(one, STORES, _whole_bytes(one), None, None)


def _whole_bytes(one: CountedOperation) -> int:
    return one.access.whole_bytes if one.access else 0


def _signalling(operations: Sequence[CountedOperation]) -> Iterator[Issue]:
    """Yield the operations that signal barriers.

    Those of one block that signal one barrier are yielded once: they complete the same phase.
    """
    groups: dict[tuple[int, str], list[CountedOperation]] = {}
    for one in operations:
        place = _barrier_place(one.operation)
        if place is not None and isinstance(_barrier(one), SharedMemorySlice):
            groups.setdefault((id(one.operation.block), operand_names(one.operation)[place]), []).append(one)
    for members in groups.values():
        first = members[0]
        place, slot = _barrier_place(first.operation), _barrier(first)
        work = COPIES if first.operation.name in _TMA_COPIES else DOTS
        predicate = first.executed.operands[-1] if place == _BEFORE_PREDICATE else None
        if isinstance(predicate, Mask) and first.executed.predicate is not None:
            predicate &= first.executed.predicate  # a dot that is not computed signals nothing
        if isinstance(slot, SharedMemorySlice):
            yield Issue(first, work, sum(map(_whole_bytes, members)), slot, predicate)


_BEFORE_PREDICATE = -2


def _barrier_place(operation: Operation) -> int | None:
    """Return the operand that is the signalled barrier; in copies and dots, it comes before the predicate."""
    if operation.name in _TMA_COPIES or (operation.name in _DOTS and _SIGNALS.search(operation.tail)):
        return _BEFORE_PREDICATE
    if operation.name == DOT_COMMIT:
        return 0
    return None


def _barrier(one: CountedOperation) -> Value:
    place, operands = _barrier_place(one.operation), one.executed.operands
    return operands[place] if place is not None and -len(operands) <= place < len(operands) else None


def _await(one: CountedOperation, work_of: Mapping[Operation, str]) -> Await | None:
    """Return the wait of an operation; ``work_of`` has the work that signals the barriers of each allocation."""
    operation, operands = one.operation, one.executed.operands
    if operation.name in _WAITS:
        found = _NUMBER.search(operation.tail)
        return Await(one, _WAITS[operation.name], int(found[1]) if found else 0, None, None, None)
    if operation.name != BARRIER_WAIT or len(operands) < 2:
        return None
    slot = operands[0]
    if not isinstance(slot, SharedMemorySlice) or slot.allocation not in work_of:
        return None
    # The buffers that the wait protects are printed last (``deps``), and are not its operands.
    given = len(names_in(operation.tail.partition(" deps ")[0].partition(" : ")[0]))
    return Await(
        one, work_of[slot.allocation], 0, slot, operands[1], operands[2] if 2 < given <= len(operands) else None
    )
