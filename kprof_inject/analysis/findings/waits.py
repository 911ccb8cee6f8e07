"""Waits that nothing hides: for loads in loops, at barriers, on locks, for other CTAs, and in atomic operations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, accesses_of_a_byte, is_tensor
from kprof_inject.analysis.findings.finding import MIN_SHARE, Results, Waste, found, no_memory_waits, row, rule
from kprof_inject.analysis.findings.in_flight import MIN_ITERATIONS, may_load_ahead
from kprof_inject.analysis.interpreter.axis_arrays import TooLarge
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.interpreter.footprints import max_repeats
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.limits.rates import L2, SHARED
from kprof_inject.analysis.structure.values import Uses, varying_names
from kprof_inject.capture import counters
from kprof_inject.capture.resources import limited_by
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.quantities import percent
from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.loops import body_of, is_for_a_copy, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.ssa_values import operand_names, result_names

_MIN_SHARE = 0.25  # warps of healthy kernels wait as long for data or at barriers
_MAX_BUSY = 0.75  # a launch whose busiest unit has more to do gains little from earlier loads
_MIN_GAIN = 0.1
_MIN_ELEMENTS = 32  # an operation of fewer elements is a lock or a counter of a CTA
# Part of the warps' time in atomic operations, or of the requests to global memory, from which they may limit a launch.
_MIN_TIME, _MIN_REQUESTS = 0.1, 0.1
# Those that wait for no other one overlap other accesses: on an H100, 65 % of the time won 30 %, and 13 % won 1.6 %.
_MIN_TIME_APART = 0.25
# Reasons of warps that wait because accesses before theirs are not done: atomic operations that no warp awaits fill
# these queues.
_QUEUES = "lg_throttle", "drain"
# Reason of warps that wait for a fence, which orders accesses: an atomic operation has two, unless it is relaxed.
_FENCE, _MIN_FENCES = "membar", 0.1
_ORDERED = re.compile(r"\b(?:acq_rel|acquire|release)\b")
_MANY_UPDATES = 32  # CTAs that update an address less often seldom do so at the same time
_MIN_UNEXPLAINED = 0.5  # of the time, by any unit: atomic operations may limit such a launch without counters


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
            likely = gain / 2  # on an H100, it won 19 % of a paged decode (2 to 3 stages)
        else:
            waits = "waits for its own loads in each iteration"
            ahead = "ahead (tl.range(..., num_stages=3)), " if may_load_ahead(evidence, loads) else ""
            kernel, more = evidence.kernel, ", or by more CTAs with fewer iterations each"
            if not evidence.has_one_wave:
                by = limited_by(kernel.target, kernel.num_warps, kernel.clean).split(" and ")
                more = "" if "warps" in by or "CTAs" in by else ", or by more CTAs on an SM"
            advice = f"load {ahead}in larger blocks along the loop{more}"
            # On an H100, loading ahead won 30 to 40 % where unrolling by 4 and twice the warps won nothing.
            likely = gain / 4
        text = f"{evidence.name_around(loads[0])} {waits}, {percent(share)} of the warps' time: "
        text += f"{evidence.names_of(loads)}"
        yield found(evidence, gain, text, advice, figures={"waiting": share}, likely=likely, at=loads)


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
    gain = min(evidence.bound_of(share), 1 - evidence.necessary())  # CTAs that do not wait for their turn also overlap
    text = f"waits on a lock: warps wait {percent(share)} of their time until {evidence.words_of(locks[0])} succeeds; "
    text += "one CTA at a time holds the lock"
    advice = "do without the lock: tl.atomic_add, or a reduction in two steps (each CTA stores its part, and a second "
    advice += "kernel or the last CTA adds them up)"
    yield found(evidence, gain, text, advice, {"waiting": share}, at=locks)


@rule(idle="warps")
def work_after_wait(evidence: Evidence) -> Results:
    """Yield loads and reductions that follow a wait for another CTA without using its result."""
    function = entry_function(evidence.module) if evidence.executed else None
    spins = sum(scope.share or 0.0 for scope in evidence.summary.scopes if scope.kind == ScopeKind.SPIN)
    for loop in polling_loops(evidence.module, function) if function is not None else ():
        late = _independent_after(evidence, loop)
        share = max(spins, evidence.time_share_of([loop]) if evidence.stalls else 0.0)
        if share < MIN_SHARE or not late:
            continue
        text = f"warps poll memory for {percent(share)} of their time, and only then start work that does not use the "
        text += f"polled value: {evidence.names_of(late)}"
        advice = "start it before the wait, so that it overlaps other CTAs' work"
        gain = min(evidence.bound_of(min(share, 1.0)), 1 - evidence.necessary())
        yield found(evidence, gain, text, advice, {"waiting": share}, likely=gain / 2, at=late)


def _independent_after(evidence: Evidence, loop: Operation) -> list[Operation]:
    """Return tensor loads, scans and reductions after a loop in its block that do not depend on its results.

    What the kernel writes itself may be what the awaited CTA publishes.
    """
    block = loop.block.operations if loop.block else ()
    awaited, found = set(result_names(loop)), list[Operation]()
    writes = (one for one in evidence.module.walk() if one.traits.writes_global or one.traits.is_atomic)
    written = {_base_of(evidence.uses, one) for one in writes}
    for one in block:
        if one.start <= loop.start:
            continue
        taken = {name.partition("#")[0] for inner in one.walk() for name in operand_names(inner)}
        if not awaited.isdisjoint(taken) or (one.traits.reads_global and _base_of(evidence.uses, one) in written):
            awaited.update(result_names(one))
        elif (one.traits.reads_global or one.traits.combines_elements) and is_tensor(one):
            found.append(one)
    return found


def _base_of(uses: Uses, access: Operation) -> str:
    base = access
    while (made := uses.maker(base, 0)) is not None:
        base = made
    return next(iter(operand_names(base)), "")


@row
def atomics(evidence: Evidence) -> Iterator[Waste]:
    """Yield atomic operations on each element of a tensor, which could be combined in the CTA first."""
    for one, access in accesses_in(evidence.operations):
        if not one.operation.traits.is_atomic:
            continue
        elements = access.whole_bytes // max(access.element_bytes, 1)
        time_share = evidence.time_share_of([one.operation])
        repeats, updates, removed = None, accesses_of_a_byte(access, one.times), {L2: 1.0, SHARED: 1.0}
        if access.address is not None:
            with suppress(TooLarge):
                repeats = max_repeats(access.address, access.shape)
        # No element waits for another of its CTA, and few for other CTAs' elements.
        is_apart = repeats == 1 and updates < _MANY_UPDATES
        gain = evidence.max_gain(removed)
        is_busy = time_share >= _MIN_TIME or _request_share(evidence) >= _MIN_REQUESTS
        if is_apart and (stalls := evidence.stalls) is not None:
            bound = max(evidence.max_gain_of_units(removed), evidence.bound_of(time_share))
            queues = sum(stalls.reasons.get(reason, 0) for reason in _QUEUES) / stalls.samples
            gain, is_busy = min(gain, bound + queues), time_share + queues >= _MIN_TIME_APART
        if evidence.measured is None:
            is_busy = gain >= _MIN_UNEXPLAINED
        if elements < _MIN_ELEMENTS or not is_busy:
            continue
        shared, combine = _how_to_combine(repeats, updates)
        fences = evidence.stalls.reasons.get(_FENCE, 0) / evidence.stalls.samples if evidence.stalls else 0.0
        if fences >= _MIN_FENCES and _ORDERED.search(one.operation.tail):
            shared += f", each ordered with all other accesses (warps wait {percent(fences)} of their time for that)"
            combine = f"pass sem='relaxed', if only later launches read the result; else {combine}"
        text = f"{evidence.words_of(one.operation)} updates {elements} elements at a time{shared}; warps spend "
        text += f"{percent(time_share)} of their time in it"
        figures = {"elements": elements, "time_share": time_share, "repeats": repeats or 0}
        certainty = 1.0 if time_share >= _MIN_TIME and not is_apart else 0.5
        yield Waste(text, combine, removed, (one.operation,), certainty=certainty, figures=figures, gain=gain)


def _request_share(evidence: Evidence) -> float:
    if evidence.measured is None:
        return 0.0
    atomic = sum(map(evidence.measured.metric, (counters.ATOMIC_REQUESTS, counters.REDUCTION_REQUESTS)))
    others = sum(map(evidence.measured.metric, (counters.LOAD_REQUESTS, counters.STORE_REQUESTS)))
    return atomic / (atomic + others) if atomic else 0.0


def _how_to_combine(repeats: int | None, updates: float) -> tuple[str, str]:
    if repeats is None:
        advice = "combine elements with one address in the CTA first, if there are many (the addresses are unknown "
        return "", f"{advice}here): a reduction (tl.sum), or a histogram (tl.histogram, or comparisons with each bin)"
    if repeats > 1:
        advice = "combine the elements of an address in the CTA (tl.sum, tl.max, tl.reduce), and issue one atomic "
        return f", up to {repeats} of them at one address", f"{advice}operation for it"
    if updates == 1:
        return ", and each address once", "store instead, as no two updates share an address"
    advice = "let a CTA do the work of several that update the same addresses, in a loop (but leave enough CTAs for "
    advice += "all SMs), or store what each CTA computes, and combine it in a second kernel"
    return ", each at an address of its own", advice
