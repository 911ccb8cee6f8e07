"""SMs that have no CTA for a while before they get the next one."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import Waves


def between_ctas(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """While the records of a CTA are copied, its SM is not idle: that is ours."""
    idle, waves = summary.idle, summary.waves
    if idle is None or waves is None or idle.gaps_won_share < MIN_SHARE:
        return
    kernel = timeline.launch.kernel
    if (kernel.with_records.ctas_per_sm or 0) < (kernel.clean.ctas_per_sm or 0):
        # Without records, another CTA may run in the gap.
        yield Unjudged("with records, fewer CTAs fit on an SM than without", "use a smaller --buffer-bytes")
        return
    yield Finding(
        rule="between-ctas",
        scope=None,
        share=idle.gaps_won_share,
        text=f"SMs are idle between CTAs, {counted(idle.gaps, 'time')} for {short_time(idle.gap_ns)} on average: "
        f"{percent(idle.between_share)} of their time; without these gaps, the launch would take "
        f"{percent(idle.gaps_won_share)} less",
        advice=_advice(waves),
        figures={
            "gaps": idle.gaps,
            "gap_ns": idle.gap_ns,
            "between_share": idle.between_share,
            "ctas": waves.ctas,
            "slots_per_sm": waves.slots_per_sm,
        },
    )


def _advice(waves: Waves) -> str:
    fewer = (
        f"launch fewer, larger CTAs, or a persistent kernel: {waves.sms * waves.slots_per_sm} CTAs that each loop over "
        "tiles"
    )
    if waves.slots_per_sm > 1:
        return f"{fewer}; see whether another kernel takes the SMs in between"
    return f"{fewer}; or make room for a second CTA on an SM (fewer registers, less shared memory) to fill the gaps"
