"""Loops that request their data too late."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.analysis.async_work.flights import copied_ahead
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Results, found, rule
from kprof_inject.analysis.limits.rates import SHARED
from kprof_inject.analysis.limits.speed_of_light import Roof
from kprof_inject.analysis.limits.stalls import FOR_MEMORY
from kprof_inject.analysis.structure.layouts import conflict_cycles
from kprof_inject.capture.resources import limits_of
from kprof_inject.quantities import counted, numbered, percent, size_text
from kprof_inject.ttgir.loops import CopyPipeline, copy_pipelines, is_for_a_branch, is_used_at_once
from kprof_inject.ttgir.nodes import Operation

# A loop that is closer to its roof gains little from earlier loads.
_AT_ROOF = 0.75
# Part of a loop's time in waits for copies. Waits for data that has already arrived take up to as much.
_MIN_WAITING = 0.10
_MIN_SHARE = 0.05
MIN_COPIED_BYTES = 4
"""No fewer bytes of a thread become an asynchronous copy (PTX ISA, "cp.async"), whatever the number of stages."""

_POINTERS = f"let pointers advance by a constant and read at least {MIN_COPIED_BYTES} contiguous bytes"
# All loads of a loop mostly have one reason.
_MAX_LOADS = 8
# A smaller load is not an operand of a dot.
_MIN_LOAD_BYTES = 1024


@rule(names=("not-pipelined", "too-few-stages"))
def pipelining(evidence: Evidence) -> Results:
    """Yield loops with dots whose operands are loaded in the iteration that needs them, or too few iterations ahead.

    Waits for copies ahead must be recorded, or the warps sampled.
    """
    pipelines = {one.loop: one for one in copy_pipelines(evidence.module)} if evidence.executed else {}
    for loop in evidence.loops if evidence.dram_part <= _AT_ROOF else ():
        roof, pipeline = evidence.roof_around(loop), pipelines.get(loop)
        if roof is not None:
            yield from _not_pipelined(evidence, loop, roof, pipeline)
            if pipeline is not None and pipeline.depth and roof.part <= _AT_ROOF:
                yield from _too_few_stages(evidence, roof, pipeline)


def _not_pipelined(evidence: Evidence, loop: Operation, roof: Roof, pipeline: CopyPipeline | None) -> Results:
    inside = evidence.ran.of_loop(loop)
    if not any(one.operation.traits.is_dot for one in inside):
        return
    narrow = {one.line for one in evidence.requests if one.access_bytes < MIN_COPIED_BYTES}
    loads = [
        (one, one.access)
        for one in inside
        if one.access and one.access.form.reads and one.access.form.by_registers and one.line not in narrow
        if one.access.whole_bytes >= _MIN_LOAD_BYTES and is_used_at_once(loop, one.operation)
    ]
    if not loads and (pipeline is None or pipeline.depth):
        return
    if loads and not any(conflict_cycles(one.operation, evidence.module.aliases) for one in inside):
        # Copies relieve shared memory and the L1 of most of their work, as threads neither load the data nor store it.
        # Bank conflicts, however, would remain.
        roof = replace(roof, parts={**roof.parts, SHARED: 0.0})
    share = min((1 - roof.part) * evidence.share_of(roof), evidence.max_gain({SHARED: 1.0}))
    operations = [one.operation for one, _ in loads]
    if loads:
        share = min(share, evidence.max_gain_of_waits(operations, loop))
    if roof.part > _AT_ROOF or share < _MIN_SHARE:
        return
    name, part = evidence.name_of(roof), percent(roof.part)
    if loads:
        moved = sum(access.whole_bytes for _, access in loads)
        text = f"{name} is not pipelined: it loads {size_text(moved)} in the iteration that uses them (TTGIR "
        text += f"{numbered('line', [one.line for one, _ in loads])}), so loads and dots do not overlap; copies "
        text += f"would relieve shared memory, and the next unit ({roof.unit}) is at {part} of peak"
        way = _how_to_pipeline(evidence, loop, operations)
        advice = f"let Triton pipeline the loop: {way}, so that loads can become asynchronous copies"
        figures = {"bytes": moved, "loads": len(loads), "part": roof.part}
    else:
        text = f"{name} waits in each iteration for the copies that it just issued: its busiest unit ({roof.unit}) "
        text += f"is at {part} of peak"
        advice = "issue the next iteration's loads before the wait, and keep one group in flight: set num_stages to 3"
        figures = {"part": roof.part}
    yield found(evidence, share, text, advice, figures, at=operations or [loop], around=loop, name="not-pipelined")


def _how_to_pipeline(evidence: Evidence, loop: Operation, loads: Sequence[Operation]) -> str:
    inner = next((one for one in loop.walk() if one is not loop and one.traits.is_loop), None)
    if inner is not None:  # seen with a lock: on an H100, without its loop Triton made the copies, which won 3 %
        return f"take {evidence.words_of(inner)} out of it, as Triton pipelines innermost loops alone"
    if any(is_for_a_branch(loop, load) for load in loads[:_MAX_LOADS]):
        how = "take the dot that uses the loads out of its branch (with a mask instead)"
        return f"{how}, as a branch's are not pipelined"
    stages = evidence.kernel.metadata.get("num_stages")
    if not isinstance(stages, int):
        return f"set num_stages to 3 or more, and {_POINTERS}"
    if stages > 1:
        return f"{_POINTERS} (num_stages is {stages} already)"
    return f"set num_stages to 3 or more; if that does not suffice, {_POINTERS}"


def _too_few_stages(evidence: Evidence, roof: Roof, pipeline: CopyPipeline) -> Results:
    waited = _waited(evidence, pipeline)
    if waited is None or waited < _MIN_WAITING:
        return
    share = min(waited * evidence.share_of(roof), evidence.max_gain())
    if share < _MIN_SHARE:
        return
    kernel, copies = evidence.kernel, copied_ahead(evidence.ran, evidence.kernel, pipeline)
    # A copy is issued ``depth`` iterations ahead, and has arrived when the wait for it ends. The loop does not wait
    # while its busiest unit works.
    iterations_of_copy = pipeline.depth / max(1 - waited, roof.part)
    room_bytes = max(limits_of(kernel.target).cta_shared_bytes - (kernel.clean.shared_bytes or 0), 0)
    more = min(math.ceil(iterations_of_copy) - copies.depth, room_bytes // max(copies.stage_bytes, 1))
    if more:
        advice = f"raise num_stages by {more}: a copy takes as long as {iterations_of_copy:.1f} iterations that do "
        advice += f"not wait; this keeps {size_text(copies.bytes_per_sm(more))} in flight per SM, and takes "
        advice += f"{size_text(more * copies.stage_bytes)} more shared memory per CTA"
    else:
        advice = "use smaller tiles, or a smaller step along the loop, and then more stages (num_stages): a CTA's "
        advice += f"shared memory has no room for another stage of {size_text(copies.stage_bytes)}"
    # Other warps wait at the barrier that follows.
    stalls = evidence.stalls
    at_barriers = stalls.share_of_barriers(evidence.lines_of([pipeline.loop])) if stalls else 0.0
    share_with_barriers = min(share + at_barriers, evidence.max_gain())
    text = f"{evidence.name_of(roof)} spends {percent(waited)} of its time waiting for copies issued "
    text += f"{counted(pipeline.depth, 'iteration')} ahead: {size_text(copies.bytes_per_sm())} in flight per SM is too "
    text += "little"
    figures = {"waiting": waited, "depth": pipeline.depth, "more_stages": more}
    figures |= {"bytes_in_flight_per_sm": copies.bytes_per_sm(), "stage_bytes": copies.stage_bytes}
    found_at, name = roof.index, "too-few-stages"
    yield found(evidence, share_with_barriers, text, advice, figures, likely=share, scope=found_at, name=name)


def _waited(evidence: Evidence, pipeline: CopyPipeline) -> float | None:
    scope_map = evidence.ran.scope_map
    waits = [group.wait for group in pipeline.awaited]
    waits_ns, loops_ns = (
        sum(int(evidence.summary.scopes[index].warps.totals_ns.sum()) for index in indices)
        for indices in (scope_map.exact_scopes(waits), scope_map.scopes_of_loop(pipeline.loop))
    )
    if waits_ns and loops_ns:
        return waits_ns / loops_ns
    if evidence.stalls is None:
        return None
    # What other warps wait at the barrier that follows is not in it.
    at_waits, inside = evidence.lines_of(waits), evidence.lines_of([pipeline.loop])
    waited = sum(line.reasons.get(FOR_MEMORY, 0) for line in evidence.stalls.lines if line.line in at_waits)
    whole = sum(line.samples for line in evidence.stalls.lines if line.line in inside)
    return waited / whole if whole else None
