"""Instructions that compute no result: addresses and masks of each element, threads that all do the same, spills."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.limits.limit import POSSIBLE
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, ISSUE
from kprof_inject.analysis.limits.stalls import share_of_instructions
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.quantities import counted, percent
from kprof_inject.ttgir.dialect import CALL, INTEGER_DIVISIONS
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.types import PrintedType, types_of

_MIN_SHARE = 0.15  # of all instructions
# Each access needs an address, which advances by an addition.
_NEEDED = 0.1
_WIDE_BITS = 64


@row
def address_arithmetic(evidence: Evidence) -> Iterator[Waste]:
    """Yield addresses and masks that take a notable part of the instructions: divisions, 64 bits, masks."""
    operations = [one for one in evidence.uses.of_addresses if not one.traits.is_constant]
    share = evidence.issued_share_of(operations)
    if share < _MIN_SHARE:
        return
    costs = {one: evidence.issued_share_of([one]) for one in operations if types_of(one)}
    worst = sorted((one for one in costs if costs[one]), key=lambda one: -costs[one])[:8]
    divisions = [one for one in worst if one.name in INTEGER_DIVISIONS]
    wide = [one for one in worst if any(its.bits == _WIDE_BITS and not its.is_pointer for its in types_of(one))]
    where = evidence.places_of(divisions or worst)
    if sum(costs[one] for one in divisions) >= share / 4:
        what, advice = f"most for the division or remainder of each element at {where}", _DIVISION
    elif sum(costs[one] for one in wide) >= share / 4:
        what, advice = f"most in 64 bits at {evidence.places_of(wide)}", _WIDE
    elif any(one.loop for one in worst):
        what, advice = f"most at {where}", _ADVANCE
    else:
        return  # each is computed once
    # Fewer instructions may save time if they take many issue slots, or nothing else is busy.
    issued = max((evidence.parts.get(unit, 0.0) for unit in (ISSUE, ALU, FP32)), default=1.0)
    is_issuing = issued >= POSSIBLE or evidence.busiest[1] < POSSIBLE
    text = f"{percent(share)} of the instructions only compute addresses and masks, {what}"
    removed = evidence.unit_shares_of(operations, 1 - _NEEDED)
    time_share = evidence.execution_share_of(operations) * (1 - _NEEDED) if is_issuing else 0.0
    shown = tuple(sorted(divisions or worst, key=lambda one: one.start))
    yield Waste(text, advice, removed, shown, time_share, certainty=0.6)


_DIVISION = (
    "do not divide for each element: let the program id, or a dimension of the tile, be the row; make the divisor a "
    "tl.constexpr (a power of two becomes a shift); or divide once for each row"
)
_WIDE = "index in 32 bits, and add a 64-bit base once to the pointer (tl.int64 only where offsets exceed 2**31)"
_ADVANCE = (
    "compute addresses once, and let pointers advance by a constant in the loop; leave out masks that are always true "
    "(a size that the tile divides, as tl.constexpr), or use tensor descriptors"
)


@row
def same_in_all_threads(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops that work on fewer elements than the CTA has threads: several threads do the same."""
    threads, function = evidence.kernel.num_warps * THREADS_PER_WARP, entry_function(evidence.module)
    polling = set(polling_loops(evidence.module, function)) if function else set()
    for loop in (one for one in evidence.loops if one not in polling):
        inside = [one for one in loop.walk() if one is not loop]
        work = [one for one in inside if one.traits.is_arithmetic or one.traits.reads_global]
        work = [one for one in work if not one.traits.is_constant]
        if not work or any(one.traits.is_loop or one.name == CALL for one in inside):
            continue
        elements = max(printed.elements for one in inside for printed in (*types_of(one), _SCALAR))
        repeated = 1 - elements / threads
        share = evidence.issued_share_of(work)
        if repeated < _MIN_REPEATED or share < _MIN_SHARE:
            continue
        more, warps = "single elements" if elements == 1 else f"{elements}", evidence.kernel.num_warps
        fewer = f", or use fewer warps (num_warps is {warps})" if warps > 1 else ""
        text = f"the {threads} threads of a CTA do the same in {evidence.name_around(work[0])}: its largest tensor "
        text += f"has {counted(elements, 'element')} ({evidence.places_of(work)}: {percent(share)} of the instructions)"
        advice = f"work on a block of elements at a time in place of {more} (a vector that is loaded, compared or "
        advice += f"reduced at once){fewer}"
        removed, time_share = evidence.unit_shares_of(work, repeated), evidence.time_share_of([loop]) * repeated
        yield Waste(text, advice, removed, tuple(work), time_share, certainty=0.7)


_MIN_REPEATED = 0.5
_SCALAR = PrintedType("", (), "i32")
_LOCAL_ACCESSES = frozenset(("LDL", "STL"))
_MIN_SPILLED = 0.1  # of the warps' time


@row
def spills(evidence: Evidence) -> Iterator[Waste]:
    """Yield spills whose accesses take a notable part of the instructions or of the warps' time."""
    spilled = evidence.kernel.clean.spills
    if not spilled or evidence.machine_code is None:
        return
    record = evidence.kernel.measurements
    if record is not None and record.samples is not None:
        share = share_of_instructions(record.samples, evidence.machine_code, _LOCAL_ACCESSES)
    else:
        share = sum(part for one, part in evidence.issued if one.operation in _LOCAL_ACCESSES)
    if share < _MIN_SPILLED:
        return
    waste = evidence.dram_waste  # what does not fit into the L2
    text = f"registers do not suffice: each thread keeps {spilled} in local memory, whose accesses take "
    text += f"{percent(share)} of the warps' time"
    advice = "use fewer registers per thread: more warps (num_warps), or smaller tiles"
    advice += ", or no maxnreg" if evidence.kernel.metadata.get("maxnreg") else ""
    removed = {**dict.fromkeys(evidence.parts, 1.0), DRAM: 1.0 if waste is None else waste}
    yield Waste(text, advice, removed, time_share=share, figures={"time_share": share})
