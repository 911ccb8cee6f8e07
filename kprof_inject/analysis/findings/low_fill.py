"""A grid with fewer CTAs than the device has SMs."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_ctas
from kprof_inject.quantities import counted, percent
from kprof_inject.timeline.timeline import Timeline


def low_fill(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Needs the number of the device's SMs, which older captures do not tell, and Proton's own buffers neither."""
    waves, device_sms = summary.waves, timeline.launch.kernel.sm_count
    if missing := missing_ctas(timeline, summary):
        yield missing
        return
    if device_sms is None:
        yield Unjudged("the capture does not say how many SMs the device has", "capture again with this version")
        return
    if waves is None or waves.ctas >= device_sms:
        return
    idle_sms = device_sms - waves.sms
    idle_share = idle_sms / device_sms
    if idle_share < MIN_SHARE:
        return
    yield Finding(
        rule="low-fill",
        scope=None,
        share=idle_share,
        text=f"the grid is too small for the device: {counted(waves.ctas, 'CTA')} on {waves.sms} of {device_sms} SMs; "
        f"{counted(idle_sms, 'SM')} ({percent(idle_share)}) {'is' if idle_sms == 1 else 'are'} idle",
        advice="launch more CTAs: smaller tiles, split-K, or several problems in one launch",
        figures={"ctas": waves.ctas, "sms": waves.sms, "device_sms": device_sms, "slots_per_sm": waves.slots_per_sm},
    )
