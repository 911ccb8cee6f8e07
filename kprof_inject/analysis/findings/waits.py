"""Waits that nothing hides: for loads in loops, at barriers, and on locks."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.analysis.findings.evidence import Evidence, is_tensor
from kprof_inject.analysis.findings.finding import MIN_SHARE, Results, found, no_memory_waits, rule
from kprof_inject.analysis.findings.pipelining import MIN_COPIED_BYTES
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.structure.values import varying_names
from kprof_inject.capture.resources import limited_by
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.loops import body_of, is_for_a_copy, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.ssa_values import operand_names, result_names

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


@rule(idle="warps")
def work_after_wait(evidence: Evidence) -> Results:
    """Yield loads and reductions after a wait for another CTA that do not depend on what it awaits."""
    function = entry_function(evidence.module) if evidence.executed else None
    spins = sum(scope.share or 0.0 for scope in evidence.summary.scopes if scope.kind == ScopeKind.SPIN)
    for loop in polling_loops(evidence.module, function) if function is not None else ():
        late = _independent_after(loop)
        share = max(spins, evidence.time_share_of([loop]) if evidence.stalls else 0.0)
        if share < MIN_SHARE or not late:
            continue
        text = f"warps wait {percent(share)} of their time for memory to change, and only then do work that does not "
        text += f"depend on it: {evidence.names_of(late)}"
        advice = "load and compute before the wait what does not depend on the awaited value: CTAs that wait for each "
        advice += "other then do this at the same time"
        gain = min(evidence.bound_of(min(share, 1.0)), 1 - evidence.necessary())
        yield found(evidence, gain, text, advice, {"waiting": share}, likely=gain / 2, at=late)


def _independent_after(loop: Operation) -> list[Operation]:
    """Return loads of tensors, scans and reductions that follow a loop in its block and use none of its results."""
    block = loop.block.operations if loop.block else ()
    awaited, found = set(result_names(loop)), list[Operation]()
    for one in block:
        if one.start <= loop.start:
            continue
        if any(name.partition("#")[0] in awaited for inner in one.walk() for name in operand_names(inner)):
            awaited.update(result_names(one))
        elif (one.traits.reads_global or one.traits.combines_elements) and is_tensor(one):
            found.append(one)
    return found
