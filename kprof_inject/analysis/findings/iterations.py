"""Loops whose first or last iterations take much longer than the steady ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kprof_inject.analysis.findings.finding import MIN_SHARE, Figures, Finding
from kprof_inject.analysis.findings.loops import (
    loops_around,
    missing_in_loops,
    unrecorded_iterations,
    warps_share,
)
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import numbered, percent, ratio, short_time
from kprof_inject.timeline.spread import IterationSeries
from kprof_inject.timeline.timeline import Timeline

# What fills a pipeline takes several iterations' time. Less than twice is how iterations differ: their first loads
# miss a cache that later ones hit.
_NOTABLE = 2.0
# More are no fill: they share the SM with others, which later are done.
_MOST_OF_A_FILL = 16
# Between first and last there must be a steady state to compare with.
_LEAST_ITERATIONS = 4


def first_iterations(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    for scope, series, steady_ns in _steady_loops(timeline, summary):
        is_slow = (series.p50_ns >= _NOTABLE * steady_ns) & (series.numbers == np.arange(len(series.numbers)))
        slow = int(np.append(is_slow, False).argmin())
        slow_ns = series.p50_ns[:slow]
        share = warps_share(timeline, summary, scope, float(series.counts[:slow] @ (slow_ns - steady_ns)))
        if share < MIN_SHARE or slow > _MOST_OF_A_FILL:
            continue
        mean_ns = float(slow_ns.mean())
        yield Finding(
            rule="first-iterations",
            scope=scope.scope,
            index=scope.index,
            share=share,
            text=f"pipeline fill: {numbered('iteration', range(slow))} of {scope.distinct_name} "
            f"{'takes' if slow == 1 else 'each take'} {ratio(mean_ns / steady_ns)} a steady one ({short_time(mean_ns)} "
            f"against {short_time(steady_ns)}); the excess is {percent(share)} of the CTA's time",
            advice="see what the first loads wait for; more iterations per CTA, or a persistent kernel with several "
            "tiles per CTA, fill the pipeline less often",
            figures=_figures(series, steady_ns) | {"slow_iterations": slow, "slow_ns": mean_ns},
        )
    yield from missing_in_loops(timeline, unrecorded_iterations(timeline.table))


def last_iteration(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    for scope, series, steady_ns in _steady_loops(timeline, summary):
        last_ns = series.last_ns
        if last_ns is None or last_ns < _NOTABLE * steady_ns:
            continue
        share = warps_share(timeline, summary, scope, series.runs * (last_ns - steady_ns))
        if share < MIN_SHARE:
            continue
        yield Finding(
            rule="last-iteration",
            scope=scope.scope,
            index=scope.index,
            share=share,
            text=f"the last iteration of {scope.distinct_name} takes {ratio(last_ns / steady_ns)} a steady one "
            f"({short_time(last_ns)} against {short_time(steady_ns)}); the excess is {percent(share)} of the CTA's "
            "time",
            advice="see what only the last iteration does: masks, a remainder, waits for outstanding work",
            figures=_figures(series, steady_ns) | {"last_ns": last_ns},
        )
    yield from missing_in_loops(timeline, unrecorded_iterations(timeline.table))


def _steady_loops(timeline: Timeline, summary: LaunchSummary) -> Iterator[tuple[ScopeSummary, IterationSeries, float]]:
    """Innermost ones: what a loop with others in it goes over (tiles, heads) may differ, and fills no pipeline."""
    outer = loops_around(timeline.table)
    for index, scope in enumerate(summary.scopes):
        series = scope.iterations if index not in outer else None
        if series is not None and series.steady_ns and series.median >= _LEAST_ITERATIONS:
            yield scope, series, series.steady_ns


def _figures(series: IterationSeries, steady_ns: float) -> Figures:
    return {"steady_ns": steady_ns, "runs": series.runs, "iterations": series.median}
