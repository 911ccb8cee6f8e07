"""What keeps rules from judging a launch: where they are silent, nothing was ruled out."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.report.findings.loops import unrecorded_before
from kprof_inject.report.findings.whole_launch import has_all_ctas, has_all_records
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.statistics.phases import LOOPS
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Level, Verdict


def doubts_about(timeline: Timeline, summary: LaunchSummary, verdict: Verdict) -> Iterator[str]:
    """Each says what is not known, and what therefore was not judged."""
    if not summary.ctas:
        yield "no CTA ran, so that nothing is judged"
        return
    yield from _of_records(timeline)
    yield from _of_scopes(timeline, summary)
    yield from _of_ctas(timeline, summary)
    if verdict.level is Level.UNRELIABLE:
        yield "the records disturb this kernel so much that it may be limited by something else without them"


def _of_records(timeline: Timeline) -> Iterator[str]:
    if timeline.records_lost:
        yield "records were lost, so that warps, waits and phases tell nothing of the rest: --fit keeps them all"
    elif not has_all_records(timeline):
        yield "records are damaged, so that warps and waits tell nothing"


def _of_scopes(timeline: Timeline, summary: LaunchSummary) -> Iterator[str]:
    phases = summary.phases
    if not any(scope.count for scope in summary.scopes):
        yield "no scope was recorded, so that only CTAs and SMs are judged"
    elif not any(scope.count for scope in summary.scopes if scope.kind in LOOPS):
        yield "no loop was recorded (--at loop --at iter), so that neither phases, iterations nor waits are judged"
    elif timeline.table.body is None:
        yield "the kernel's whole body was not recorded (--at func), so that prologue and epilogue are not judged"
    elif phases is not None and (before := unrecorded_before(timeline.table, phases.first_loop)):
        yield f"{before} was not recorded (--at loop), so that the prologue is not judged"


def _of_ctas(timeline: Timeline, summary: LaunchSummary) -> Iterator[str]:
    if summary.waves is None:
        yield "no timer was read, so that CTAs and SMs tell nothing"
    elif not has_all_ctas(timeline):
        yield "CTAs are missing, so that neither the grid's size nor its tail is judged"
    elif timeline.launch.kernel.sm_count is None:
        yield "the capture does not tell how many SMs the device has, so that the grid's size is not judged"
