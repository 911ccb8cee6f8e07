"""Loops and waits among a kernel's scopes, metrics of loops, and their phases that take too long."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.async_work.flights import copied_ahead
from kprof_inject.analysis.findings.evidence import Evidence, accesses_in
from kprof_inject.analysis.findings.finding import MIN_SHARE, Results, found, rule
from kprof_inject.analysis.findings.in_flight import iterations_below_stages, occupancy_remedy
from kprof_inject.analysis.unjudged import Unjudged, missing_records, unpaired_records
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.capture.source_text import ttgir_of
from kprof_inject.quantities import numbered, percent, ratio, short_time
from kprof_inject.timeline.phases import LOOPS
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir import dialect
from kprof_inject.ttgir.dialect import traits_of
from kprof_inject.ttgir.loops import pipeline_of

_NUMBERED = re.compile(r"(?:loop|iter)\[(\d+(?:\.\d+)*)\]")
# Scopes around operations or lines, which the user may have named.
_NAMED_KINDS = (ScopeKind.OPERATION, ScopeKind.MARKER, ScopeKind.LINES)
_NAMES_OF_WAITS = frozenset({"wait", "waits", "waiting", "barrier", "barriers"})
_WORD = re.compile(r"[a-z]+")
_OPERATION_NAME = re.compile(r"[a-z]+\.[a-z]")
_MIN_PHASE = 0.20  # the start and end of a matmul with 16 iterations take 8 % and 7 % (H200, the demo's capture)
_MIN_ITERATIONS = 3  # if all loops of a kernel run once or twice, the code around them may be its main work
_MAJORITY = 0.5  # if recorded scopes cover less of a phase, most of it is still unexplained

PROLOGUE, EPILOGUE, FIRST_ITERATIONS = "prologue", "epilogue", "first-iterations"
_NOTABLE = 2.0  # iterations that differ by less are normal: their first loads miss a cache that later ones hit
_MAX_FILL_ITERATIONS = 16  # more are no pipeline fill: their CTAs share the SM with others, which finish earlier
_MIN_STEADY_ITERATIONS = 4  # there must be steady iterations between the first and the last to compare with


def _missing_in_loops(timeline: Timeline, name: str, unrecorded: Unjudged | None) -> Iterator[Unjudged]:
    """Yield why findings of this name on loops may be missing, such as ``unrecorded``: nothing in a kernel without."""
    without_loops = None
    if not any(scope.kind in LOOPS for scope in timeline.table.scopes):
        text = ttgir_of(timeline.launch.kernel)
        if text and not any(operation in text for operation in dialect.LOOPS):
            return
        without_loops = Unjudged("no loop was recorded", "add --at loop --at iter")
    missing = without_loops or unrecorded or missing_records(timeline) or unpaired_records(timeline)
    if missing:
        yield replace(missing, finding=name)


def _unrecorded_before(table: ScopeTable, index: int) -> str | None:
    """Return a loop, such as ``loop[0]``, that precedes the one with this index and was not recorded."""
    recorded = {_path(scope) for scope in table.scopes}
    path = _path(table.scopes[index])
    for depth, number in enumerate(path):
        for earlier in range(number):
            if (*path[:depth], earlier) not in recorded:
                return f"loop[{'.'.join(map(str, (*path[:depth], earlier)))}]"
    return None


def _path(scope: Scope) -> tuple[int, ...]:
    numbers = _NUMBERED.fullmatch(scope.label or scope.name)
    return tuple(map(int, numbers[1].split("."))) if numbers else ()


def is_wait(scope: Scope) -> bool:
    """Return True if a scope is a wait, by its operation or by the name that the user gave it."""
    if scope.kind not in _NAMED_KINDS:
        return scope.kind == ScopeKind.SPIN
    if scope.kind == ScopeKind.OPERATION and traits_of(scope.label or scope.name).is_wait:
        return True
    words = _WORD.findall(scope.name.lower())
    return not _OPERATION_NAME.match(scope.name) and not _NAMES_OF_WAITS.isdisjoint(words)


def time_of_a_warp_ns(evidence: Evidence) -> float:
    """Return the time of all warps with the same number, from begin to end of their CTAs, summed; at least 1."""
    return max(evidence.summary.warp_time_ns / max(len(evidence.timeline.warps), 1), 1.0)


class LoopFigures(Struct, frozen=True):
    """Metrics of one loop."""

    parts: Mapping[str, float]
    """Lower bound of the part of the loop's time that each unit needs, from 0 to 1; empty if unknown."""
    ahead_bytes_per_sm: int | None
    """Bytes in flight by copies issued ahead. 0 in a loop that only loads into registers; None if unknown: copies by
    TMA, or by another partition."""
    wait_ns: float | None  # mean wait of a warp in an iteration; None if no wait was recorded

    @property
    def unit(self) -> str | None:
        """The busiest unit."""
        return max(self.parts, key=lambda unit: self.parts[unit]) if self.parts else None

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
        return {**json_values(self), "unit": self.unit}


def loop_figures(evidence: Evidence, index: int) -> LoopFigures:
    """Return the metrics of a loop, by its index in the launch's scope table."""
    roof = next((roof for roof in evidence.speed_of_light.roofs if roof.index == index), None)
    return LoopFigures(roof.parts if roof else {}, _ahead(evidence, index), _wait_ns(evidence, index))


def _ahead(evidence: Evidence, index: int) -> int | None:
    ran = evidence.executed
    loop = ran.scope_map.loop_of(index) if ran else None
    if ran is None or loop is None:
        return None
    if (pipeline := pipeline_of(ran.module, loop)) is not None:
        return copied_ahead(ran, evidence.kernel, pipeline).bytes_per_sm()
    forms = [access.form for _, access in accesses_in(ran.of_loop(loop))]
    only_loads = any(form.reads for form in forms) and all(form.by_registers for form in forms)
    return 0 if only_loads else None


def _wait_ns(evidence: Evidence, loop: int) -> float | None:
    table, scopes = evidence.timeline.table, evidence.summary.scopes
    inside = [index for index in range(len(scopes)) if loop in table.around(index)]
    waits = [index for index in inside if is_wait(table.scopes[index]) and scopes[index].count]
    if not waits:
        return None
    iterations = [
        index
        for index in (loop, *inside)
        if table.scopes[index].kind == ScopeKind.ITERATION and loop in (index, table.scopes[index].parent)
    ]
    # Without records of iterations, the wait that is reached most often counts them.
    count = max(scopes[index].count for index in iterations or waits)
    return sum(scopes[index].total_ns or 0 for index in waits) / count if count else None


@rule(idle="warps", names=(PROLOGUE, EPILOGUE, FIRST_ITERATIONS))
def loop_phases(evidence: Evidence) -> Results:
    """Yield long phases before and after all loops, and loops whose first iterations are slow."""
    yield from _ends(evidence)
    # The first iterations of outer loops may differ anyway.
    table = evidence.timeline.table
    inner = [index for index, scope in enumerate(table.scopes) if scope.kind in LOOPS]
    outer = {around for index in inner for around in table.around(index)}
    for index, scope in enumerate(evidence.summary.scopes):
        series = scope.iterations if index not in outer else None
        if series is None or not series.steady_ns or series.median < _MIN_STEADY_ITERATIONS:
            continue
        steady_ns = series.steady_ns
        is_slow = (series.p50_ns >= _NOTABLE * steady_ns) & (series.numbers == np.arange(len(series.numbers)))
        slow = int(np.append(is_slow, False).argmin())
        slow_ns = series.p50_ns[:slow]
        excess_ns = float(series.counts[:slow] @ (slow_ns - steady_ns))
        share = min(excess_ns / (max(len(scope.warps.ids), 1) * time_of_a_warp_ns(evidence)), 1.0)
        if share < MIN_SHARE or slow > _MAX_FILL_ITERATIONS:
            continue
        mean_ns = float(slow_ns.mean())
        text = f"pipeline fill: {numbered('iteration', range(slow))} of {scope.distinct_name} "
        text += f"{'takes' if slow == 1 else 'each take'} {ratio(mean_ns / steady_ns)} as long as a steady one "
        text += f"({short_time(mean_ns)} against {short_time(steady_ns)}); the excess is {percent(share)} of the CTA's "
        text += "time"
        advice = "fill the pipeline less often: more iterations per CTA, or several tiles (a persistent kernel); see "
        advice += "what the first loads wait for"
        figures = {"steady_ns": steady_ns, "slow_ns": mean_ns}
        yield found(evidence, share, text, advice, figures, scope=index, name=FIRST_ITERATIONS)
    is_recorded = any(scope.kind == ScopeKind.ITERATION for scope in table.scopes)
    missing = None if is_recorded else Unjudged("no iteration was recorded", "add --at iter")
    yield from _missing_in_loops(evidence.timeline, FIRST_ITERATIONS, missing)


def _ends(evidence: Evidence) -> Results:
    phases, table = evidence.summary.phases, evidence.timeline.table
    if phases is None:
        yield from _unjudged(evidence, PROLOGUE)
        yield from _unjudged(evidence, EPILOGUE)
        return
    # A short dot loop's prologue is long as it loads most of the data, for which few CTAs have room.
    is_short = evidence.executed is not None and iterations_below_stages(evidence) is not None
    if before := _unrecorded_before(table, phases.first_loop):
        yield Unjudged(f"{before} was not recorded", "add --at loop", PROLOGUE)
    elif not (is_short and occupancy_remedy(evidence)[0] == "shared memory"):
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
    # With too few iterations, phases cannot be distinguished.
    iterations = [scope.iterations.median for scope in scopes if scope.iterations is not None]
    iterations += [0 for scope in scopes if scope.kind == ScopeKind.ITERATION and not scope.count]
    if phases is None or share < _MIN_PHASE or max(iterations, default=_MIN_ITERATIONS) < _MIN_ITERATIONS:
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
    figures: dict[str, float | str] = {"mean_ns": cta_ns, "cta_ns": whole_cta_ns, "cta_share": cta_share}
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
    return _missing_in_loops(evidence.timeline, name, None if evidence.timeline.table.spans_body else unrecorded)
