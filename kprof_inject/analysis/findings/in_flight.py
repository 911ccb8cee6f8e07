"""Too little work in flight to hide the latency of memory: loads that are not ahead, few warps, and short CTAs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.analysis.async_work.flights import copied_ahead
from kprof_inject.analysis.findings.evidence import Evidence, accesses_in
from kprof_inject.analysis.findings.finding import Results, all_ctas, found, no_memory_waits, rule
from kprof_inject.analysis.interpreter.footprints import SECTOR_BYTES
from kprof_inject.analysis.limits.coalescing import LINE_BYTES
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.limits.rates import ALU, FP32, ISSUE, L2, SHARED, WGMMA_TARGET
from kprof_inject.analysis.limits.speed_of_light import Roof
from kprof_inject.analysis.limits.stalls import FOR_MEMORY
from kprof_inject.analysis.structure.layouts import conflict_cycles
from kprof_inject.capture import counters
from kprof_inject.capture.resources import THREADS_PER_WARP, ctas_per_sm, limited_by, limits_of
from kprof_inject.quantities import counted, numbered, percent, short_time, size_text
from kprof_inject.timeline.waves import Waves
from kprof_inject.ttgir.loops import CopyPipeline, body_of, copy_pipelines, is_for_a_branch, is_used_at_once
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import bits_of, types_of

_AT_ROOF = 0.75  # a loop that is closer to its roof gains little from earlier loads
# Part of a loop's time in waits for copies. Waits for data that has already arrived take up to as much.
_MIN_WAITING = 0.10
_MIN_LOOP_SHARE = 0.05
MIN_COPIED_BYTES = 4
"""No fewer bytes of a thread become an asynchronous copy (PTX ISA, "cp.async"), whatever the number of stages."""

_POINTERS = f"let pointers advance by a constant and read at least {MIN_COPIED_BYTES} contiguous bytes"
_MAX_LOADS = 8  # all loads of a loop mostly have one reason
_MIN_LOAD_BYTES = 1024  # a smaller load is not an operand of a dot
MIN_ITERATIONS = 4  # without several, no iteration loads ahead for the next
_MAX_WARPS = 16  # a quarter of an SM's 64 warps hides latency only if each has several accesses in flight
# Dots hide latency by stages, but a scheduler with one warp issues nothing while that waits: on an H100, a chunked scan
# of 4 warps on an SM won 27 to 50 % with more.
_MAX_WARPS_OF_DOTS = 4.5
_SHORT_CTA_NS = 2_000  # a CTA needs about 1 us for its start, its first load from DRAM and its end (H100)
_MAX_CTA_BYTES = 8 << 10  # CTAs that move more spend their time with it
_MIN_WAVES = 4
_MAX_OF_CTA = 0.75  # part of the instructions that blocks of four times the size would not execute
_MIN_SHARE = 0.2
_MIN_ELEMENTS_PER_THREAD = 4  # with fewer elements, a thread cannot share them with threads of other warps
_MAX_NUM_WARPS = 16
_WARPS_OF_GROUP = 4
_MAX_BUSY = 0.75  # more warps keep a unit that is busier than this only a little busier
# Reasons why warps wait that more warps would not hide, as they share what they wait for.
_SHARED_REASONS = frozenset(
    ("no_instructions", "math_pipe_throttle", "lg_throttle", "mio_throttle", "tex_throttle", "drain", "sleeping")
)
# What takes less of the resource that limits the CTAs on an SM.
_LESS_OF = {
    "registers": "smaller tiles with as many warps, or fewer registers (maxnreg)",
    "shared memory": "smaller tiles, or fewer stages (num_stages)",
}
_DRAM_LATENCY_S = 0.7e-6  # latency of a load from DRAM under load: 0.6 to 0.9 us on an H100


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
        (one, access)
        for one, access in accesses_in(inside)
        if access.form.reads and access.form.by_registers and one.line not in narrow
        if access.whole_bytes >= _MIN_LOAD_BYTES and is_used_at_once(loop, one.operation)
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
    if roof.part > _AT_ROOF or share < _MIN_LOOP_SHARE:
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
    if share < _MIN_LOOP_SHARE:
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
    most = min(share + at_barriers, evidence.max_gain())
    text = f"{evidence.name_of(roof)} spends {percent(waited)} of its time waiting for copies issued "
    text += f"{counted(pipeline.depth, 'iteration')} ahead: {size_text(copies.bytes_per_sm())} in flight per SM is too "
    text += "little"
    figures = {"waiting": waited, "depth": pipeline.depth, "more_stages": more}
    figures |= {"bytes_in_flight_per_sm": copies.bytes_per_sm(), "stage_bytes": copies.stage_bytes}
    yield found(evidence, most, text, advice, figures, likely=share, scope=roof.index, name="too-few-stages")


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


@rule(no_memory_waits, all_ctas)
def few_warps(evidence: Evidence) -> Results:
    """Yield launches whose SMs hold so few warps that these cannot hide the latency of what they wait for.

    Loops with dots hide it by stages, if each scheduler has more than one warp.
    """
    waves = evidence.summary.waves
    if evidence.executed is None or waves is None or not evidence.parts:
        return
    counted_warps = evidence.measured.metric(counters.WARPS_ACTIVE) if evidence.measured else 0.0
    active = counted_warps or min(waves.ctas / waves.sms, evidence.room) * evidence.kernel.num_warps
    share, ending = evidence.max_gain(), evidence.summary.ending
    # Other CTAs on an SM gain no more than what SMs with a CTA more than others show.
    by_sharing = 1.0 if ending is None or ending.sharing_share is None else ending.sharing_share
    if evidence.has_dots:
        yield from _few_warps_of_dots(evidence, waves, active, share, by_sharing)
        return
    share = min(share, by_sharing)
    top = evidence.stalls.top if evidence.stalls else None
    is_busy = evidence.busiest[1] >= _MAX_BUSY or (top is not None and top.reason in _SHARED_REASONS)
    if active >= _MAX_WARPS or share < _MIN_SHARE or is_busy:
        return
    rate, sms = evidence.kernel.dram_bytes_per_s, evidence.kernel.sm_count
    needed = rate * _DRAM_LATENCY_S / sms if rate and sms else 0.0
    at_once = ""
    loop = max(evidence.loops, key=_loaded_bytes, default=None)
    requested = _max_resident(evidence, waves) * _loaded_bytes(loop) if loop else 0
    if loop is not None and 0 < requested < needed:
        may_be_ahead = may_load_ahead(evidence, body_of(loop))
        how = "load ahead (tl.range(..., num_stages=3)) or in larger blocks" if may_be_ahead else "load larger blocks"
        loaded = f"the loads of an iteration are {size_text(requested)} on an SM"
        at_once = f"request more data at once, as {loaded}: {how}"
    more_warps, more = _more_warps(evidence, waves, bool(at_once))
    advice = "; or ".join(filter(None, (at_once, more_warps)))
    if not advice:
        return
    text = f"too few warps in flight: an SM holds {active:.1f} of {limits_of(evidence.kernel.target).warps} on "
    text += f"average, and {_waits(evidence)}"
    if needed:
        text += f"; by Little's law, DRAM's bandwidth needs {size_text(round(needed))} in flight per SM"
    # On an H100, twice the warps won less where loops load through registers: loading ahead won instead.
    likely = share / (3 if at_once or not _loads_in_loops(evidence) else 5)
    yield found(evidence, share, text, advice, {"active_warps": active, "more_num_warps": more}, likely=likely)


def may_load_ahead(evidence: Evidence, operations: Sequence[Operation]) -> bool:
    """Return False if no load among some operations can become an asynchronous copy, as all are too narrow."""
    lines = evidence.lines_of(one for one in operations if one.name == "tt.load")
    known = [one.access_bytes for one in evidence.requests if one.line in lines]
    return not known or max(known) >= MIN_COPIED_BYTES


def _loads_in_loops(evidence: Evidence) -> bool:
    return any(_loaded_bytes(loop) and evidence.iterations_of(loop) >= MIN_ITERATIONS for loop in evidence.loops)


def _few_warps_of_dots(evidence: Evidence, waves: Waves, active: float, share: float, by_sharing: float) -> Results:
    # A group of four warps issues wgmma (PTX ISA, "wgmma.mma_async"), and each of an SM's four parts has a scheduler
    # (NVIDIA's H100 white paper), which has nothing to issue while its only warp waits.
    warps = evidence.kernel.num_warps
    if lacks_wgmma(evidence):
        more, likely = _WARPS_OF_GROUP, share / 2
        text = f"too few warps for wgmma, which a group of {_WARPS_OF_GROUP} issues: the kernel has "
        text += f"{counted(warps, 'warp')}, and its dots use older, slower instructions"
        advice = f"raise num_warps from {warps} to {more} or more"
    elif active < _MAX_WARPS_OF_DOTS and evidence.busiest[1] < LIMITING:
        more, share = 2 * warps, min(share, by_sharing)
        likely = share / 3
        advice = "launch more CTAs: smaller tiles, or split-K" if waves.ctas < 2 * waves.sms else _more_room(evidence)
        text = f"too few warps in flight: an SM holds {active:.1f} for its 4 schedulers, and {_waits(evidence)}"
        advice += f"; or raise num_warps from {warps} to {more}"
    else:
        return
    if share >= _MIN_SHARE:
        yield found(evidence, share, text, advice, {"active_warps": active, "more_num_warps": more}, likely=likely)


def lacks_wgmma(evidence: Evidence) -> bool:
    """Return True if a launch has fewer warps than issue wgmma together: its dots use older, slower instructions."""
    return evidence.kernel.target == WGMMA_TARGET and evidence.kernel.num_warps < _WARPS_OF_GROUP


def _max_resident(evidence: Evidence, waves: Waves) -> int:
    return min(-(-waves.ctas // waves.sms), evidence.room)


def _waits(evidence: Evidence) -> str:
    stalls = evidence.stalls
    if stalls is not None and (top := stalls.top):
        return f"each waits {percent(top.share)} of its time for {stalls.words(top.reason)} ({top.reason})"
    return "no unit is busy"


def _loaded_bytes(loop: Operation) -> int:
    types = (printed for one in body_of(loop) if one.name == "tt.load" for printed in types_of(one)[:1])
    return sum(printed.elements * bits_of(printed.pointee) // 8 for printed in types)


def _more_warps(evidence: Evidence, waves: Waves, needs_more: bool) -> tuple[str, int]:
    """Return advice and the best ``num_warps``; no smaller block or tile if each CTA ``needs_more`` data at once."""
    kernel, warps = evidence.kernel, evidence.kernel.num_warps
    limits = limits_of(kernel.target)
    accessed = (one for one in evidence.module.walk() if one.traits.reads_global or one.traits.is_arithmetic)
    elements = max((math.prod(printed.shape) for one in accessed for printed in types_of(one)), default=1)
    room, on_sm = evidence.room, _max_resident(evidence, waves)
    more = warps
    most = min(_MAX_NUM_WARPS, limits.warps // max(on_sm, 1), elements // (THREADS_PER_WARP * _MIN_ELEMENTS_PER_THREAD))
    while 2 * more <= most:
        more *= 2
    if more > warps:
        each = elements // (THREADS_PER_WARP * warps)
        return f"raise num_warps from {warps} to {more}: the largest tensor has {each} elements a thread now", more
    if waves.ctas < waves.sms * room:
        # With smaller blocks, loops would wait as often: on an H100, twice the CTAs of half the size took 2 and 11 %
        # longer, and 16 times the CTAs of a 16th of the rows won 10 %.
        how = "fewer iterations each" if needs_more or _loads_in_loops(evidence) else "smaller blocks"
        return f"launch more CTAs with {how}: an SM has room for {room} and gets {waves.ctas / waves.sms:.1f}", warps
    if evidence.has_one_wave:
        return "", warps
    by = limited_by(kernel.target, warps, kernel.clean)
    if by == "CTAs":
        return f"raise num_warps: CTAs of {counted(warps, 'warp')} take all slots of an SM", warps
    if not by or by == "warps" or needs_more:
        return "", warps
    return _more_room(evidence), warps


def _more_room(evidence: Evidence) -> str:
    kernel, (by, how) = evidence.kernel, occupancy_remedy(evidence)
    if not by:
        return "use smaller tiles"
    by_warps = ctas_per_sm(limits_of(kernel.target), 0, kernel.num_warps, None)
    return f"make room for more CTAs on an SM ({by}: for {evidence.room}; warps: for {by_warps}): {how}"


def occupancy_remedy(evidence: Evidence) -> tuple[str, str]:
    """Return the resource that limits the CTAs on an SM (empty if unknown), and how to use less of it."""
    kernel = evidence.kernel
    by = limited_by(kernel.target, kernel.num_warps, kernel.clean)
    if by == "shared memory" and (iterations := iterations_below_stages(evidence)) is not None:
        # A pipeline that is never full for long only needs what a few loads ahead take.
        fewer = max(math.ceil(iterations / 2), min(math.ceil(iterations), 2), 1)
        stages = kernel.metadata["num_stages"]
        return by, f"num_stages={fewer} instead of {stages}: the dot loop's mean trip count is {iterations:.3g}"
    return by, _LESS_OF.get(by, "smaller tiles")


def iterations_below_stages(evidence: Evidence) -> float | None:
    """Return the longest dot loop's mean trip count if ``num_stages`` reaches it: most of the loop fills and drains."""
    stages = evidence.kernel.metadata.get("num_stages")
    loops = [loop for loop in evidence.loops if any(one.traits.is_dot for one in body_of(loop))]
    iterations = max(map(evidence.iterations_of, loops), default=math.inf)
    return iterations if isinstance(stages, int) and iterations <= stages else None


@rule(no_memory_waits, all_ctas)
def small_ctas(evidence: Evidence) -> Results:
    """Yield launches of many short CTAs, which spend much of their time on starting and ending."""
    waves = evidence.summary.waves
    if not evidence.parts or waves is None or evidence.summary.ending is None:
        return
    times_ns = (evidence.timeline.ctas["pre_final_ns"] - evidence.timeline.ctas["init_ns"]).astype(float)
    # Each CTA is weighted by its time: those that return at once do not count.
    cta_ns = float((times_ns**2).sum() / max(times_ns.sum(), 1.0))
    moved = evidence.speed_of_light.dram.once_bytes / waves.ctas if evidence.speed_of_light.dram else 0.0
    if waves.waves < _MIN_WAVES or cta_ns > _SHORT_CTA_NS or moved > _MAX_CTA_BYTES:
        return
    # Larger blocks share the instructions that each CTA executes for itself, and request whole lines from the L2.
    requests = sum(one.requests for one in evidence.requests)
    sectors = sum(one.sectors * one.requests for one in evidence.requests)
    narrow = 1 - sectors / (LINE_BYTES // SECTOR_BYTES * requests) if requests else 0.0
    share = evidence.max_gain({**dict.fromkeys((ISSUE, ALU, FP32, SHARED), _MAX_OF_CTA), L2: max(narrow, 0.0)})
    unit, part = evidence.busiest
    if share < _MIN_SHARE or part >= _MAX_BUSY:
        return
    size = f" and moves {size_text(round(moved))}" if moved else ""
    text = f"CTAs do too little: each of {waves.ctas} takes {short_time(cta_ns)}{size}; most of that is its start, the "
    text += f"latency of its first loads, and its end ({unit} at {percent(part)} of peak)"
    # On an H100, a loop over blocks of the same size took 23 to 35 % longer where larger blocks won 56 to 60 %.
    advice = "give each CTA more work: larger blocks (4 to 16 times as many elements), of several rows if rows are "
    advice += "short; a loop over small blocks would wait for each of them"
    yield found(evidence, share, text, advice, {"cta_ns": cta_ns, "bytes_per_cta": moved}, likely=0.7 * share)
