"""Time that nothing hides: waits in loops, by records or samples; barriers; the places that set a kernel's pace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
from kprof_inject.analysis.structure.values import varying_names
from kprof_inject.analysis.unjudged import Unjudged, missing_records, missing_warps, unpaired_records
from kprof_inject.capture.resources import limited_by
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import numbered, percent
from kprof_inject.timeline.phases import outermost_loops
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.loops import body_of, is_for_a_copy, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.ssa_values import operand_names

# If loads are issued early enough, a wait takes a few instructions. Some iterations are late in any kernel.
_MIN_LOOP_SHARE = 0.25


@rule(idle="warps")
def waiting(evidence: Evidence) -> Results:
    """Yield loops whose warps wait long by records; nothing is missing if samples show all waits."""
    for result in _by_records(evidence):
        if isinstance(result, Finding) or not has_sampled_waits(evidence):
            yield result


def _by_records(evidence: Evidence) -> Results:
    timeline, summary = evidence.timeline, evidence.summary
    recorded = lost_waits(timeline.table, evidence.kernel)
    if missing := _missing(evidence, bool(recorded)):
        yield missing
        return
    loops = outermost_loops(timeline.table)
    waits = [index for index in recorded if summary.scopes[index].count]
    for loop in np.unique(loops[waits]).tolist():
        if loop < 0:
            continue
        if _works(evidence, np.flatnonzero(loops == loop)):
            yield from _loop_finding(evidence, loop, [index for index in waits if loops[index] == loop])
        elif not any(map(is_of_dot, timeline.table.scopes)):
            what = f"the warps of {summary.scopes[loop].distinct_name} may only load data"
            yield missing_warps(timeline) or Unjudged(what, "add --at 'op(*dot*)'")
    if waits and (missing := unpaired_records(timeline)):
        yield missing


def _missing(evidence: Evidence, has_waits: bool) -> Unjudged | None:
    """Return the reason if lost waits may have been missed."""
    timeline = evidence.timeline
    if has_no_loop(timeline) or not (has_waits or may_lose_time(evidence.kernel)):
        return None
    if has_waits:
        return unrecorded_loops(timeline.table) or missing_records(timeline)
    has_others = any(is_wait(scope) and scope.kind != ScopeKind.SPIN for scope in timeline.table.scopes)
    what = "only waits for dots were recorded" if has_others else "no wait was recorded"
    return unrecorded_loops(timeline.table) or Unjudged(what, "add --at 'op(*wait*)'")


def _works(evidence: Evidence, scopes: NDArray[np.int64]) -> bool:
    """Return True if the warps of a loop with these scopes do the kernel's work: others may wait without loss."""
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

    # Only the time that all warps wait counts: if one waits longer than the others, their waits do not show why.
    waited_ns = np.sum([times_ns(index) for index in waits], axis=0)
    least = float((waited_ns / np.maximum(times_ns(loop), 1)).min())
    share = min(float(waited_ns.min()) / time_of_a_warp_ns(evidence), 1.0)
    if least < _MIN_LOOP_SHARE or share < MIN_SHARE:
        return
    wait = max((scopes[index] for index in waits), key=lambda scope: scope.warps.totals_ns.sum())
    where, others = wait.distinct_name, len(waits) - 1
    other_waits = f" and {others} other wait{'s' if others > 1 else ''}" if others else ""
    if len(warps) == evidence.kernel.num_warps > 1:
        who = "every warp waits"
    else:
        who = f"{numbered('warp', warps.tolist())} {'waits' if len(warps) == 1 else 'each wait'}"
    text = f"{who} in {where}{other_waits} for at least {percent(least)} of {inside.distinct_name}"
    advice = f"issue earlier (num_stages) what {where} waits for ({wait.source or 'source line unknown'}), move "
    advice += "fewer bytes, or give the warps other work meanwhile"
    yield found(evidence, share, text, advice, {"waiting_warps": len(warps), "least_of_loop": least}, scope=wait.index)


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

    Needs samples of the warps. In pipelined loops, only loads of addresses for copies count; ``pipelining`` judges the
    loads of other loops with dots.
    """
    stalls = evidence.stalls
    if stalls is None or evidence.busiest[1] >= _MAX_BUSY:
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
            advice = f"load {ahead}in larger blocks along the loop{_more_ctas(evidence)}"
            # On an H100, loading ahead won 30 to 40 % where unrolling by 4 and twice the warps won nothing.
            likely = gain / 4
        text = f"{evidence.name_around(loads[0])} {waits}, {percent(share)} of the warps' time: "
        text += f"{evidence.names_of(loads)}"
        yield found(evidence, gain, text, advice, figures={"waiting": share}, likely=likely, at=loads)


def _more_ctas(evidence: Evidence) -> str:
    """Return the advice for more CTAs that request data at once; empty if an SM is full of warps."""
    kernel = evidence.kernel
    if evidence.has_one_wave:
        return ", or by more CTAs with fewer iterations each"
    by = limited_by(kernel.target, kernel.num_warps, kernel.clean).split(" and ")
    return "" if "warps" in by or "CTAs" in by else ", or by more CTAs on an SM"


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
    # With dots, their results would need twice the registers of a thread.
    can_have_fewer = evidence.executed is not None and not evidence.has_dots
    fewer_warps = "fewer warps per CTA (num_warps) so that a reduction stays within a warp, " if can_have_fewer else ""
    text = f"warps wait {percent(share)} of their time at barriers of the CTA, most at {place or 'an unknown line'}"
    advice = f"synchronise less: {fewer_warps}fewer reductions and layout changes, or more CTAs on an SM"
    yield found(evidence, gain, text, advice, figures={"waiting": share}, likely=gain / 4)


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
