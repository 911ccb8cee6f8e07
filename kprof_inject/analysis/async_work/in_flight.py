"""Asynchronous work that was in flight in a launch, from its issue to its completion.

No record shows when work completes, but a wait that blocks does: the work was in flight until the wait ended. If the
wait did not block, the work had completed at an unknown time before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.barrier_pairs import UNNAMED, NotCounted, pairs_by_barrier
from kprof_inject.analysis.async_work.groups import (
    IN_FLIGHT_COLUMNS,
    MAX_ROWS,
    InFlight,
    greatest_so_far,
    group_numbers,
    running_sums,
    starts_async,
)
from kprof_inject.analysis.async_work.issues_and_waits import AsyncWork, Await, Issue, arrivals, async_work
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, evaluated_kernel
from kprof_inject.analysis.scope_map import ScopeMap
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
    return _paired(timeline, async_work(ran.operations), ran.scope_map)


def signals_between_warps(timeline: Timeline, ran: ExecutedKernel) -> NDArray[np.void]:
    """Return the signals between warps by barriers, as ``IN_FLIGHT_COLUMNS``: from the arrival to the wait's end."""
    return _paired(timeline, arrivals(ran.operations), ran.scope_map).groups


def _paired(timeline: Timeline, work: AsyncWork, scope_map: ScopeMap) -> InFlight:
    counted = [*(one.counted for one in work.issues), *(one.counted for one in work.awaits)]
    scope_of = scope_map.sole_scopes(one.operation for one in counted)
    issues = {scope_of[one.counted.operation]: one for one in work.issues if one.counted.operation in scope_of}
    awaits = {scope_of[one.counted.operation]: one for one in work.awaits if one.counted.operation in scope_of}
    unpaired = dict(_never_awaited(work))
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


def _never_awaited(work: AsyncWork) -> Iterator[tuple[str, str]]:
    yield from ((name, UNNAMED) for name in work.unnamed)
    awaited = {(one.work, one.slot.allocation if one.slot else None) for one in work.awaits}
    for issue in work.issues:
        if (issue.work, issue.slot.allocation if issue.slot else None) not in awaited:
            yield issue.counted.operation.name, "no wait for it was found"


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
    pending = _by_scope(rows["scope"], {scope: one.pending for scope, one in awaits.items()})
    completed = greatest_so_far(np.where(is_issue, 0, issued - pending), group)
    asked, waited = np.flatnonzero(is_issue), np.flatnonzero(~is_issue)
    place = np.searchsorted(group[waited] * MAX_ROWS + completed[waited], group[asked] * MAX_ROWS + issued[asked])
    is_paired = place < waited.size
    asked, place = asked[is_paired], place[is_paired]
    wait = waited[place]
    same = group[wait] == group[asked]
    asked, wait = asked[same], wait[same]
    depth = issued[asked] - completed[asked]
    group_bytes = _by_scope(rows["scope"][asked], {scope: one.group_bytes // warps for scope, one in issues.items()})
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


def _by_scope(scopes: NDArray[np.int16], values: Mapping[int, int]) -> NDArray[np.int64]:
    table = np.zeros(max(int(scopes.max(initial=0)), *values) + 1, np.int64)
    for scope, value in values.items():
        table[scope] = value
    return table[scopes]
