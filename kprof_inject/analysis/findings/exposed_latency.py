"""Latency that nothing hides: loads that a loop waits for at once, and barriers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.pipelining import MIN_COPIED_BYTES
from kprof_inject.analysis.roofs.limits import LIMITING
from kprof_inject.analysis.structure.dependence import varying_names
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import limited_by
from kprof_inject.quantities import percent
from kprof_inject.ttgir.loops import body_of, is_for_a_copy, pipeline_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import operand_names

# Warps of healthy kernels wait as long for data or at barriers.
_MIN_SHARE = 0.25
# A launch whose busiest unit has more to do gains little from earlier loads.
_MAX_BUSY = 0.75
_MIN_GAIN = 0.1
# Without several, no iteration loads ahead for the next.
MIN_ITERATIONS = 4
_AHEAD = "ahead (tl.range(..., num_stages=3)), "


def exposed_loads(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield loops that load through registers what they use in the same iteration, and whose warps wait for it.

    Needs samples of the warps. Of pipelined loops, only loads of the addresses that copies need count; of other loops
    with dots, ``not_pipelined`` judges the loads.
    """
    stalls = evidence.stalls
    if evidence.executed is None or stalls is None or evidence.busiest[1] >= _MAX_BUSY:
        return
    for loop in (one for one in evidence.executed.module.walk() if one.traits.is_loop):
        body = body_of(loop)
        varying = varying_names(evidence.executed.module, loop)
        loads = [one for one in body if one.name == "tt.load" and not varying.isdisjoint(operand_names(one))]
        share = stalls.share_of_waits(evidence.lines_of(loads)).value
        is_pipelined = pipeline_of(evidence.executed.module, loop) is not None
        if share < _MIN_SHARE or (not is_pipelined and any(one.traits.is_dot for one in loop.walk())):
            continue
        if is_pipelined:
            loads = [one for one in loads if is_for_a_copy(loop, one)]
            share = stalls.share_of_waits(evidence.lines_of(loads)).value
        gain = min(share, evidence.max_gain())
        if share >= _MIN_SHARE and gain >= _MIN_GAIN and evidence.iterations_of(loop) >= MIN_ITERATIONS:
            finding = _addresses_finding if is_pipelined else _loads_finding
            yield finding(evidence, loads, share, gain)


def _loads_finding(evidence: Evidence, loads: Sequence[Operation], share: float, gain: float) -> Finding:
    # On an H100, loading ahead won 30 to 40 % where unrolling by 4 and twice the warps won nothing.
    ahead = _AHEAD if may_load_ahead(evidence, loads) else ""
    advice = f"request the data earlier: {ahead}in larger blocks along the loop{_more_ctas(evidence)}"
    return _finding(evidence, loads, share, "waits for its own loads in each iteration", advice, gain, gain / 4)


def _more_ctas(evidence: Evidence) -> str:
    """Return how more CTAs request data at once; empty if an SM is full of warps."""
    kernel = evidence.kernel
    if evidence.has_one_wave:
        return ", or by more CTAs with fewer iterations each"
    by = limited_by(kernel.target, kernel.num_warps, kernel.clean)
    is_full = any(what in ("warps", "CTAs") for what in by.split(" and "))
    return "" if is_full else ", or by more CTAs on an SM"


def _addresses_finding(evidence: Evidence, loads: Sequence[Operation], share: float, gain: float) -> Finding:
    stages = evidence.kernel.metadata.get("num_stages")
    more = f"from {stages} to {max(stages, 2) + 1}" if isinstance(stages, int) else "to 3 or more"
    # On an H100, it won 19 % of a paged decode (2 to 3 stages).
    advice = (
        f"load the addresses earlier: raise num_stages {more}, so that Triton loads them an iteration before the "
        "copies, or load those of several iterations at once"
    )
    waits = "waits in each iteration for loads of the addresses that its copies need"
    return _finding(evidence, loads, share, waits, advice, gain, gain / 2)


def _finding(
    evidence: Evidence, loads: Sequence[Operation], share: float, waits: str, advice: str, gain: float, likely: float
) -> Finding:
    where = evidence.name_around(loads[0], "a loop")
    return evidence.at(
        loads,
        Finding(
            rule="exposed-loads",
            scope=None,
            share=gain,
            text=f"{where} {waits}, {percent(share)} of the warps' time: {evidence.names_of(loads)}",
            advice=advice,
            figures={"waiting": share},
            likely=likely,
        ),
    )


def may_load_ahead(evidence: Evidence, operations: Sequence[Operation]) -> bool:
    """Return False if no load among some operations can become an asynchronous copy, as all are too narrow."""
    lines = evidence.lines_of(one for one in operations if one.name == "tt.load")
    known = [one.access_bytes for one in evidence.requests if one.line in lines]
    return not known or max(known) >= MIN_COPIED_BYTES


def barriers(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield barriers of the CTA at which its warps wait long; needs samples of the warps."""
    stalls = evidence.stalls
    if stalls is None or evidence.busiest[1] >= LIMITING:
        return
    share = stalls.share_of_barriers({line.line for line in stalls.lines}).value
    if share < _MIN_SHARE:
        return
    place = max(stalls.lines, key=lambda line: line.at_barriers).place
    gain = min(share, evidence.max_gain())
    fewer_warps = ""
    # With dots, their results would need twice the registers of a thread.
    if evidence.executed is not None and not evidence.has_dots:
        fewer_warps = "fewer warps per CTA (num_warps) so that a reduction stays within a warp, "
    yield Finding(
        rule="barriers",
        scope=None,
        share=gain,
        text=f"warps wait {percent(share)} of their time at barriers of the CTA, most at {place or 'an unknown line'}",
        advice=f"synchronise less: {fewer_warps}fewer reductions and layout changes, or more CTAs on an SM "
        "that run meanwhile",
        figures={"waiting": share},
        likely=gain / 4,
    )
