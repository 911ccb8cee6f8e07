"""Phases of a loop that take too long: its prologue, its first iterations, its epilogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Figures, Results, found, rule
from kprof_inject.analysis.findings.loops import (
    loops_around,
    missing_in_loops,
    unrecorded_before,
    unrecorded_iterations,
    warps_share,
)
from kprof_inject.analysis.summary import ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import numbered, percent, ratio, short_time

# In a matmul with only 16 iterations, the start and the end take 8 % and 7 % of its time (H200, the demo's capture).
_MIN_SHARE = 0.20
# If all loops of a kernel run once or twice, the code around them may be its main work.
_MIN_ITERATIONS = 3
# If recorded scopes cover less of a phase, most of it is still unexplained.
_MAJORITY = 0.5


PROLOGUE, EPILOGUE, FIRST_ITERATIONS = "prologue", "epilogue", "first-iterations"


@rule(idle="warps", names=(PROLOGUE, EPILOGUE, FIRST_ITERATIONS))
def loop_phases(evidence: Evidence) -> Results:
    """Yield long phases before and after all loops, and loops whose first iterations are slow."""
    yield from _ends(evidence)
    yield from _first_iterations(evidence)


def _ends(evidence: Evidence) -> Results:
    """Yield long phases before and after the loops of the warps that ran any."""
    phases, table = evidence.summary.phases, evidence.timeline.table
    if phases is None:
        yield from _unjudged(evidence, PROLOGUE)
        yield from _unjudged(evidence, EPILOGUE)
        return
    if before := unrecorded_before(table, phases.first_loop):
        yield Unjudged(f"{before} was not recorded", "add --at loop", PROLOGUE)
    else:
        advice = "move work out of the kernel, or give each CTA more iterations or several tiles"
        where = f"before {evidence.summary.scopes[phases.first_loop].distinct_name}"
        longest = phases.before_scope, phases.before_scope_ns
        yield from _phase(evidence, PROLOGUE, where, phases.first_loop, phases.before_ns, longest, advice)
    advice = "convert and store less, or overlap this with the next tile (a persistent kernel)"
    where = f"after {evidence.summary.scopes[phases.last_loop].distinct_name}"
    longest = phases.after_scope, phases.after_scope_ns
    yield from _phase(evidence, EPILOGUE, where, phases.last_loop, phases.after_ns, longest, advice)


def _phase(
    evidence: Evidence, name: str, where: str, loop: int, time_ns: int, longest: tuple[int | None, int], advice: str
) -> Results:
    """Yield a phase ``where`` it is named, if it is long; ``longest`` is the scope that takes most of it."""
    timeline, scopes, phases = evidence.timeline, evidence.summary.scopes, evidence.summary.phases
    share = min(time_ns / max(timeline.warp_time_ns, 1), 1.0)
    if phases is None or share < _MIN_SHARE or not _has_iterations(scopes):
        yield from _unjudged(evidence, name)
        return
    index, longest_ns = longest
    if index is not None and scopes[index].kind == ScopeKind.SPIN and longest_ns >= _MAJORITY * time_ns:
        return  # other work would not make what it waits for come earlier
    cta_ns, whole_cta_ns = time_ns / phases.warps, phases.whole_ns / phases.warps
    times = f"{short_time(cta_ns)} of {short_time(whole_cta_ns)}"
    warps = len(timeline.ctas) * len(timeline.warps)
    if phases.warps < warps:
        times += f", in {percent(phases.warps / warps)} of the warps"
    cta_share = time_ns / phases.whole_ns
    figures: Figures = {"mean_ns": cta_ns, "cta_ns": whole_cta_ns, "cta_share": cta_share}
    if index is None:
        look = f"record what runs {where} (markers, --at line(...), other loops)"
    else:
        scope, part = scopes[index], longest_ns / time_ns
        figures |= {"longest_scope": scope.distinct_name, "longest_scope_ns": longest_ns / phases.warps}
        look = f"look at {scope.distinct_name} ({scope.source or 'its source line is unknown'}), which takes "
        look += f"{percent(part)} of it"
        if part < _MAJORITY:
            look += f", and record what else runs {where}"
    text = f"slow {name}: CTAs spend {percent(cta_share)} of their time {where} ({times})"
    yield found(evidence, share, text, f"{advice}; {look}", figures, scope=loop, name=name)


def _unjudged(evidence: Evidence, name: str) -> Iterator[Unjudged]:
    unrecorded = Unjudged("the kernel's whole body was not recorded", "add --at func")
    return missing_in_loops(evidence.timeline, name, None if evidence.timeline.table.spans_body else unrecorded)


def _has_iterations(scopes: Sequence[ScopeSummary]) -> bool:
    """Return False if the loops run too few iterations to distinguish phases."""
    iterations = [scope.iterations.median for scope in scopes if scope.iterations is not None]
    iterations += [0 for scope in scopes if scope.kind == ScopeKind.ITERATION and not scope.count]
    return not iterations or max(iterations) >= _MIN_ITERATIONS


# Iterations that differ by less are normal: their first loads miss a cache that later ones hit.
_NOTABLE = 2.0
# More slow iterations are not a pipeline fill: their CTAs share the SM with others, which finish earlier.
_MAX_FILL_ITERATIONS = 16
# There must be steady iterations between the first and the last to compare with.
_MIN_STEADY_ITERATIONS = 4


def _first_iterations(evidence: Evidence) -> Results:
    """Yield innermost loops whose first iterations fill a pipeline slowly: those of outer loops may differ anyway."""
    outer = loops_around(evidence.timeline.table)
    for index, scope in enumerate(evidence.summary.scopes):
        series = scope.iterations if index not in outer else None
        if series is None or not series.steady_ns or series.median < _MIN_STEADY_ITERATIONS:
            continue
        steady_ns = series.steady_ns
        is_slow = (series.p50_ns >= _NOTABLE * steady_ns) & (series.numbers == np.arange(len(series.numbers)))
        slow = int(np.append(is_slow, False).argmin())
        slow_ns = series.p50_ns[:slow]
        share = warps_share(evidence, scope, float(series.counts[:slow] @ (slow_ns - steady_ns)))
        if share < MIN_SHARE or slow > _MAX_FILL_ITERATIONS:
            continue
        mean_ns = float(slow_ns.mean())
        text = f"pipeline fill: {numbered('iteration', range(slow))} of {scope.distinct_name} "
        text += f"{'takes' if slow == 1 else 'each take'} {ratio(mean_ns / steady_ns)} as long as a steady one "
        text += f"({short_time(mean_ns)} against {short_time(steady_ns)}); the excess is {percent(share)} of the CTA's "
        text += "time"
        advice = "fill the pipeline less often: more iterations per CTA, or several tiles (a persistent kernel); see "
        advice += "what the first loads wait for"
        figures: Figures = {"steady_ns": steady_ns, "slow_ns": mean_ns}
        yield found(evidence, share, text, advice, figures, scope=index, name=FIRST_ITERATIONS)
    missing = unrecorded_iterations(evidence.timeline.table)
    yield from missing_in_loops(evidence.timeline, FIRST_ITERATIONS, missing)
