"""CTAs that take long to come to their first loop."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.report.findings.finding import Finding
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline

# Every CTA reckons addresses and waits for its first data: of a matmul with 16 iterations, which is short, that is 8 %
# of its time (H200, the capture of the demo). A fifth is more than that needs.
_LEAST_SHARE = 0.20


def prologue(_: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    phases = summary.phases
    if phases is None or phases.before_share < _LEAST_SHARE:
        return
    loop = summary.scopes[phases.first_loop].scope
    mean_ns = phases.before_ns / phases.warps
    yield Finding(
        rule="prologue",
        scope=loop,
        share=phases.before_share,
        text=f"slow prologue: before {loop} begins, {percent(phases.before_share)} of the CTA's time is gone "
        f"({short_time(mean_ns)} of {short_time(phases.whole_ns / phases.warps)})",
        advice=f"record what stands before {loop} (markers, or --at line(...)); move work out of the kernel, or let "
        "each CTA do more iterations, or several tiles",
        figures={"mean_ns": mean_ns, "cta_ns": phases.whole_ns / phases.warps, "warps": phases.warps},
    )
