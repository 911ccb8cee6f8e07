"""SMs that get their first CTA long after others have begun, or none at all."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.timeline.timeline import Timeline

# A device gives each SM its first CTA within 0.2 µs of the others (H200). Several times that is not how it begins.
_LEAST_WAIT_NS = 1_000
_ADVICE = (
    "see what holds these SMs when the launch begins, a kernel of another stream or communication (a trace of the "
    "whole program shows it: --torch-profiler); launch this kernel before or after it, or give each its own SMs"
)


def late_start(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    yield from _never(timeline, summary)
    idle = summary.idle
    if idle is None or idle.late_won_share < MIN_SHARE or idle.longest_wait_ns < _LEAST_WAIT_NS:
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
        advice=_ADVICE,
        figures={
            "sms": idle.sms,
            "late_sms": idle.late_sms,
            "longest_wait_ns": idle.longest_wait_ns,
            "before_share": idle.before_share,
        },
    )


def _never(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    """Of a grid that has a CTA for each SM."""
    kernel, waves, idle = timeline.launch.kernel, summary.waves, summary.idle
    if waves is None or idle is None or kernel.sm_count is None or waves.ctas < kernel.sm_count:
        return
    # Several CUs of AMD's bear one number, and CTAs of a cluster need SMs beside each other.
    if not kernel.target.startswith("cuda:") or kernel.metadata.get("num_ctas", 1) != 1:
        return
    never = kernel.sm_count - waves.sms
    share = never / kernel.sm_count * idle.work_share
    if share < MIN_SHARE:
        return
    yield Finding(
        rule="late-start",
        scope=None,
        share=share,
        text=f"{counted(never, 'SM')} of {kernel.sm_count} {'gets' if never == 1 else 'get'} no CTA, though the grid "
        f"has {waves.ctas}: on all SMs, the launch would take up to {percent(share)} less",
        advice=_ADVICE,
        figures={"sms": waves.sms, "device_sms": kernel.sm_count, "ctas": waves.ctas},
    )
