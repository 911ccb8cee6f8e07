"""Loops in which the warps that do the work wait for much of the time."""

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
from kprof_inject.quantities import numbered, percent
from kprof_inject.timeline.phases import outermost_loops
from kprof_inject.timeline.timeline import Timeline

# Where loads are asked for early enough, a wait finds its data there: what is left of it is a few instructions. Some
# iterations are late in any kernel; a quarter of the loop is more than some.
_LEAST_OF_LOOP = 0.25


def waiting(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Of what one warp waits longer than others the others' waits tell nothing: only what all of them wait counts."""
    if missing := _missing(timeline):
        yield missing
        return
    loops = outermost_loops(timeline.table)
    waits = [index for index in lost_waits(timeline.table, timeline.launch.kernel) if summary.scopes[index].count]
    for loop in np.unique(loops[waits]).tolist():
        if loop < 0:
            continue
        if _works(timeline, summary, np.flatnonzero(loops == loop)):
            yield from _of_loop(timeline, summary, loop, [index for index in waits if loops[index] == loop])
        elif not any(map(is_of_dot, timeline.table.scopes)):
            name = summary.scopes[loop].distinct_name
            unknown = Unjudged(f"it is not known whether the warps of {name} only load", "add --at 'op(*dot*)'")
            yield missing_warps(timeline) or unknown
    if waits and (missing := unpaired_records(timeline)):
        yield missing


def _missing(timeline: Timeline) -> Unjudged | None:
    """Why waits may take time that cannot be found."""
    kernel = timeline.launch.kernel
    recorded = lost_waits(timeline.table, kernel)
    if has_no_loop(timeline) or not (recorded or may_lose_time(kernel)):
        return None
    return unrecorded_loops(timeline.table) or (missing_records(timeline) if recorded else _no_wait(timeline))


def _no_wait(timeline: Timeline) -> Unjudged:
    others = any(map(is_wait, timeline.table.scopes))
    what = "only waits for dots were recorded" if others else "no wait was recorded"
    return Unjudged(what, "add --at 'op(*wait*)'")


def _works(timeline: Timeline, summary: LaunchSummary, scopes: NDArray[np.int64]) -> bool:
    """Whether the warps of a loop, which has these ``scopes``, do the kernel's work. In a warp specialised kernel those
    that load may wait as long as they like, and how many of each there are tells nothing."""
    all_run_it = len(summary.scopes[scopes[0]].warps.ids) == timeline.launch.kernel.num_warps
    return all_run_it or any(is_of_dot(timeline.table.scopes[i]) and summary.scopes[i].count for i in scopes)


def _of_loop(timeline: Timeline, summary: LaunchSummary, loop: int, waits: list[int]) -> Iterator[Finding]:
    inside = summary.scopes[loop]
    warps = inside.warps.ids
    if not warps.size:
        return  # of damaged records, some of the waits may be left and none of the loop
    waited_ns = np.sum([_times_of(summary, index, warps) for index in waits], axis=0)
    loop_ns = _times_of(summary, loop, warps)
    least = float((waited_ns / np.maximum(loop_ns, 1)).min())
    share = min(float(waited_ns.min()) / time_of_a_warp_ns(timeline, summary), 1.0)
    if least < _LEAST_OF_LOOP or share < MIN_SHARE:
        return
    worst = max(waits, key=lambda index: summary.scopes[index].warps.totals_ns.sum())
    wait = summary.scopes[worst]
    where = wait.distinct_name
    others = f" and {len(waits) - 1} other waits" if len(waits) > 2 else " and 1 other wait" if len(waits) == 2 else ""
    who = _who(warps.tolist(), timeline.launch.kernel.num_warps)
    yield Finding(
        rule="waiting",
        scope=wait.scope,
        index=worst,
        share=share,
        text=f"{who} at least {percent(least)} of {inside.distinct_name} in {where}{others}",
        advice=f"see what {where} waits for ({wait.source or 'source line unknown'}): issue it "
        "earlier (num_stages), move fewer bytes, or give the warps other work in the meantime",
        figures={
            "loop": inside.distinct_name,
            "waiting_warps": len(warps),
            "least_of_loop": least,
            "waits": len(waits),
        },
    )


def _who(warps: list[int], all_warps: int) -> str:
    if len(warps) == 1:
        return f"{numbered('warp', warps)} waits"
    return "every warp waits" if len(warps) == all_warps else f"{numbered('warp', warps)} each wait"


def _times_of(summary: LaunchSummary, index: int, warps: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a scope took in each of some warps; 0 where it did not run."""
    groups = summary.scopes[index].warps
    times_ns: NDArray[np.int64] = np.where(groups.ids == warps[:, None], groups.totals_ns, 0).sum(axis=1)
    return times_ns
