"""CTAs that take long to come to their first loop, or after their last."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kprof_inject.analysis.findings.finding import Figures, Finding
from kprof_inject.analysis.findings.loops import missing_in_loops, unrecorded_before
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.quantities import percent, short_time
from kprof_inject.timeline.phases import Phases
from kprof_inject.timeline.timeline import Timeline

# Every CTA reckons addresses and waits for its first data, and in the end converts and stores its tile: of a matmul
# with 16 iterations, which is short, that is 8 % and 7 % of its time (H200, the capture of the demo). A fifth is more
# than that needs.
_LEAST_SHARE = 0.20
# What stands around the main loop is what a CTA does beside its work. Of a kernel whose loops all go round once or
# twice it may be the work itself, and nothing tells which.
_LEAST_ITERATIONS = 3
# Of a phase that is recorded by less than this, most is still to be found.
_MOST = 0.5


@dataclass(frozen=True, slots=True)
class _Phase:
    """The time before or after a loop, of all warps that ran one, and the scope that takes most of it."""

    rule: str
    loop: int
    where: str
    time_ns: int
    share_of_cta: float
    scope: int | None
    scope_ns: int


def prologue(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    phases = summary.phases
    if phases is None:
        yield from _unjudged(timeline)
        return
    if before := unrecorded_before(timeline.table, phases.first_loop):
        yield Unjudged(f"{before} was not recorded", "add --at loop")
        return
    loop = summary.scopes[phases.first_loop].distinct_name
    phase = _Phase(
        "prologue",
        phases.first_loop,
        f"before {loop}",
        phases.before_ns,
        phases.before_share,
        phases.before_scope,
        phases.before_scope_ns,
    )
    advice = "move work out of the kernel, or give each CTA more iterations or several tiles"
    yield from _judged(timeline, summary, phases, phase, f"before {loop} begins", advice)


def epilogue(timeline: Timeline, summary: LaunchSummary) -> Iterator[Finding | Unjudged]:
    phases = summary.phases
    if phases is None:
        yield from _unjudged(timeline)
        return
    loop = summary.scopes[phases.last_loop].distinct_name
    phase = _Phase(
        "epilogue",
        phases.last_loop,
        f"after {loop}",
        phases.after_ns,
        phases.after_share,
        phases.after_scope,
        phases.after_scope_ns,
    )
    advice = "see how the result is converted and stored, or overlap this with the next tile"
    yield from _judged(timeline, summary, phases, phase, f"after {loop}", advice)


def _judged(
    timeline: Timeline, summary: LaunchSummary, phases: Phases, phase: _Phase, passes: str, advice: str
) -> Iterator[Finding | Unjudged]:
    share = _share(timeline, summary, phase)
    if share < _LEAST_SHARE:
        yield from _unjudged(timeline)
        return
    yield Finding(
        rule=phase.rule,
        scope=summary.scopes[phase.loop].scope,
        index=phase.loop,
        share=share,
        text=f"slow {phase.rule}: {percent(phase.share_of_cta)} of a CTA's time passes {passes} "
        f"({_times(timeline, phases, phase)})",
        advice=f"{_look(summary, phase)}; {advice}",
        figures=_figures(summary, phases, phase),
    )


def _unjudged(timeline: Timeline) -> Iterator[Unjudged]:
    return missing_in_loops(timeline, _unrecorded_body(timeline.table))


def _unrecorded_body(table: ScopeTable) -> Unjudged | None:
    return None if table.spans_body else Unjudged("the kernel's whole body was not recorded", "add --at func")


def _share(timeline: Timeline, summary: LaunchSummary, phase: _Phase) -> float:
    """Of the launch's time; 0 if the loops are none that a phase could be told from."""
    iterations = [scope.iterations.median for scope in summary.scopes if scope.iterations is not None]
    iterations += [0 for scope in summary.scopes if scope.kind == ScopeKind.ITERATION and not scope.count]
    if iterations and max(iterations) < _LEAST_ITERATIONS:
        return 0.0
    return min(phase.time_ns / max(timeline.warp_time_ns, 1), 1.0)


def _times(timeline: Timeline, phases: Phases, phase: _Phase) -> str:
    times = f"{short_time(phase.time_ns / phases.warps)} of {short_time(phases.whole_ns / phases.warps)}"
    warps = len(timeline.ctas) * len(timeline.warps)
    return times if phases.warps == warps else f"{times}, in {percent(phases.warps / warps)} of the warps"


def _look(summary: LaunchSummary, phase: _Phase) -> str:
    if phase.scope is None:
        return f"record what runs {phase.where} (markers, --at line(...), other loops)"
    scope, part = summary.scopes[phase.scope], phase.scope_ns / phase.time_ns
    where = scope.source or "its source line is unknown"
    look = f"look at {scope.distinct_name} ({where}), which takes {percent(part)} of it"
    return look if part >= _MOST else f"{look}, and record what else runs {phase.where}"


def _figures(summary: LaunchSummary, phases: Phases, phase: _Phase) -> Figures:
    figures: Figures = {
        "mean_ns": phase.time_ns / phases.warps,
        "cta_ns": phases.whole_ns / phases.warps,
        "cta_share": phase.share_of_cta,
        "warps_with_loops": phases.warps,
    }
    if phase.scope is None:
        return figures
    return figures | {
        "longest_scope": summary.scopes[phase.scope].distinct_name,
        "longest_scope_ns": phase.scope_ns / phases.warps,
    }
