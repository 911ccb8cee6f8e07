"""Time that nothing hides: waits in loops, by records or samples; barriers; the places that set a kernel's pace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from kprof_inject.analysis.causal.slopes import PlaceSlope
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding, Results, found, no_memory_waits, rule
from kprof_inject.analysis.findings.loops import (
    has_no_loop,
    is_of_dot,
    is_wait,
    lost_waits,
    may_lose_time,
    time_of_a_warp_ns,
    unrecorded_loops,
)
from kprof_inject.analysis.findings.pipelining import MIN_COPIED_BYTES, has_sampled_waits
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.structure.dependence import varying_names
from kprof_inject.analysis.unjudged import Unjudged, missing_records, missing_warps, unpaired_records
from kprof_inject.capture.resources import limited_by
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.quantities import listed, numbered, percent
from kprof_inject.select.parts import COPIES, WAIT, part_of
from kprof_inject.timeline.phases import outermost_loops
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.loops import body_of, is_for_a_copy, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.ssa_values import operand_names

# If loads are issued early enough, a wait finds its data there and takes a few instructions. Some iterations are late
# in any kernel; a quarter of the loop's time is more than that.
_MIN_LOOP_SHARE = 0.25


@rule(idle="warps")
def waiting(evidence: Evidence) -> Results:
    """Yield loops whose warps wait long by records; where samples show all waits, nothing is missing.

    Only the time that all warps wait counts. If one warp waits longer than the others, their waits do not show why.
    """
    for result in _by_records(evidence):
        if isinstance(result, Finding) or not has_sampled_waits(evidence):
            yield result


def _by_records(evidence: Evidence) -> Results:
    timeline, summary = evidence.timeline, evidence.summary
    if missing := _missing(evidence):
        yield missing
        return
    loops = outermost_loops(timeline.table)
    waits = [index for index in lost_waits(timeline.table, evidence.kernel) if summary.scopes[index].count]
    for loop in np.unique(loops[waits]).tolist():
        if loop < 0:
            continue
        if _works(evidence, np.flatnonzero(loops == loop)):
            yield from _loop_finding(evidence, loop, [index for index in waits if loops[index] == loop])
        elif not any(map(is_of_dot, timeline.table.scopes)):
            name = summary.scopes[loop].distinct_name
            unknown = Unjudged(f"the warps of {name} may only load data", "add --at 'op(*dot*)'")
            yield missing_warps(timeline) or unknown
    if waits and (missing := unpaired_records(timeline)):
        yield missing


def _missing(evidence: Evidence) -> Unjudged | None:
    """Return the reason if lost waits may have been missed."""
    timeline, kernel = evidence.timeline, evidence.kernel
    recorded = lost_waits(timeline.table, kernel)
    if has_no_loop(timeline) or not (recorded or may_lose_time(kernel)):
        return None
    if recorded:
        return unrecorded_loops(timeline.table) or missing_records(timeline)
    has_waits = any(is_wait(scope) and scope.kind != ScopeKind.SPIN for scope in timeline.table.scopes)
    what = "only waits for dots were recorded" if has_waits else "no wait was recorded"
    return unrecorded_loops(timeline.table) or Unjudged(what, "add --at 'op(*wait*)'")


def _works(evidence: Evidence, scopes: NDArray[np.int64]) -> bool:
    """Return True if the warps of a loop with these ``scopes`` do the kernel's work.

    In a warp-specialized kernel, warps that only load may wait without loss, and the number of warps does not
    distinguish them.
    """
    recorded, table = evidence.summary.scopes, evidence.timeline.table.scopes
    all_run_it = len(recorded[scopes[0]].warps.ids) == evidence.kernel.num_warps
    return all_run_it or any(is_of_dot(table[i]) and recorded[i].count for i in scopes)


def _loop_finding(evidence: Evidence, loop: int, waits: list[int]) -> Results:
    scopes = evidence.summary.scopes
    inside = scopes[loop]
    warps = inside.warps.ids
    if not warps.size:
        return  # damaged records may have left some waits but nothing of the loop

    def times_ns(index: int) -> NDArray[np.int64]:
        groups = scopes[index].warps
        return np.asarray(np.where(groups.ids == warps[:, None], groups.totals_ns, 0).sum(axis=1))

    waited_ns = np.sum([times_ns(index) for index in waits], axis=0)
    least = float((waited_ns / np.maximum(times_ns(loop), 1)).min())
    share = min(float(waited_ns.min()) / time_of_a_warp_ns(evidence), 1.0)
    if least < _MIN_LOOP_SHARE or share < MIN_SHARE:
        return
    worst = max(waits, key=lambda index: scopes[index].warps.totals_ns.sum())
    wait = scopes[worst]
    where = wait.distinct_name
    others = len(waits) - 1
    other_waits = f" and {others} other wait{'s' if others > 1 else ''}" if others else ""
    if len(warps) == evidence.kernel.num_warps > 1:
        who = "every warp waits"
    else:
        who = f"{numbered('warp', warps.tolist())} {'waits' if len(warps) == 1 else 'each wait'}"
    yield found(
        evidence,
        share,
        text=f"{who} in {where}{other_waits} for at least {percent(least)} of {inside.distinct_name}",
        advice=f"see what {where} waits for ({wait.source or 'source line unknown'}): issue it "
        "earlier (num_stages), move fewer bytes, or give the warps other work in the meantime",
        figures={
            "loop": inside.distinct_name,
            "waiting_warps": len(warps),
            "least_of_loop": least,
            "waits": len(waits),
        },
        scope=worst,
    )


# Warps of healthy kernels wait as long for data or at barriers.
_MIN_SHARE = 0.25
# A launch whose busiest unit has more to do gains little from earlier loads.
_MAX_BUSY = 0.75
_MIN_GAIN = 0.1
# Without several, no iteration loads ahead for the next.
MIN_ITERATIONS = 4


@rule()
def exposed_loads(evidence: Evidence) -> Results:
    """Yield loops that load through registers what they use in the same iteration, and whose warps wait for it.

    Needs samples of the warps. Of pipelined loops, only loads of the addresses that copies need count; of other loops
    with dots, ``not_pipelined`` judges the loads.
    """
    stalls = evidence.stalls
    if evidence.executed is None or stalls is None or evidence.busiest[1] >= _MAX_BUSY:
        return
    for loop in evidence.loops:
        varying = varying_names(evidence.module, loop)
        loads = [one for one in body_of(loop) if one.name == "tt.load" and not varying.isdisjoint(operand_names(one))]
        share = stalls.share_of_waits(evidence.lines_of(loads))
        is_pipelined = pipeline_of(evidence.module, loop) is not None
        if share < _MIN_SHARE or (not is_pipelined and any(one.traits.is_dot for one in loop.walk())):
            continue
        if is_pipelined:
            loads = [one for one in loads if is_for_a_copy(loop, one)]
            share = stalls.share_of_waits(evidence.lines_of(loads))
        gain = min(share, evidence.max_gain())
        if share < _MIN_SHARE or gain < _MIN_GAIN or evidence.iterations_of(loop) < MIN_ITERATIONS:
            continue
        if is_pipelined:
            waits = "waits in each iteration for loads of the addresses that its copies need"
            stages = evidence.kernel.metadata.get("num_stages")
            more = f"from {stages} to {max(stages, 2) + 1}" if isinstance(stages, int) else "to 3 or more"
            advice = f"load the addresses earlier: raise num_stages {more}, so that Triton loads them an iteration "
            advice += "before the copies, or load those of several iterations at once"
            # On an H100, it won 19 % of a paged decode (2 to 3 stages).
            likely = gain / 2
        else:
            waits = "waits for its own loads in each iteration"
            ahead = "ahead (tl.range(..., num_stages=3)), " if may_load_ahead(evidence, loads) else ""
            advice = f"request the data earlier: {ahead}in larger blocks along the loop{_more_ctas(evidence)}"
            # On an H100, loading ahead won 30 to 40 % where unrolling by 4 and twice the warps won nothing.
            likely = gain / 4
        yield found(
            evidence,
            gain,
            text=f"{evidence.name_around(loads[0])} {waits}, {percent(share)} of the warps' time: "
            f"{evidence.names_of(loads)}",
            advice=advice,
            figures={"waiting": share},
            likely=likely,
            at=loads,
        )


def _more_ctas(evidence: Evidence) -> str:
    """Suggest a way to have more CTAs request data at once; empty if an SM is full of warps."""
    kernel = evidence.kernel
    if evidence.has_one_wave:
        return ", or by more CTAs with fewer iterations each"
    by = limited_by(kernel.target, kernel.num_warps, kernel.clean)
    is_full = any(what in ("warps", "CTAs") for what in by.split(" and "))
    return "" if is_full else ", or by more CTAs on an SM"


def may_load_ahead(evidence: Evidence, operations: Sequence[Operation]) -> bool:
    """Return False if no load among some operations can become an asynchronous copy, as all are too narrow."""
    lines = evidence.lines_of(one for one in operations if one.name == "tt.load")
    known = [one.access_bytes for one in evidence.requests if one.line in lines]
    return not known or max(known) >= MIN_COPIED_BYTES


@rule(no_memory_waits)
def barriers(evidence: Evidence) -> Results:
    """Yield barriers of the CTA at which its warps wait long; needs samples of the warps."""
    stalls = evidence.stalls
    if stalls is None or evidence.busiest[1] >= LIMITING:
        return
    share = stalls.share_of_barriers({line.line for line in stalls.lines})
    if share < _MIN_SHARE:
        return
    place = max(stalls.lines, key=lambda line: line.at_barriers).place
    gain = min(share, evidence.max_gain())
    fewer_warps = ""
    # With dots, their results would need twice the registers of a thread.
    if evidence.executed is not None and not evidence.has_dots:
        fewer_warps = "fewer warps per CTA (num_warps) so that a reduction stays within a warp, "
    yield found(
        evidence,
        gain,
        text=f"warps wait {percent(share)} of their time at barriers of the CTA, most at {place or 'an unknown line'}",
        advice=f"synchronise less: {fewer_warps}fewer reductions and layout changes, or more CTAs on an SM "
        "that run meanwhile",
        figures={"waiting": share},
        likely=gain / 4,
    )


@rule(idle="warps")
def lock(evidence: Evidence) -> Results:
    """Yield a lock that CTAs take in turn: a loop that repeats a compare-and-swap until it succeeds."""
    swaps = [one.operation for one in evidence.operations if one.operation.name == "tt.atomic_cas"]
    functions = {owner for one in swaps for owner in one.ancestors() if owner.name == FUNCTION}
    loops = {loop for function in functions for loop in polling_loops(evidence.module, function)}
    locks = [one for one in swaps if not loops.isdisjoint(one.ancestors())]
    spins = sum(scope.share or 0.0 for scope in evidence.summary.scopes if scope.kind == ScopeKind.SPIN)
    sampled = evidence.time_share_of(locks) if evidence.stalls else 0.0
    share = min(max(spins, sampled), 1.0)
    if not locks or share < MIN_SHARE:
        return
    yield found(
        evidence,
        # CTAs that do not wait for their turn also overlap.
        min(evidence.bound_of(share), 1 - evidence.necessary()),
        text=f"waits on a lock: warps wait {percent(share)} of their time until {evidence.words_of(locks[0])} "
        "succeeds; one CTA at a time holds the lock",
        advice="do without the lock: tl.atomic_add, or a reduction in two steps (each CTA stores its part, and a "
        "second kernel or the last CTA adds them up)",
        figures={"waiting": share},
        at=locks,
    )


_MAX_NAMES = 4  # named in one sentence


@rule()
def pace(evidence: Evidence) -> Results:
    """Yield the critical places; nothing if there are none, because then the kernel waits for what all CTAs share."""
    slopes = evidence.slopes
    if slopes is None:
        return
    critical = [place for place in slopes.ranked if place.is_critical]
    if not critical:
        return
    hidden = [place for place in slopes.places if place.is_hidden]
    first = critical[0]
    slope = first.response.slope.value if first.response else 0.0
    # Each place can gain its slope times its part of the time.
    gains = [
        min(place.response.slope.value if place.response else 0.0, 1.0) * (place.time_share or 0.0)
        for place in critical
    ]
    names = listed([place.name for place in critical], _MAX_NAMES)
    sets, there = ("sets", "there") if len(critical) == 1 else ("set", f"in {first.name}")
    slacks = [f"{slack:.0f} cycles in {place.name}" for place in hidden if (slack := place.spare_cycles)]
    spare = f"; slack: {listed(slacks, _MAX_NAMES)}" if slacks else ""
    finding = found(
        evidence,
        min(sum(gains), 1.0),
        text=f"{names} {sets} the pace: each cycle saved {there} makes the kernel {slope:.2f} cycles faster{spare}",
        advice=_advice(slopes.places, critical),
        figures={
            f"slope of {one.name}": round(one.response.slope.value, 3) for one in (*critical, *hidden) if one.response
        },
    )
    yield replace(finding, scope=first.scope.name, index=first.index)


def _advice(places: Sequence[PlaceSlope], critical: Sequence[PlaceSlope]) -> str:
    """Return remedies for the critical places.

    Code that issues copies should start earlier, not get shorter, and a wait is as long as what it waits for.
    """
    shortened = [one.name for one in critical if _part(one.scope) not in (COPIES, WAIT)]
    advice = [f"shorten {listed(shortened, _MAX_NAMES)}"] if shortened else []
    copies = [place for place in places if _part(place.scope) == COPIES]
    if any(place.is_critical for place in copies):
        advice.append("start the copies earlier, with more stages: the kernel waits for them")
    elif copies and all(place.is_hidden for place in copies):
        advice.append("the copies are hidden: more stages would gain nothing")
    return "; ".join(advice) or f"see what {critical[0].name} waits for"


def _part(scope: Scope) -> str:
    """Return the kind of part that a scope is, whatever name the user gave it; empty if it is none."""
    label = scope.label or scope.name
    return label.partition("@")[0] if scope.kind == ScopeKind.PART else part_of(label)
