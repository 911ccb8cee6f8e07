"""CTAs that take long after their last loop."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.report.findings.finding import Finding
from kprof_inject.report.quantities import percent, short_time
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline

# As for the prologue: to convert and store its tile, a CTA of the demo's matmul takes 7 % of its time.
_LEAST_SHARE = 0.20


def epilogue(_: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    phases = summary.phases
    if phases is None or phases.after_share < _LEAST_SHARE:
        return
    loop = summary.scopes[phases.last_loop].scope
    mean_ns = phases.after_ns / phases.warps
    yield Finding(
        rule="epilogue",
        scope=loop,
        share=phases.after_share,
        text=f"slow epilogue: what comes after {loop} takes {percent(phases.after_share)} of the CTA's time "
        f"({short_time(mean_ns)} of {short_time(phases.whole_ns / phases.warps)})",
        advice=f"record what stands after {loop} (markers, or --at line(...)); look at how the result is converted and "
        "stored, or let it overlap with the next tile",
        figures={"mean_ns": mean_ns, "cta_ns": phases.whole_ns / phases.warps, "warps": phases.warps},
    )
