"""The asynchronous operations of a kernel: what each issues, and what each wait waits for.

Copies by threads, dots of warp groups and TMA stores complete in order, warp by warp, and a wait gives the number of
latest groups that may still be in flight: PTX ISA, "cp.async.wait_group", "wgmma.wait_group",
"cp.async.bulk.wait_group". TMA copies and dots of the fifth generation signal a barrier in shared memory on which a
warp waits: "mbarrier".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.axis_arrays import Mask, SharedMemorySlice, Value
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.ttgir.dialect import BARRIER_WAIT, COMMIT_GROUP, DOT_COMMIT
from kprof_inject.ttgir.loops import is_asynchronous_dot
from kprof_inject.ttgir.nodes import Block, Operation
from kprof_inject.ttgir.ssa_values import names_in, operand_names

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
    group_bytes: int = 0
    """Of an issue: the maximum that one execution moves for a CTA."""
    pending: int = 0
    """Of a wait: how many groups may still be in flight."""

    @property
    def queue(self) -> str | Operation:
        """What pairs issues with waits: the allocation of the barriers, or the kind of work that completes in order."""
        return self.slot.allocation if self.slot else self.work


class AsyncWork(Struct, frozen=True):
    """The asynchronous operations of a kernel, in the order of the text."""

    issues: tuple[AsyncOperation, ...]
    waits: tuple[AsyncOperation, ...]
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
    """Return the operand that is the signalled barrier; in copies and dots, it comes before the predicate."""
    if operation.name in _TMA_COPIES or (operation.name in _DOTS and _SIGNALS.search(operation.tail)):
        return _BEFORE_PREDICATE
    return 0 if operation.name == DOT_COMMIT else None


def _wait(one: CountedOperation, work_of: Mapping[Operation, str]) -> AsyncOperation | None:
    """Return the wait of an operation; ``work_of`` has the work that signals the barriers of each allocation."""
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
