"""Accesses that take shared memory longer than their bytes require."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.roofs.unit_rates import SHARED
from kprof_inject.analysis.structure.banks import conflict_cycles, is_transposed, min_cycles
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent


def bank_conflicts(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield accesses to shared memory with bank conflicts.

    The cycles are a lower bound, from the layouts; an SM has one shared memory.
    """
    if evidence.executed is None or not evidence.sm_cycles:
        return
    aliases = evidence.executed.module.aliases
    for one in evidence.executed.operations:
        each = conflict_cycles(one.operation, aliases)
        share = min(each * (one.whole_times or 0) / evidence.sm_cycles, 1.0)
        if share < MIN_SHARE:
            continue
        # The layouts show a lower bound of the conflicts.
        removed, advice = max(share, evidence.measured.conflict_share if evidence.measured else 0.0), _OTHER_LAYOUT
        if is_transposed(one.operation, aliases):
            removed, advice = 1 - (1 - removed) * _REST_OF_COPY, _TRANSPOSED
        gain = max(share, evidence.max_gain({SHARED: removed}))
        yield _finding(evidence, one, each, share, gain, advice)


# Operands that need not be transposed are copied to shared memory past the registers: no thread loads or stores them.
_REST_OF_COPY = 0.5


def _finding(evidence: Evidence, one: CountedOperation, each: int, share: float, gain: float, advice: str) -> Finding:
    least, roof = min_cycles(one.operation), evidence.roof_around(one.operation)
    where = f" in {evidence.name_of(roof)}" if roof else ""
    return evidence.at(
        [one.operation],
        Finding(
            rule="bank-conflicts",
            scope=None,
            share=gain,
            text=f"bank conflicts: {one.operation.name}{where} ({evidence.place_of(one.operation)}) occupies shared "
            f"memory for {each + least} cycles instead of {least}, {percent(share)} of the SMs' time: threads of a "
            "warp access the same bank, or less than its 4 bytes",
            advice=advice,
            figures={"cycles": each + least, "least_cycles": least, "times": one.whole_times or 0},
            likely=(share + gain) / 2,
        ),
    )


_TRANSPOSED = (
    "store the tensor transposed in global memory, or transpose it once before the kernel: the tile's rows become "
    "columns in shared memory (Hopper's tensor cores need operands along K, unless their elements have 16 bits)"
)
_OTHER_LAYOUT = "try another shape of the tile, or another layout of the tensor in global memory"
