"""Data that CTAs could share: by larger tiles, or another order of tiles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, accesses_of_a_byte
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.findings.in_flight import lacks_wgmma
from kprof_inject.analysis.findings.loaded_again import each_bytes, moved_by
from kprof_inject.analysis.findings.memory_accesses import step_along
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.interpreter.footprints import Ranges, union
from kprof_inject.analysis.limits.limit import LIMITING
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, UNITS_OF_SM
from kprof_inject.capture import counters
from kprof_inject.quantities import percent, ratio, size_text
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import types_of

_MAX_TILE = 256 * 128  # maximum number of elements of a CTA's accumulator: half of an SM's 64 K registers (H100)
_MIN_ABOVE_DRAM = 1.2  # the L2 is 0.9 to 1.0 times as busy as DRAM if it delivers what DRAM gives it once (H100)
_MIN_LOADS = 2  # twice the tile halves the loads of an operand only if two CTAs load the same
_TRANSPOSES = frozenset(("tt.trans", "ttg.memdesc_trans"))
_MIN_SYMMETRIC = 9  # tiles: of fewer, most are on the diagonal
_HALF = 0.48
_MIN_SHARED_PART = 0.5  # of what CTAs load

_MIN_PASSES = 1.5  # on average over the bytes: some may be read once
_MIN_REREAD = 2.0  # tiles of a matmul in a good order read each operand once or twice from DRAM
# With DRAM less busy, its bytes are not what the launch waits for, unless most loads do.
_MIN_DRAM, _MIN_DRAM_IF_MISSED, _MANY_HITS = 0.4, 0.25, 0.6
_MIN_EVICTED, _MIN_SHARED = 0.1, 2.0  # less of DRAM's reads is noise, or what a wave's CTAs read at once


@row
def small_tiles(evidence: Evidence) -> Iterator[Waste]:
    """Yield dots of a launch that the L2 limits, if their tiles could be larger: these share what they load."""
    busy = _limiting_l2(evidence)
    if not busy:
        return
    dots = [one.operation for one in evidence.operations if one.operation.traits.is_dot]
    types = [(its, dot) for dot in dots if (its := types_of(dot)) and len(its[-1].shape) == 2]
    tiles = [(its[-1].shape, its[0].shape[-1], dot) for its, dot in types]
    waves, sms = evidence.summary.waves, evidence.kernel.sm_count
    if not tiles or lacks_wgmma(evidence) or (waves is not None and sms and waves.ctas < 2 * sms):
        return  # larger tiles need more warps; half as many CTAs would leave SMs idle
    (rows, columns), inner, dot = max(tiles, key=lambda tile: tile[0][0] * tile[0][1])
    longer, shorter = max(rows, columns), min(rows, columns)
    reads = [(access, one.times) for one, access in _reads(evidence) if len(access.shape) == 2]
    # Larger tiles save nothing if each part of an operand is known to be loaded once.
    of_tiles = [(access, times) for access, times in reads if set(access.shape) == {longer, inner}]
    is_shared = not of_tiles or any(accesses_of_a_byte(access, times) >= _MIN_LOADS for access, times in of_tiles)
    if 2 * rows * columns > _MAX_TILE or not is_shared:
        return
    # A tile loads its rows and its columns for as many products as it has elements.
    saved = 1 - (1 / longer + 1 / (2 * shorter)) / (1 / longer + 1 / shorter)
    # If another unit is as busy as the L2, larger tiles may lose: they leave room for fewer CTAs on an SM.
    text = f"small tiles: the L2 ({percent(busy)} of peak) delivers the operands of tiles of {rows} x {columns}"
    advice = f"use larger tiles: {longer} x {2 * shorter} takes {percent(saved)} fewer bytes from the L2 for the "
    advice += "same result (with more warps, or fewer stages if shared memory does not suffice)"
    yield Waste(text, advice, dict.fromkeys((L2, L2_TO_SM), saved), (dot,), time_share=0.0, figures={"saved": saved})


def _limiting_l2(evidence: Evidence) -> float:
    busy = max(evidence.parts.get(L2, 0.0), evidence.parts.get(L2_TO_SM, 0.0))
    return busy if busy >= max(LIMITING, _MIN_ABOVE_DRAM * evidence.parts.get(DRAM, 0.0)) else 0.0


def _reads(evidence: Evidence) -> list[tuple[CountedOperation, Access]]:
    return [(one, access) for one, access in accesses_in(evidence.operations) if access.form.reads]


@row
def shared_loads(evidence: Evidence) -> Iterator[Waste]:
    """Yield loads that overlap other CTAs' loads, in a kernel without dots that the L2 limits."""
    if not _limiting_l2(evidence) or evidence.has_dots:
        return
    loads = moved_by(evidence.sample, reads=True)
    if any(evidence.uses.loads_for(one.operation) for one in loads):
        return  # which CTAs share data is up to the data
    touched = [access.touched() for _, access in _reads(evidence)]
    known = [one for one in touched if one is not None]
    if not loads or len(known) < len(touched):
        return
    of_ctas = each_bytes(evidence, loads) * evidence.summary.ctas
    needed = union(known).size_bytes
    saved = 1 - needed / max(of_ctas, 1)
    if saved < _MIN_SHARED_PART:
        return
    text = f"the L2 delivers {size_text(round(of_ctas))}, but {size_text(needed)} if each byte were loaded once: CTAs "
    text += f"load the same data ({evidence.names_of(one.operation for one in loads)})"
    advice = "let a CTA compute a larger or squarer tile (64 x 64 instead of 1 x 1024), so that fewer loads overlap "
    advice += "other CTAs' loads, or several tiles that need the same data"
    operations = tuple(one.operation for one in loads)
    yield Waste(text, advice, dict.fromkeys((L2, L2_TO_SM), saved), operations, time_share=0.0, certainty=0.7)


@row
def l2_reuse(evidence: Evidence) -> Iterator[Waste]:
    """Yield launches that read several times as many bytes from DRAM as there are to read; needs counters."""
    dram, measured = evidence.speed_of_light.dram, evidence.measured
    if dram is None or dram.unknown or measured is None or dram.fits_l2 or not dram.read_bytes:
        return
    read = measured.metric(counters.DRAM_READ_BYTES)
    again = read / dram.read_bytes
    hits = measured.metric(counters.L2_HIT_PERCENT) / 100
    if again < _MIN_REREAD:
        yield from _evicted(evidence, read, dram.read_bytes)
    min_dram = _MIN_DRAM if hits >= _MANY_HITS else _MIN_DRAM_IF_MISSED
    if again < _MIN_REREAD or evidence.parts.get(DRAM, 0.0) < min_dram:
        return
    extra, has_passes = read - dram.read_bytes, _reads_its_own_again(evidence, dram.read_bytes)
    kept = min(extra, (again - 1) * (evidence.kernel.l2_bytes or extra)) if has_passes else extra
    kept /= evidence.dram_moved
    text = f"no reuse in the L2: DRAM reads {size_text(round(read))}, {ratio(again)} the {size_text(dram.read_bytes)} "
    text += f"that the launch needs (L2 hit rate {percent(hits)})"
    removed = dict.fromkeys((DRAM, L2), kept)  # the L2 is busy with what it gets from DRAM, too
    if has_passes:  # writes and other CTAs also take room in the L2
        # On an H100, a second pass that ran backwards over 117 MB won 2.3 % of a launch of 157 us.
        advice = "run every other pass over the data backwards, so that it starts with what is still in the L2; or "
        advice += "give a CTA so little at a time that the L2, or its registers, hold it until the next pass"
        time_share, certainty = 0.0, 0.3
    else:
        advice = "change the order of tiles so that CTAs that run at once share operands: group program ids (8 rows of "
        advice += "tiles at a time, tl.swizzle2d), or let a CTA loop over the tiles that need the same data"
        time_share = evidence.time_share_of(one.operation for one, _ in _reads(evidence)) * kept
        certainty = 0.7
    yield Waste(text, advice, removed, time_share=time_share, certainty=certainty, figures={"ratio": again})


@row
def symmetric_product(evidence: Evidence) -> Iterator[Waste]:
    """Yield a product of a matrix and its own transpose, of which both halves are computed."""
    for dot in (one.operation for one in evidence.operations if one.operation.traits.is_dot):
        inside = [*dot.loop.walk()] if dot.loop else []
        if sum(one.traits.is_dot for one in inside) != 1 or evidence.summary.ctas < _MIN_SYMMETRIC:
            continue
        accesses = [access for one, access in _reads(evidence) if one.times and one.operation.loop is dot.loop]
        touched = [found for access in accesses if (found := access.touched()) is not None]
        steps = [[step_along(access, dim) for dim in (0, 1)] for access in accesses if len(access.shape) == 2]
        if len(touched) != 2 or len(steps) != 2:
            continue
        if not any(each.name in _TRANSPOSES for each in inside):
            steps[1].reverse()
        one, other = touched
        is_same = one.size_bytes == other.size_bytes == union(touched).size_bytes > 0
        if not is_same or steps[0] != steps[1]:  # a matrix by itself has other steps
            continue
        text = f"{evidence.words_of(dot)} multiplies a matrix by its own transpose: both factors are the same "
        text += f"{size_text(one.size_bytes)}, so the tiles above the diagonal are those below it, transposed"
        advice = "compute the tiles on one side of the diagonal, and store each also transposed: let the other CTAs "
        advice += "return at once, or launch half of the grid"
        removed = {**dict.fromkeys(UNITS_OF_SM, _HALF), L2: _HALF, L2_TO_SM: _HALF}
        yield Waste(text, advice, removed, (dot,), time_share=_HALF, certainty=0.8)
        return


def _evicted(evidence: Evidence, read: float, needed_bytes: int) -> Iterator[Waste]:
    shared, streamed, shared_bytes = list[Operation](), list[Operation](), 0
    for one, access in accesses_in(evidence.operations):
        touched = access.touched()
        if touched is None or not touched.size_bytes:
            continue
        requested_bytes = access.requested_bytes(one.times) or 0
        if access.form.reads and requested_bytes >= _MIN_SHARED * touched.size_bytes:
            shared.append(one.operation)
            shared_bytes += touched.size_bytes
        elif touched.size_bytes >= needed_bytes / 10:
            streamed.append(one.operation)
    evicted = 1 - needed_bytes / read if read else 0.0
    if not (shared and streamed) or evicted < _MIN_EVICTED:
        return
    removed = {DRAM: evicted * read / evidence.dram_moved, L2: 0.0}
    if shared_bytes > (evidence.kernel.l2_bytes or 0):
        text = f"DRAM reads {size_text(round(read))} where {size_text(needed_bytes)} suffice: CTAs share "
        text += f"data ({evidence.names_of(shared)}: {size_text(shared_bytes)}), but reuse it after the L2 evicted it"
        advice = "make CTAs that share data consecutive: they should differ in program_id(0), which varies fastest (or "
        advice += "in its remainder); or let one CTA do the work of several"
        yield Waste(text, advice, removed | {L2: removed[DRAM]}, tuple(shared), time_share=0.0, certainty=0.7)
        return
    text = f"DRAM reads {size_text(round(read))} where {size_text(needed_bytes)} suffice: what CTAs share "
    text += f"({evidence.names_of(shared)}) fits into the L2, but streamed data takes its place "
    text += f"({evidence.places_of(streamed)})"
    advice = "let streamed data leave first: eviction_policy='evict_first' for it, 'evict_last' for what is shared"
    yield Waste(text, advice, removed, tuple(shared), time_share=0.0, certainty=0.4)


def _reads_its_own_again(evidence: Evidence, needed_bytes: int) -> bool:
    """Return True if each load reads its bytes once, but several loops read the same."""
    by_loop: defaultdict[Operation, list[Ranges]] = defaultdict(list)
    for one, access in _reads(evidence):
        if not one.times:
            continue
        touched, requested_bytes = access.touched(), access.requested_bytes(one.times)
        if touched is None or requested_bytes is None or requested_bytes > max(touched.size_bytes, needed_bytes // 10):
            return False
        if (loop := one.operation.loop) is not None:
            by_loop[loop].append(touched)
    return sum(union(ranges).size_bytes for ranges in by_loop.values()) >= _MIN_PASSES * needed_bytes
