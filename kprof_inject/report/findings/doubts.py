"""What keeps rules from judging a launch: where they are silent, nothing was ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.report.findings.whole_launch import has_all_ctas, has_all_records
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, Verdict


def doubts_about(timeline: Timeline, summary: LaunchSummary, verdict: Verdict) -> Iterator[str]:
    """Each says what is not known, and what therefore was not judged."""
    if timeline.records_lost:
        yield "records were lost, so that warps, waits and phases tell nothing of the rest: --fit keeps them all"
    elif not has_all_records(timeline):
        yield "records are damaged, so that warps and waits tell nothing"
    if summary.ctas and summary.waves is None:
        yield "no timer was read, so that CTAs and SMs tell nothing"
    elif summary.ctas and not has_all_ctas(timeline):
        yield "CTAs are missing, so that neither the grid's size nor its tail is judged"
    elif summary.ctas and timeline.launch.kernel.sm_count is None:
        yield "the capture does not tell how many SMs the device has, so that the grid's size is not judged"
    if verdict.level is Level.UNRELIABLE:
        yield "the records disturb this kernel so much that it may be limited by something else without them"
