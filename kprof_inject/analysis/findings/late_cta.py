"""A CTA that is last at a barrier of all CTAs most of the time."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas, missing_records
from kprof_inject.quantities import counted, short_time
from kprof_inject.timeline.timeline import Timeline

# A CTA that is last in fewer rounds may be so by chance.
_MIN_ROUNDS = 0.5


def late_cta(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Yield a finding for each barrier at which one CTA is late.

    At most, the launch wins the time between the median CTA's arrival and the last one's. If only that CTA becomes
    faster, it wins the time since the last but one.
    """
    if not summary.memory_waits:
        return
    if missing := missing_records(timeline) or missing_ctas(timeline, summary) or _unrecorded_ctas(summary):
        yield missing
        return
    for wait in summary.memory_waits:
        barrier = wait.barrier
        if barrier is None or barrier.last_in <= _MIN_ROUNDS * barrier.rounds:
            continue
        share = min(barrier.last_in * barrier.after_median_ns / summary.duration_ns, 1.0)
        if share < MIN_SHARE:
            continue
        scope = summary.scopes[wait.index]
        before = f"what it does before {scope.distinct_name} ({scope.source or 'its source line is unknown'})"
        yield Finding(
            rule="late-cta",
            scope=scope.scope,
            index=wait.index,
            share=share,
            likely=min(barrier.last_in * barrier.after_next_ns / summary.duration_ns, share),
            text=f"CTA {barrier.cta} (SM {barrier.sm}) arrives last at {scope.distinct_name}{barrier.in_rounds}, "
            f"{short_time(barrier.after_median_ns)} after the median CTA, and {counted(wait.ctas - 1, 'CTA')} wait for "
            "it",
            advice=f"look at {before} that the others do not, and spread it over the CTAs",
            figures={
                "cta": barrier.cta,
                "sm": barrier.sm,
                "last_in": barrier.last_in,
                "rounds": barrier.rounds,
                "after_median_ns": barrier.after_median_ns,
                "after_next_ns": barrier.after_next_ns,
            },
        )


def _unrecorded_ctas(summary: LaunchSummary) -> Unjudged | None:
    if summary.recorded_ctas == summary.ctas:
        return None
    return Unjudged(f"only {summary.recorded_ctas} of {counted(summary.ctas, 'CTA')} recorded", "add --ctas all")
