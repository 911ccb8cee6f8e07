"""Work of shared memory that results do not need: bank conflicts, and barriers that order nothing."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE
from kprof_inject.analysis.findings.waste import Waste, row
from kprof_inject.analysis.limits.rates import SHARED
from kprof_inject.analysis.structure.layouts import conflict_cycles, is_transposed, min_cycles
from kprof_inject.quantities import percent


@row
def bank_conflicts(evidence: Evidence) -> Iterator[Waste]:
    """Yield accesses to shared memory with bank conflicts.

    The cycles are a lower bound, from the layouts; an SM has one shared memory.
    """
    if not evidence.sm_cycles:
        return
    for one in evidence.operations:
        each = conflict_cycles(one.operation, evidence.module.aliases)
        share = min(each * (one.whole_times or 0) / evidence.sm_cycles, 1.0)
        if share < MIN_SHARE:
            continue
        # The layouts show a lower bound of the conflicts.
        removed, advice = max(share, evidence.measured.conflict_share if evidence.measured else 0.0), _OTHER_LAYOUT
        if is_transposed(one.operation, evidence.module.aliases):
            removed, advice = 1 - (1 - removed) * _REST_OF_COPY, _TRANSPOSED
        least, roof = min_cycles(one.operation), evidence.roof_around(one.operation)
        where = f" in {evidence.name_of(roof)}" if roof else ""
        text = f"bank conflicts: {one.operation.name}{where} ({evidence.place_of(one.operation)}) occupies shared "
        text += f"memory for {each + least} cycles instead of {least}, {percent(share)} of the SMs' time: threads of a "
        text += "warp access the same bank, or less than its 4 bytes"
        yield Waste(
            text,
            advice,
            {SHARED: removed},
            (one.operation,),
            time_share=share,
            figures={"cycles": each + least, "least_cycles": least, "times": one.whole_times or 0},
        )


# Operands that need not be transposed are copied to shared memory past the registers: no thread loads or stores them.
_REST_OF_COPY = 0.5
_TRANSPOSED = (
    "store the tensor transposed in global memory, or transpose it once before the kernel: the tile's rows become "
    "columns in shared memory (Hopper's tensor cores need operands along K, unless their elements have 16 bits)"
)
_OTHER_LAYOUT = "try another shape of the tile, or another layout of the tensor in global memory"


_BARRIERS = frozenset(("gpu.barrier", "ttg.barrier", "ttg.local_barrier"))


@row
def needless_barriers(evidence: Evidence) -> Iterator[Waste]:
    """Yield barriers of the kernel's own in a loop that accesses no shared memory: nothing needs their order."""
    for loop in evidence.loops:
        inside = [one for one in loop.walk() if one is not loop]
        own = [one for one in inside if one.name in _BARRIERS]
        if not own or any(one.traits.accesses_shared or one.traits.is_atomic for one in inside):
            continue
        share = evidence.stalls.share_of_barriers(evidence.lines_of(own)) if evidence.stalls else 0.0
        text = f"each iteration of {evidence.name_around(own[0])} waits at a barrier that orders no access to shared "
        text += f"memory ({evidence.places_of(own)}): {percent(share)} of the warps' time"
        advice = "remove tl.debug_barrier: the compiler inserts the barriers that are needed"
        yield Waste(text, advice, evidence.unit_shares_of(own), tuple(own), time_share=share, certainty=0.5)
