"""What was in flight in a launch, and when: asynchronous work from its issue to its completion.

No record says when work completes. A wait that blocks does: the work was under way until the wait ended. Where the wait
found it done, it had completed at some time before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work import AsyncWork, Await, Issue, async_work
from kprof_inject.analysis.evaluation import Executed
from kprof_inject.analysis.executions import ExecutedKernel
from kprof_inject.analysis.flight_groups import IN_FLIGHT_COLUMNS, InFlight, starts_async
from kprof_inject.analysis.grids import CTA, Mask, Part, Sum, TooLarge
from kprof_inject.analysis.integer_operations import Value
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.timeline import Timeline

# A wait that finds its work done takes less, without what its records cost: with four and five stages, three in four
# waits of a matmul on an H200 took up to 130 cycles, with the barrier behind them.
_READY_CYCLES = 130
_FAR = 1 << 40


def in_flight(timeline: Timeline, ran: ExecutedKernel) -> InFlight:
    """Of the asynchronous operations that were recorded (``--at async``)."""
    work = async_work(ran.operations)
    scope_of_line = _scopes_of_lines(timeline.table)
    issues = {scope: one for one in work.issues if (scope := scope_of_line.get(one.counted.line)) is not None}
    awaits = {scope: one for one in work.awaits if (scope := scope_of_line.get(one.counted.line)) is not None}
    unpaired = dict(_never_awaited(work)) if any(map(starts_async, timeline.table.scopes)) else {}
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
        told = {scope: one for scope, one in issues.items() if one.slot and one.slot.allocation is allocation}
        waits = {scope: one for scope, one in awaits.items() if one.slot and one.slot.allocation is allocation}
        if waits:
            try:
                found.append(_by_barrier(rows, told, waits))
            except _NotCounted as reason:
                unpaired.update(dict.fromkeys((one.counted.operation.name for one in told.values()), str(reason)))
    groups = np.concatenate(found) if found else np.empty(0, IN_FLIGHT_COLUMNS)
    works = {scope: one.work for scope, one in issues.items()}
    return InFlight(groups[np.lexsort((groups["start_cycles"], groups["warp"], groups["cta"]))], works, unpaired)


def _scopes_of_lines(table: ScopeTable) -> dict[int, int]:
    """Of scopes around one operation, by its line."""
    return {
        scope.lines[0]: index
        for index, scope in enumerate(table.scopes)
        if scope.kind == ScopeKind.OPERATION and scope.lines is not None and scope.lines[0] == scope.lines[1]
    }


_UNNAMED = "which barrier it tells cannot be evaluated"


def _never_awaited(work: AsyncWork) -> Iterator[tuple[str, str]]:
    yield from ((name, _UNNAMED) for name in work.unnamed)
    awaited = {(one.work, one.slot.allocation if one.slot else None) for one in work.awaits}
    for issue in work.issues:
        if (issue.work, issue.slot.allocation if issue.slot else None) not in awaited:
            yield issue.counted.operation.name, "no wait for it is known"


def _recorded(timeline: Timeline, scopes: Sequence[int]) -> NDArray[np.void]:
    """The records of some scopes, warp by warp in their order."""
    blocks = [block[np.isin(block["scope"], scopes)] for block in timeline.blocks()]
    rows: NDArray[np.void] = np.concatenate([np.empty(0, SCOPE_COLUMNS), *blocks])
    return rows[np.lexsort((rows["start_record"], rows["warp"], rows["cta"]))]


def _in_order(
    rows: NDArray[np.void], issues: Mapping[int, Issue], awaits: Mapping[int, Await], warps: int
) -> NDArray[np.void]:
    """Work that completes in its order. Of what came before a ring's oldest record, nothing is asked: each wait counts
    back from the latest."""
    rows = rows[np.isin(rows["scope"], [*issues, *awaits])]
    group = _numbered(rows["cta"].astype(np.int64) * _FAR + rows["warp"])
    is_issue = np.isin(rows["scope"], list(issues))
    issued = _running(is_issue.astype(np.int64), group)
    pending = _by_scope(rows["scope"], {scope: one.pending for scope, one in awaits.items()})
    completed = _greatest_so_far(np.where(is_issue, 0, issued - pending), group)
    asked, waited = np.flatnonzero(is_issue), np.flatnonzero(~is_issue)
    place = np.searchsorted(group[waited] * _FAR + completed[waited], group[asked] * _FAR + issued[asked])
    is_paired = place < waited.size
    asked, place = asked[is_paired], place[is_paired]
    wait = waited[place]
    same = group[wait] == group[asked]
    asked, wait = asked[same], wait[same]
    depth = issued[asked] - completed[asked]
    group_bytes = _by_scope(rows["scope"][asked], {scope: one.group_bytes // warps for scope, one in issues.items()})
    return _groups(rows[asked], rows[wait], depth, group_bytes)


def _by_barrier(rows: NDArray[np.void], issues: Mapping[int, Issue], awaits: Mapping[int, Await]) -> NDArray[np.void]:
    """The k-th time that a barrier is told is what the k-th wait for it waits for. Raises ``_NotCounted``."""
    told = np.concatenate([_told(rows[rows["scope"] == scope], one) for scope, one in issues.items()])
    told = told[np.lexsort((told["start_cycles"], told["slot"], told["cta"]))]
    told_key = _numbered_key(told["cta"], told["slot"])
    told_number = _running(np.ones(len(told), np.int64), _numbered(told_key))
    waits = np.concatenate([_waited(rows[rows["scope"] == scope], one) for scope, one in awaits.items()])
    waits = waits[np.lexsort((waits["start_cycles"], waits["slot"], waits["warp"], waits["cta"]))]
    of_warp = _numbered(_numbered_key(waits["cta"], waits["warp"].astype(np.int64) * _SLOTS + waits["slot"]))
    number = _running(np.ones(len(waits), np.int64), of_warp)
    # The first wait for a barrier that nothing has told yet may be for the phase before.
    number -= _first_of(waits["phase"], of_warp)
    wait_key = _numbered_key(waits["cta"], waits["slot"])
    # Of several warps that wait, the first to go on knows.
    order = np.lexsort((waits["end_cycles"], number, wait_key))
    waits, number, wait_key = waits[order], number[order], wait_key[order]
    place = np.searchsorted(wait_key * _TIMES + number, told_key * _TIMES + told_number)
    is_paired = place < len(waits)
    told, place, told_key, told_number = told[is_paired], place[is_paired], told_key[is_paired], told_number[is_paired]
    same = (wait_key[place] == told_key) & (number[place] == told_number)
    told, place = told[same], place[same]
    groups = _groups(told, waits[place], np.zeros(len(told), np.int64), told["bytes"])
    groups["depth"] = _overlapping(groups)
    return groups


# More than any kernel has barriers in an allocation, and than it waits for one.
_SLOTS, _TIMES = 1 << 10, 1 << 30


def _numbered_key(cta: NDArray[np.int32], rest: NDArray[np.int64]) -> NDArray[np.int64]:
    return cta.astype(np.int64) * (_SLOTS * _SLOTS) + rest


class _NotCounted(Exception):
    """Nobody knows which barrier an operation's executions are for."""


_EXTRA = [("slot", "i8"), ("phase", "i8"), ("bytes", "i8")]


def _told(rows: NDArray[np.void], issue: Issue) -> NDArray[np.void]:
    """The executions that ask for work: once for all warps that execute it, by the first."""
    found = _with_slots(rows, issue.counted.executed, issue.slot.index if issue.slot else None, issue.predicate)
    found["bytes"] = issue.group_bytes
    order = np.lexsort((found["start_cycles"], found["phase"], found["cta"]))
    found = found[order]
    return found[_begins(_numbered(found["cta"].astype(np.int64) * _FAR + found["phase"]))]


def _waited(rows: NDArray[np.void], wait: Await) -> NDArray[np.void]:
    found = _with_slots(rows, wait.counted.executed, wait.slot.index if wait.slot else None, wait.predicate)
    sequence = _Sequence.of(wait.counted.executed, wait.phase)
    found["phase"] = sequence.at(found["cta"], found["phase"])
    return found


def _with_slots(rows: NDArray[np.void], executed: Executed, index: Sum | None, predicate: Value) -> NDArray[np.void]:
    """Each execution with its slot; in ``phase``, its number. Raises ``_NotCounted``."""
    found = np.empty(len(rows), np.dtype([*rows.dtype.descr, *_EXTRA]))
    for name in rows.dtype.names or ():
        found[name] = rows[name]
    number = _running(np.ones(len(rows), np.int64), _numbered(rows["cta"].astype(np.int64) * _FAR + rows["warp"])) - 1
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
        """Raises ``_NotCounted``."""
        when = executed.when
        if when is None or when.is_least or not isinstance(value, Sum | Mask):
            raise _NotCounted(_UNNAMED)
        try:
            joint, mask = value.joint(), when.joint()
        except TooLarge:
            raise _NotCounted("there are too many of its executions") from None
        by_cta = CTA in joint.axes or CTA in mask.axes
        axes = tuple(axis for axis in sorted(executed.sizes) if by_cta or axis != CTA)
        shape = [executed.sizes[axis] for axis in axes]
        values, is_executed = (np.broadcast_to(_over(part, axes), shape) for part in (joint, mask))
        if not by_cta:
            return cls(values[is_executed].astype(np.int64), np.zeros(1, np.int64))
        counts = is_executed.reshape(shape[0], -1).sum(axis=1)
        return cls(values[is_executed].astype(np.int64), np.cumsum(counts) - counts)

    def at(self, cta: NDArray[np.int32], number: NDArray[np.int64]) -> NDArray[np.int64]:
        """Raises ``_NotCounted`` if there were more executions than the text tells."""
        place = self.begins[cta if self.begins.size > 1 else 0] + number
        if place.size and place.max() >= self.values.size:
            raise _NotCounted("it was executed more often than its loops tell")
        found: NDArray[np.int64] = self.values[place]
        return found


def _over(part: Part, axes: tuple[object, ...]) -> NDArray[np.int64]:
    return part.over(axes)  # type: ignore[arg-type]


def _groups(
    asked: NDArray[np.void], wait: NDArray[np.void], depth: NDArray[np.int64], group_bytes: NDArray[np.int64]
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
    found["depth"], found["bytes"] = depth, group_bytes
    return found


def _overlapping(groups: NDArray[np.void]) -> NDArray[np.int64]:
    """How many of a CTA's were under way when each had begun."""
    base = groups["cta"].astype(np.int64) * _FAR
    least = groups["start_cycles"].min() if groups.size else 0
    starts = np.sort(base + groups["start_cycles"] - least)
    ends = np.sort(base + groups["end_cycles"] - least)
    at = base + groups["start_cycles"] - least
    found: NDArray[np.int64] = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")
    return found


def _numbered(key: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of rows in groups, the number of each one's group."""
    return np.cumsum(np.diff(key, prepend=key[:1]) != 0) if key.size else key


def _running(values: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums that begin anew with each group."""
    total = np.cumsum(values)
    before = total - values
    return total - np.maximum.accumulate(np.where(_begins(group), before, 0)) if total.size else total


def _begins(group: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.append(True, np.diff(group) != 0)[: group.size]


def _greatest_so_far(values: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each group, never less than 0."""
    return np.maximum.accumulate(np.maximum(values, 0) + group * _FAR) - group * _FAR


def _first_of(values: NDArray[np.int64], group: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of each row, what the first of its group has."""
    first = np.flatnonzero(_begins(group))
    return values[first][group] if values.size else values


def _by_scope(scopes: NDArray[np.int16], values: Mapping[int, int]) -> NDArray[np.int64]:
    table = np.zeros(max(int(scopes.max(initial=0)), *values) + 1, np.int64)
    for scope, value in values.items():
        table[scope] = value
    return table[scopes]
