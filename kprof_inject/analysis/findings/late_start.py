"""SMs that get their first CTA long after others have begun."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas, too_short
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.timeline.timeline import Timeline

# As for a tail, which is what it becomes in the end.
_LEAST_SHARE = 0.10
# A device gives each SM its first CTA within 0.2 µs of the others (H200). Several times that is not how it begins.
_LEAST_WAIT_NS = 1_000


def late_start(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    if missing := missing_ctas(timeline, summary) or too_short(summary):
        yield missing
        return
    idle = summary.idle
    if idle is None or idle.late_won_share < _LEAST_SHARE or idle.longest_wait_ns < _LEAST_WAIT_NS:
        return
    if timeline.launch.kernel.metadata.get("launch_pdl"):
        # It is meant to begin on the SMs that the kernel before it leaves first.
        return
    yield Finding(
        rule="late-start",
        scope=None,
        share=idle.late_won_share,
        text=f"{counted(idle.late_sms, 'SM')} of {idle.sms} {'starts' if idle.late_sms == 1 else 'start'} late, the "
        f"last one {short_time(idle.longest_wait_ns)} after the first: on average, SMs wait for their first CTA for "
        f"{percent(idle.before_share)} of the launch; had all started at once, it would take "
        f"{percent(idle.late_won_share)} less",
        advice="see what holds these SMs when the launch begins, a kernel of another stream or communication (a trace "
        "of the whole program shows it: --torch-profiler); launch this kernel before or after it, or give each its "
        "own SMs",
        figures={
            "sms": idle.sms,
            "late_sms": idle.late_sms,
            "longest_wait_ns": idle.longest_wait_ns,
            "before_share": idle.before_share,
        },
    )
