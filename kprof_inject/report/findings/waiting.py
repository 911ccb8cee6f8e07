"""Loops in which the warps that do the work wait for much of the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.report.findings.finding import Finding
from kprof_inject.report.findings.waits import is_wait, loses_time
from kprof_inject.report.findings.warps import time_of_a_warp_ns
from kprof_inject.report.findings.whole_launch import has_all_records
from kprof_inject.report.quantities import numbered, percent
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline

# Where loads are asked for early enough, a wait finds its data there: what is left of it is a few instructions. Some
# iterations are late in any kernel; a quarter of the loop is more than some.
_LEAST_OF_LOOP = 0.25
_LEAST_SHARE = 0.10
_LOOPS = ("loop", "iter")


def waiting(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    """Of what one warp waits longer than others the others' waits tell nothing: only what all of them wait counts."""
    if not has_all_records(timeline):
        return
    table, scopes = timeline.table, summary.scopes
    counts = loses_time(timeline.launch.kernel)
    in_loop: dict[int, list[int]] = {}
    for index, scope in enumerate(table.scopes):
        if counts(scope) and scopes[index].count and not _stands_in_wait(table, index):
            in_loop.setdefault(_loop_around(table, index), []).append(index)
    for loop, waits in in_loop.items():
        if loop >= 0:
            yield from _of_loop(timeline, summary, loop, waits)


def _of_loop(timeline: Timeline, summary: LaunchSummary, loop: int, waits: list[int]) -> Iterator[Finding]:
    inside = summary.scopes[loop]
    warps = inside.warps.ids[np.isin(inside.warps.ids, np.concatenate([summary.scopes[i].warps.ids for i in waits]))]
    # In a warp specialised kernel it is the few warps of a producer that have time, and may.
    if 2 * len(warps) <= len(timeline.warps):
        return
    waited_ns = np.sum([_times_of(summary, index, warps) for index in waits], axis=0)
    loop_ns = _times_of(summary, loop, warps)
    least = float((waited_ns / np.maximum(loop_ns, 1)).min())
    share = min(float(waited_ns.min()) / time_of_a_warp_ns(timeline, summary), 1.0)
    if least < _LEAST_OF_LOOP or share < _LEAST_SHARE:
        return
    worst = max(waits, key=lambda index: summary.scopes[index].total_ns)
    where = summary.scopes[worst].scope
    others = f" and {len(waits) - 1} other waits" if len(waits) > 2 else " and 1 other wait" if len(waits) == 2 else ""
    verb = "waits" if len(warps) == 1 else "wait each"
    yield Finding(
        rule="waiting",
        scope=where,
        share=share,
        text=f"{numbered('warp', warps.tolist())} {verb} for {percent(least)} of {inside.scope} or more, in "
        f"{where}{others}",
        advice=f"look at what {where} waits for ({summary.scopes[worst].source or 'its source line is unknown'}): ask "
        "for it earlier (num_stages), move fewer bytes, or give the warps more to do meanwhile",
        figures={
            "loop": inside.scope,
            "warps": len(warps),
            "least_of_loop": least,
            "waits": len(waits),
        },
    )


def _times_of(summary: LaunchSummary, index: int, warps: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a scope took in each of some warps; 0 where it did not run."""
    groups = summary.scopes[index].warps
    times_ns: NDArray[np.int64] = np.where(groups.ids == warps[:, None], groups.totals_ns, 0).sum(axis=1)
    return times_ns


def _loop_around(table: ScopeTable, index: int) -> int:
    """The outermost loop around a scope, or -1."""
    found = -1
    index = table.scopes[index].parent
    while index >= 0:
        if table.scopes[index].kind in _LOOPS:
            found = index
        index = table.scopes[index].parent
    return found


def _stands_in_wait(table: ScopeTable, index: int) -> bool:
    index = table.scopes[index].parent
    while index >= 0 and not is_wait(table.scopes[index]):
        index = table.scopes[index].parent
    return index >= 0
