"""What is taken from each launch to compare it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kprof_inject.report.diff.runs import KernelRuns, process_of
from kprof_inject.timeline.choice import Choice
from kprof_inject.timeline.number_set import NumberSet
from kprof_inject.timeline.statistics.scopes import ScopeStatistics, scope_statistics
from kprof_inject.timeline.statistics.waves import Waves, launch_duration_ns, waves_of
from kprof_inject.timeline.timeline import Timeline

_MEASURED = "fitted"
_NO_TIMER = "nominal"


@dataclass(frozen=True, slots=True)
class ScopeFigures:
    """One scope of one launch. ``warps`` are those of a CTA in which it ran; ``whole`` says that no record of it can be
    missing. Times of a scope of which no start has its end are None."""

    count: int
    total_ns: int | None
    total_cycles: float
    mean_ns: float | None
    mean_cycles: float | None
    p50_ns: float | None
    share: float | None
    warps: tuple[int, ...]
    whole: bool


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """One launch: ``clock_hz`` is None if it was not measured, and ``timed`` says whether any timer was read.
    ``cta_ns`` is what its CTAs took, all together, without the copying of their records.

    ``first`` is the first launch that its process made of this variant."""

    process: Hashable
    first: bool
    duration_ns: int
    clock_hz: float | None
    timed: bool
    timer_step_ns: int
    ctas: int
    cta_ns: int
    waves: Waves | None
    records_missing: int
    record_cost_known: bool
    scopes: tuple[ScopeFigures, ...]


def comparable_figures(
    a: KernelRuns, b: KernelRuns
) -> tuple[tuple[LaunchFigures, ...], tuple[LaunchFigures, ...], tuple[int, ...] | None]:
    """The launches of both sides; and of which warps, None if of all that recorded. Where one side recorded some warps
    alone, it is those that both did."""
    warps_a, warps_b = a.timelines[0].warps, b.timelines[0].warps
    if (len(warps_a) == a.kernel.num_warps and len(warps_b) == b.kernel.num_warps) or warps_a == warps_b:
        return _figures(a.timelines), _figures(b.timelines), None
    both = tuple(sorted({*warps_a} & {*warps_b}))
    choice = Choice(warps=NumberSet.of(both))
    chosen_a, chosen_b = (_figures([one.chosen(choice) for one in runs.timelines]) for runs in (a, b))
    return chosen_a, chosen_b, both


def _figures(timelines: Sequence[Timeline]) -> tuple[LaunchFigures, ...]:
    return tuple(map(figures_of, timelines))


def figures_of(timeline: Timeline) -> LaunchFigures:
    launch, clock = timeline.launch, timeline.clock
    missing = timeline.records_lost + timeline.records_damaged
    without_partner = (timeline.open_starts + timeline.stray_ends).tolist()
    scopes = [_scope(statistics) for statistics in scope_statistics(timeline)]
    return LaunchFigures(
        process=process_of(launch),
        first=launch.index == 0,
        duration_ns=launch_duration_ns(timeline),
        clock_hz=clock.clock_hz if clock.source == _MEASURED else None,
        timed=clock.source != _NO_TIMER,
        timer_step_ns=clock.timer_step_ns,
        ctas=len(timeline.ctas),
        cta_ns=int(np.maximum(timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"], 0).sum()),
        waves=waves_of(timeline),
        records_missing=missing,
        record_cost_known=launch.kernel.record_cost is not None,
        scopes=tuple(
            replace(scope, whole=not missing and not alone and not timeline.ctas_damaged)
            for scope, alone in zip(scopes, without_partner, strict=True)
        ),
    )


def _scope(statistics: ScopeStatistics) -> ScopeFigures:
    return ScopeFigures(
        count=statistics.count,
        total_ns=statistics.total_ns,
        total_cycles=(statistics.mean_cycles or 0.0) * statistics.count,
        mean_ns=statistics.mean_ns,
        mean_cycles=statistics.mean_cycles,
        p50_ns=statistics.p50_ns,
        share=statistics.share,
        warps=tuple(statistics.warps.ids.tolist()),
        whole=True,
    )
