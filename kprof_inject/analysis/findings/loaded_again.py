"""Bytes that a CTA moves more than once: the same data in several loops, and what it stored itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np
from msgspec import Struct

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, is_tensor
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.interpreter.accesses import Access
from kprof_inject.analysis.interpreter.axis_arrays import CTA, AxisArray
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.interpreter.footprints import NOTHING, Ranges, union
from kprof_inject.analysis.limits.limit import POSSIBLE
from kprof_inject.analysis.limits.rates import DRAM, L2, L2_TO_SM, SHARED, rates_of
from kprof_inject.analysis.structure.values import invariant_operations
from kprof_inject.capture import counters
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.quantities import percent, size_text
from kprof_inject.ttgir.dialect import CACHE_MODIFIER
from kprof_inject.ttgir.nodes import Operation

_MIN_OVERLAP = 0.5  # smaller overlaps are halos of tiles
_MIN_AGAIN = 0.1  # of the bytes that are loaded
_KEPT_BYTES_OF_THREAD = 512  # of a row, besides what a thread computes with: half of its 255 registers
_OF_TILES = 0.3  # shared memory rarely holds the operands of all tiles of a CTA: reloading them is often unavoidable
_OF_ITERATIONS = (
    "load it once for consecutive iterations that share it: step by whole groups (one iteration for each scale or "
    "index), or load it in an outer loop over groups"
)
_NEAR = 0.3  # a window that moves overlaps itself, and no operation takes elements of a tile at an offset, but gathers
_OF_NEIGHBOURS = (
    "let each thread have more neighbours, whose loads the compiler merges: fewer warps, or larger tiles along the "
    "dimension of the offsets; or load a tile with its halo once, and take neighbours from it by tl.gather"
)
_ONE_LOOP = (
    "use each element for everything when it is loaded: one loop in place of several (a running maximum with a "
    "rescaled sum, sums of x and of x * x)"
)


class Moved(Struct, frozen=True):
    """Bytes that an operation requests in the sampled CTAs, and those that it touches, apart for each CTA."""

    operation: Operation
    requested_bytes: int
    touched: Ranges


def moved_by(sample: Sequence[CountedOperation], *, reads: bool) -> list[Moved]:
    """Return the bytes that loads, or stores, of tensors at known addresses move, in the order of the text."""
    found = []
    for one, access in accesses_in(sample):
        if one.operation.traits.is_atomic or access.form.reads is not reads:
            continue
        if not one.times or prod(access.shape) <= 1:
            continue
        touched, requested_bytes = of_each_cta(access, one), access.distinct_bytes(one.times)
        if touched is not None and touched.size_bytes and requested_bytes:
            found.append(Moved(one.operation, requested_bytes, touched))
    return found


def of_each_cta(access: Access, one: CountedOperation) -> Ranges | None:
    """Return the bytes that an access touches, apart for each CTA; None if the address or the mask is unknown."""
    return access.touched(AxisArray((CTA,), np.arange(one.executed.sizes.get(CTA, 1))))


class _Again(Struct, frozen=True):
    """An operation that moves bytes again, and the first one that moved them."""

    moved: Moved
    first: Moved
    again_bytes: int

    @property
    def is_near(self) -> bool:
        """True if it follows the first one in the same iteration, or in the next one of a single loop."""
        loops = sum(owner.traits.is_loop for owner in self.moved.operation.ancestors())
        is_same = self.first.operation.block is self.moved.operation.block
        return is_same and (self.first is not self.moved or loops <= 1)


@row
def loaded_again(evidence: Evidence) -> Iterator[Waste]:
    """Yield loads of bytes that the CTA loaded before: in another loop, or in an earlier iteration of an outer one."""
    loads = moved_by(evidence.sample, reads=True)
    invariant = {one for loop in evidence.loops for one in invariant_operations(evidence.module, loop)}
    again = [one for one in _again(loads) if one.moved.operation not in invariant]
    if not again:
        return
    known = {load.operation for load in loads}
    reads = [(one, access) for one, access in accesses_in(evidence.sample) if access.form.reads]
    others = sum(access.max_bytes(one.times) or 0 for one, access in reads if one.operation not in known)
    share = sum(one.again_bytes for one in again) / (sum(one.requested_bytes for one in loads) + others)
    in_l1 = evidence.unit_shares_of(one.moved.operation for one in again)[SHARED]
    if max(share, in_l1 if evidence.parts.get(SHARED, 0.0) >= POSSIBLE else 0.0) < _MIN_AGAIN:
        return
    operations = tuple(dict.fromkeys(one.moved.operation for one in again))
    firsts = dict.fromkeys(one.first.operation for one in again)
    bypassing = [one for one in operations if _bypasses_l1(one)]
    is_near = all(one.is_near for one in again)
    is_in_l1 = not bypassing and (is_near or _fits_l1(evidence, loads))
    removed = _removed(evidence, again, 0.0 if is_in_l1 else share)
    unit = max((one for one in removed if one in (DRAM, L2, SHARED)), key=lambda one: evidence.parts.get(one, 0.0))
    worst = max(again, key=lambda one: one.again_bytes)
    times = "several times" if set(firsts) & set(operations) else "again"
    text = f"{_amounts(evidence, unit, loads)}: {evidence.words_of(worst.moved.operation)} fetches {times} what the "
    text += f"CTA already had, from the same addresses ({evidence.places_of([*firsts, *operations])})"
    each = round(each_bytes(evidence, loads))
    advice = f"{_ONE_LOOP}; or give a CTA so little at a time that its registers or shared memory keep it"
    if each <= evidence.kernel.num_warps * THREADS_PER_WARP * _KEPT_BYTES_OF_THREAD:
        advice = f"load it once: the {size_text(each)} of a CTA fit into its registers as one block; or {_ONE_LOOP}"
    advice, certainty = (_OF_NEIGHBOURS, _NEAR) if is_near else (advice, 1.0)
    if is_near and all(one.first is one.moved for one in again):
        advice, certainty = _OF_ITERATIONS, 0.7
    if bypassing:
        where, certainty = f"drop the cache modifier at {evidence.places_of(bypassing)}", 1.0
        advice = f"{where}, which bypasses the L1, unless other CTAs write the data; or {advice}"
    elif all(_is_of_tiles(evidence, one) for one in again):
        certainty = _OF_TILES
    yield Waste(text, advice, removed, operations, certainty=certainty)


def _is_of_tiles(evidence: Evidence, again: _Again) -> bool:
    load, first = again.moved.operation, again.first.operation
    is_of_dot = load.traits.starts_async or (load.loop and any(one.traits.is_dot for one in load.loop.walk()))
    return bool(is_of_dot) and evidence.place_of(load) == evidence.place_of(first)


def _again(loads: Sequence[Moved]) -> Iterator[_Again]:
    """Yield the operations that move bytes which an earlier one moved, or the same ones in several iterations."""
    seen, earlier = NOTHING, list[Moved]()
    for one in loads:
        size = one.touched.size_bytes
        if one.requested_bytes >= (1 + _MIN_OVERLAP) * size:
            yield _Again(one, one, one.requested_bytes - size)
        both = union((seen, one.touched))
        common = seen.size_bytes + size - both.size_bytes
        if common >= _MIN_OVERLAP * size:
            first = max(earlier, key=lambda other: common_bytes(other.touched, one.touched))
            yield _Again(one, first, common)
        seen = both
        earlier.append(one)


def common_bytes(one: Ranges, other: Ranges) -> int:
    """Return the number of bytes in both ranges."""
    return one.size_bytes + other.size_bytes - union((one, other)).size_bytes


def _removed(evidence: Evidence, again: Sequence[_Again], share: float) -> Mapping[str, float]:
    """Return the part of each unit's work that moves bytes again; ``share`` is that part of the L2's bytes."""
    removed = dict[str, float]()
    for one in again:
        part = one.again_bytes / one.moved.requested_bytes if one.first is one.moved else 1.0
        for unit, of_unit in evidence.unit_shares_of([one.moved.operation], part).items():
            removed[unit] = min(removed.get(unit, 0.0) + of_unit, 1.0)
    if not share:
        return removed
    removed |= dict.fromkeys((L2, L2_TO_SM), share)
    dram, measured = evidence.speed_of_light.dram, evidence.measured
    if dram is not None and measured is not None and evidence.dram_moved:
        # DRAM moves again what the L2 has lost.
        extra = measured.metric(counters.DRAM_READ_BYTES) - dram.read_bytes
        removed[DRAM] = max(min(extra / evidence.dram_moved, share), 0.0)
    return removed


def _fits_l1(evidence: Evidence, loads: Sequence[Moved]) -> bool:
    rates, waves = rates_of(evidence.kernel.target), evidence.summary.waves
    if rates is None or waves is None or any(one.operation.traits.starts_async for one in loads):
        return False
    resident = min(evidence.room or 1, -(-waves.ctas // waves.sms))
    each = each_bytes(evidence, loads) + (evidence.kernel.clean.shared_bytes or 0)
    return resident * each <= rates.l1_bytes


def each_bytes(evidence: Evidence, loads: Sequence[Moved]) -> float:
    """Return the bytes that a CTA loads, each once."""
    return union(one.touched for one in loads).size_bytes / len(evidence.ran.sampled_ctas)


def _amounts(evidence: Evidence, unit: str, loads: Sequence[Moved]) -> str:
    dram, measured = evidence.speed_of_light.dram, evidence.measured
    if unit == DRAM and dram is not None and measured is not None:
        read = measured.metric(counters.DRAM_READ_BYTES)
        return f"DRAM reads {size_text(round(read))} where {size_text(dram.read_bytes)} suffice"
    need = each_bytes(evidence, loads) * evidence.summary.ctas
    use = need * sum(one.requested_bytes for one in loads) / max(union(one.touched for one in loads).size_bytes, 1)
    whose = "the L1s deliver" if unit == SHARED else "the L2 delivers"
    return f"{whose} {size_text(round(use))} where {size_text(round(need))} suffice"


@row
def stored_again(evidence: Evidence) -> Iterator[Waste]:
    """Yield stores to addresses that the same CTA stored to before, and loads of what it stored itself."""
    stores, loads = (moved_by(evidence.sample, reads=reads) for reads in (False, True))
    again = list(_again(stores))
    stored = union(one.touched for one in stores)
    begin = min((one.operation.start for one in stores), default=0)
    own = [
        one
        for one in loads
        if one.operation.start > begin
        or ((loop := one.operation.loop) and any(other.moved.operation.loop is loop for other in again))
        if common_bytes(one.touched, stored) >= _MIN_OVERLAP * one.touched.size_bytes
    ]
    operations = tuple(dict.fromkeys([*(one.moved.operation for one in again), *(one.operation for one in own)]))
    if not operations:
        return
    whole = sum(one.requested_bytes for one in (*stores, *loads))
    share = (sum(one.again_bytes for one in again) + sum(one.requested_bytes for one in own)) / whole
    what = f"stores to the same addresses several times{', and loads from there' if own else ''}"
    what = what if again else "loads what it stored itself"
    text = f"a CTA {what} ({evidence.places_of(operations)}): {percent(share)} of the bytes that it moves"
    advice = "keep the value in registers (a variable that the loop carries), and store it once at the end"
    yield Waste(text, advice, {**evidence.unit_shares_of(operations), L2: share, L2_TO_SM: share}, operations)


@row
def past_l1(evidence: Evidence) -> Iterator[Waste]:
    """Yield gathers whose cache modifier bypasses the L1, although their addresses may repeat."""
    accesses = accesses_in(evidence.operations)
    reads = [one.operation for one, access in accesses if access.address is None and access.form.reads]
    gathers = [one for one in reads if not one.traits.is_atomic and _bypasses_l1(one) and is_tensor(one)]
    if not gathers:
        return
    text = f"a cache modifier makes gathers bypass the L1 ({evidence.names_of(gathers)}): elements that threads of an "
    text += "SM share come from the L2 each time"
    advice = f"drop the cache modifier at {evidence.places_of(gathers)} if elements repeat and no CTA writes them"
    removed = {L2: 1.0, L2_TO_SM: 1.0}
    # Other accesses queue after these: on an H200, 66 % of the warps' time cost 98 % of the launch's.
    gain = min(2 * evidence.time_share_of(gathers), 1 - evidence.necessary(removed))
    yield Waste(text, advice, removed, tuple(gathers), certainty=0.3, gain=gain)


def _bypasses_l1(load: Operation) -> bool:
    modifier = CACHE_MODIFIER.search(load.tail)
    return modifier is not None and modifier[1] in ("cg", "cv")
