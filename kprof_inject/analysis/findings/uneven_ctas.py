"""SMs that idle at the end because CTAs take longer than others."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import percent, ratio, short_time
from kprof_inject.timeline.timeline import Timeline

# The last CTA to end must have been a long one: a quarter more than the median. That it only began late says nothing
# of its work.
_NOTABLE = 1.25


def uneven_ctas(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    ending = summary.ending
    # Times of CTAs and of their ends are known to a step of the timer.
    step_ns = timeline.clock.timer_step_ns
    if ending is None or ending.uneven_share - step_ns / max(summary.duration_ns, 1) < MIN_SHARE:
        return
    if ending.last_cta_ns - step_ns < _NOTABLE * ending.cta_ns:
        return
    last = f"CTA {ending.last_cta} on SM {ending.last_sm}, the last to finish, takes"
    if ending.cta_ns <= timeline.clock.timer_step_ns:
        what = f"most CTAs exit immediately, and {last} {short_time(ending.last_cta_ns)}"
        advice = "do not launch CTAs without work; start the others first, or split them"
    else:
        what = (
            f"{last} {ratio(ending.last_cta_ns / ending.cta_ns)} the median CTA ({short_time(ending.last_cta_ns)} "
            f"against {short_time(ending.cta_ns)})"
        )
        advice = f"see why CTA {ending.last_cta} has more work than others; start the longest CTAs first, or split them"
    yield Finding(
        rule="uneven-ctas",
        scope=None,
        share=ending.uneven_share,
        text=f"CTAs are uneven: {what}, and SMs idle at the end for {percent(ending.uneven_share)} of the launch on "
        "average",
        advice=advice,
        figures={
            "sms": ending.sms,
            "ctas": ending.ctas,
            "last_cta": ending.last_cta,
            "last_sm": ending.last_sm,
            "last_cta_ns": ending.last_cta_ns,
            "median_cta_ns": ending.cta_ns,
            "idle_share": ending.idle_share,
        },
    )
