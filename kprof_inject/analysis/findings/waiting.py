"""Loops in which the warps that do the work wait much of the time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.findings.loops import (
    has_no_loop,
    is_of_dot,
    is_wait,
    lost_waits,
    may_lose_time,
    time_of_a_warp_ns,
    unrecorded_loops,
)
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, missing_warps, unpaired_records
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import numbered, percent
from kprof_inject.timeline.phases import outermost_loops
from kprof_inject.timeline.timeline import Timeline

# If loads are issued early enough, a wait finds its data there and takes a few instructions. Some iterations are late
# in any kernel; a quarter of the loop's time is more than that.
_MIN_LOOP_SHARE = 0.25


def waiting(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Yield loops whose warps wait long; only the time that all warps wait counts.

    If one warp waits longer than the others, their waits do not show why.
    """
    if missing := _missing(timeline):
        yield missing
        return
    loops = outermost_loops(timeline.table)
    waits = [index for index in lost_waits(timeline.table, timeline.launch.kernel) if summary.scopes[index].count]
    for loop in np.unique(loops[waits]).tolist():
        if loop < 0:
            continue
        if _works(timeline, summary, np.flatnonzero(loops == loop)):
            yield from _loop_finding(timeline, summary, loop, [index for index in waits if loops[index] == loop])
        elif not any(map(is_of_dot, timeline.table.scopes)):
            name = summary.scopes[loop].distinct_name
            unknown = Unjudged(f"the warps of {name} may only load data", "add --at 'op(*dot*)'")
            yield missing_warps(timeline) or unknown
    if waits and (missing := unpaired_records(timeline)):
        yield missing


def _missing(timeline: Timeline) -> Unjudged | None:
    """Return why lost waits may not have been found; None if nothing is missing."""
    kernel = timeline.launch.kernel
    recorded = lost_waits(timeline.table, kernel)
    if has_no_loop(timeline) or not (recorded or may_lose_time(kernel)):
        return None
    if recorded:
        return unrecorded_loops(timeline.table) or missing_records(timeline)
    has_waits = any(is_wait(scope) and scope.kind != ScopeKind.SPIN for scope in timeline.table.scopes)
    what = "only waits for dots were recorded" if has_waits else "no wait was recorded"
    return unrecorded_loops(timeline.table) or Unjudged(what, "add --at 'op(*wait*)'")


def _works(timeline: Timeline, summary: LaunchSummary, scopes: NDArray[np.int64]) -> bool:
    """Return True if the warps of a loop with these ``scopes`` do the kernel's work.

    In a warp-specialized kernel, warps that only load may wait without loss, and the number of warps does not
    distinguish them.
    """
    all_run_it = len(summary.scopes[scopes[0]].warps.ids) == timeline.launch.kernel.num_warps
    return all_run_it or any(is_of_dot(timeline.table.scopes[i]) and summary.scopes[i].count for i in scopes)


def _loop_finding(timeline: Timeline, summary: LaunchSummary, loop: int, waits: list[int]) -> Iterator[Finding]:
    inside = summary.scopes[loop]
    warps = inside.warps.ids
    if not warps.size:
        return  # damaged records may have left some waits but nothing of the loop
    waited_ns = np.sum([_times_of(summary, index, warps) for index in waits], axis=0)
    loop_ns = _times_of(summary, loop, warps)
    least = float((waited_ns / np.maximum(loop_ns, 1)).min())
    share = min(float(waited_ns.min()) / time_of_a_warp_ns(timeline, summary), 1.0)
    if least < _MIN_LOOP_SHARE or share < MIN_SHARE:
        return
    worst = max(waits, key=lambda index: summary.scopes[index].warps.totals_ns.sum())
    wait = summary.scopes[worst]
    where = wait.distinct_name
    other_waits = ""
    if len(waits) == 2:
        other_waits = " and 1 other wait"
    elif len(waits) > 2:
        other_waits = f" and {len(waits) - 1} other waits"
    if len(warps) == timeline.launch.kernel.num_warps > 1:
        who = "every warp waits"
    else:
        who = f"{numbered('warp', warps.tolist())} {'waits' if len(warps) == 1 else 'each wait'}"
    yield Finding(
        rule="waiting",
        scope=wait.scope,
        index=worst,
        share=share,
        text=f"{who} in {where}{other_waits} for at least {percent(least)} of {inside.distinct_name}",
        advice=f"see what {where} waits for ({wait.source or 'source line unknown'}): issue it "
        "earlier (num_stages), move fewer bytes, or give the warps other work in the meantime",
        figures={
            "loop": inside.distinct_name,
            "waiting_warps": len(warps),
            "least_of_loop": least,
            "waits": len(waits),
        },
    )


def _times_of(summary: LaunchSummary, index: int, warps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the time of a scope in each of these warps, in nanoseconds; 0 where it did not run."""
    groups = summary.scopes[index].warps
    times_ns: NDArray[np.int64] = np.where(groups.ids == warps[:, None], groups.totals_ns, 0).sum(axis=1)
    return times_ns
