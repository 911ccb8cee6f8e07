"""Phases of a loop that take too long: its prologue, its first iterations, its epilogue."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.findings.finding import MIN_SHARE, Figures, Finding
from kprof_inject.analysis.findings.loops import (
    loops_around,
    missing_in_loops,
    unrecorded_before,
    unrecorded_iterations,
    warps_share,
)
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import numbered, percent, ratio, short_time
from kprof_inject.timeline.phases import Phases
from kprof_inject.timeline.spread import IterationSeries
from kprof_inject.timeline.timeline import Timeline

# Every CTA computes addresses and waits for its first data, and at the end converts and stores its tile: in a matmul
# with only 16 iterations, these take 8 % and 7 % of its time (H200, the capture of the demo).
_MIN_SHARE = 0.20
# If all loops of a kernel run once or twice, the code around them may be its main work.
_MIN_ITERATIONS = 3
# If recorded scopes cover less of a phase, most of it is still unexplained.
_MAJORITY = 0.5


class _Phase(Struct, frozen=True, kw_only=True):
    """The time before or after a loop, of all warps that ran one, with the scope that takes most of it."""

    rule: str
    loop: ScopeSummary
    side: str
    time_ns: int
    longest: int | None
    longest_ns: int
    advice: str

    @property
    def where(self) -> str:
        return f"{self.side} {self.loop.distinct_name}"


def prologue(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Yield a long phase before the first loop."""
    phases = summary.phases
    if phases is None:
        yield from _unjudged(timeline)
        return
    if before := unrecorded_before(timeline.table, phases.first_loop):
        yield Unjudged(f"{before} was not recorded", "add --at loop")
        return
    phase = _Phase(
        rule="prologue",
        loop=summary.scopes[phases.first_loop],
        side="before",
        time_ns=phases.before_ns,
        longest=phases.before_scope,
        longest_ns=phases.before_scope_ns,
        advice="move work out of the kernel, or give each CTA more iterations or several tiles",
    )
    yield from _judged(timeline, summary, phases, phase)


def epilogue(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Yield a long phase after the last loop."""
    phases = summary.phases
    if phases is None:
        yield from _unjudged(timeline)
        return
    phase = _Phase(
        rule="epilogue",
        loop=summary.scopes[phases.last_loop],
        side="after",
        time_ns=phases.after_ns,
        longest=phases.after_scope,
        longest_ns=phases.after_scope_ns,
        advice="convert and store less, or overlap this with the next tile (a persistent kernel)",
    )
    yield from _judged(timeline, summary, phases, phase)


def _judged(timeline: Timeline, summary: LaunchSummary, phases: Phases, phase: _Phase) -> Iterator[Finding | Unjudged]:
    share = min(phase.time_ns / max(timeline.warp_time_ns, 1), 1.0)
    if share < _MIN_SHARE or not _has_iterations(summary):
        yield from _unjudged(timeline)
        return
    cta_ns, whole_cta_ns = phase.time_ns / phases.warps, phases.whole_ns / phases.warps
    times = f"{short_time(cta_ns)} of {short_time(whole_cta_ns)}"
    warps = len(timeline.ctas) * len(timeline.warps)
    if phases.warps < warps:
        times += f", in {percent(phases.warps / warps)} of the warps"
    cta_share = phase.time_ns / phases.whole_ns
    figures: Figures = {
        "mean_ns": cta_ns,
        "cta_ns": whole_cta_ns,
        "cta_share": cta_share,
        "warps_with_loops": phases.warps,
    }
    if phase.longest is not None:
        figures["longest_scope"] = summary.scopes[phase.longest].distinct_name
        figures["longest_scope_ns"] = phase.longest_ns / phases.warps
    yield Finding(
        rule=phase.rule,
        scope=phase.loop.scope,
        index=phase.loop.index,
        share=share,
        text=f"slow {phase.rule}: CTAs spend {percent(cta_share)} of their time {phase.where} ({times})",
        advice=f"{phase.advice}; {_look(summary, phase)}",
        figures=figures,
    )


def _unjudged(timeline: Timeline) -> Iterator[Unjudged]:
    unrecorded = Unjudged("the kernel's whole body was not recorded", "add --at func")
    return missing_in_loops(timeline, None if timeline.table.spans_body else unrecorded)


def _has_iterations(summary: LaunchSummary) -> bool:
    """Return False if the loops run too few iterations to distinguish phases."""
    iterations = [scope.iterations.median for scope in summary.scopes if scope.iterations is not None]
    iterations += [0 for scope in summary.scopes if scope.kind == ScopeKind.ITERATION and not scope.count]
    return not iterations or max(iterations) >= _MIN_ITERATIONS


def _look(summary: LaunchSummary, phase: _Phase) -> str:
    if phase.longest is None:
        return f"record what runs {phase.where} (markers, --at line(...), other loops)"
    scope, part = summary.scopes[phase.longest], phase.longest_ns / phase.time_ns
    where = scope.source or "its source line is unknown"
    look = f"look at {scope.distinct_name} ({where}), which takes {percent(part)} of it"
    return look if part >= _MAJORITY else f"{look}, and record what else runs {phase.where}"


# Filling a pipeline takes the time of several iterations. Iterations that differ by less than a factor of 2 are normal:
# their first loads miss a cache that later ones hit.
_NOTABLE = 2.0
# More slow iterations are not a pipeline fill: their CTAs share the SM with others, which finish earlier.
_MAX_FILL_ITERATIONS = 16
# There must be steady iterations between the first and the last to compare with.
_MIN_STEADY_ITERATIONS = 4


def first_iterations(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    """Yield loops whose first iterations are slow: the pipeline fill."""
    for scope, series, steady_ns in _steady_loops(timeline, summary):
        is_slow = (series.p50_ns >= _NOTABLE * steady_ns) & (series.numbers == np.arange(len(series.numbers)))
        slow = int(np.append(is_slow, False).argmin())
        slow_ns = series.p50_ns[:slow]
        share = warps_share(timeline, summary, scope, float(series.counts[:slow] @ (slow_ns - steady_ns)))
        if share < MIN_SHARE or slow > _MAX_FILL_ITERATIONS:
            continue
        mean_ns = float(slow_ns.mean())
        yield Finding(
            rule="first-iterations",
            scope=scope.scope,
            index=scope.index,
            share=share,
            text=f"pipeline fill: {numbered('iteration', range(slow))} of {scope.distinct_name} "
            f"{'takes' if slow == 1 else 'each take'} {ratio(mean_ns / steady_ns)} as long as a steady one "
            f"({short_time(mean_ns)} against {short_time(steady_ns)}); the excess is {percent(share)} of the CTA's "
            "time",
            advice="fill the pipeline less often, with more iterations per CTA or a persistent kernel with several "
            "tiles per CTA; see what the first loads wait for",
            figures=_figures(series, steady_ns) | {"slow_iterations": slow, "slow_ns": mean_ns},
        )
    yield from missing_in_loops(timeline, unrecorded_iterations(timeline.table))


def _steady_loops(timeline: Timeline, summary: LaunchSummary) -> Iterator[tuple[ScopeSummary, IterationSeries, float]]:
    """Yield innermost loops with the duration of a steady iteration in nanoseconds.

    Iterations of an outer loop (tiles, heads) may differ anyway, and fill no pipeline.
    """
    outer = loops_around(timeline.table)
    for index, scope in enumerate(summary.scopes):
        series = scope.iterations if index not in outer else None
        if series is not None and series.steady_ns and series.median >= _MIN_STEADY_ITERATIONS:
            yield scope, series, series.steady_ns


def _figures(series: IterationSeries, steady_ns: float) -> Figures:
    return {"steady_ns": steady_ns, "runs": series.runs, "iterations": series.median}
