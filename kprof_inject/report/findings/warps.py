"""The warps that a scope is of, and what part of their time something takes."""

from __future__ import annotations

from kprof_inject.report.summary import LaunchSummary, ScopeSummary
from kprof_inject.timeline.timeline import Timeline


def time_of_a_warp_ns(timeline: Timeline, summary: LaunchSummary) -> float:
    """The time that the warps of one number have, from begin to end of their CTAs, summed; at least 1."""
    return max(summary.warp_time_ns / max(len(timeline.warps), 1), 1.0)


def warps_share(timeline: Timeline, summary: LaunchSummary, scope: ScopeSummary, time_ns: float) -> float:
    """Which part ``time_ns`` is of the time of those warps that ran the scope."""
    warps = max(len(scope.warps.ids), 1)
    return min(time_ns / (warps * time_of_a_warp_ns(timeline, summary)), 1.0)
