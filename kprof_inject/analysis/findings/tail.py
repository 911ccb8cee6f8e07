"""SMs that idle at the end because others were given more CTAs: the last wave does not fill them."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import counted, percent
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import Ending, Waves


def tail(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding]:
    waves, ending = summary.waves, summary.ending
    if waves is None or ending is None or ending.count_share < MIN_SHARE:
        return
    won = f"spread evenly, the same work would take {percent(ending.count_share)} less"
    yield Finding(
        rule="tail",
        scope=None,
        share=ending.count_share,
        text=f"{_what(waves, ending)}; {won}",
        advice=f"make the grid a multiple of {_even(waves)}: other tile sizes, a persistent kernel, or split-K",
        figures={
            "ctas": waves.ctas,
            "sms": waves.sms,
            "slots_per_sm": waves.slots_per_sm,
            "waves": waves.waves,
            "fill": waves.fill,
            "last_wave_ctas": waves.last.ctas,
            "last_wave_sms": waves.last.sms,
            "most_ctas_per_sm": ending.most_ctas,
            "fullest_sms": ending.fullest_sms,
            "tail_ns": waves.tail.duration_ns,
            "tail_share": waves.tail.share,
            "idle_share": ending.idle_share,
        },
    )


def _even(waves: Waves) -> str:
    if waves.waves > 1:
        return f"the {waves.sms * waves.slots_per_sm} CTAs that run at once"
    return f"the {waves.sms} SMs"


def _what(waves: Waves, ending: Ending) -> str:
    if waves.waves > 1:
        return f"the last wave is {counted(waves.last.ctas, 'CTA')} on {waves.last.sms} of {waves.sms} SMs"
    has = "has" if ending.fullest_sms == 1 else "have"
    return (
        f"{counted(waves.ctas, 'CTA')} do not divide evenly among {waves.sms} SMs: {ending.fullest_sms} of these {has} "
        f"{ending.most_ctas} to run, the others finish earlier"
    )
