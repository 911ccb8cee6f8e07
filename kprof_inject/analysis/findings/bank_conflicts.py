"""Accesses to shared memory that take its banks longer than their bytes would."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.finding import MIN_SHARE, Evidence, Finding
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.structure.banks import conflict_cycles, least_cycles, turns_around
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.quantities import percent


def bank_conflicts(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """The cycles are the least that the layouts allow, and an SM has one shared memory."""
    if evidence.ran is None or not evidence.sm_cycles:
        return
    aliases = evidence.ran.module.aliases
    for one in evidence.ran.operations:
        each = conflict_cycles(one.operation, aliases)
        share = each * (one.whole_times or 0) / evidence.sm_cycles
        if share >= MIN_SHARE:
            advice = _TURNED if turns_around(one.operation, aliases) else _OTHER_LAYOUT
            yield _finding(evidence, one, each, min(share, 1.0), advice)


def _finding(evidence: Evidence, one: CountedOperation, each: int, share: float, advice: str) -> Finding:
    least, roof = least_cycles(one.operation), evidence.roof_around(one.operation)
    where = f" in {evidence.name_of(roof)}" if roof else ""
    return Finding(
        rule="bank-conflicts",
        scope=roof.scope if roof else None,
        index=roof.index if roof else None,
        share=share,
        text=f"{one.operation.name}{where} ({evidence.place_of(one)}) takes shared memory {each + least} cycles "
        f"instead of {least}, because the threads of a warp access the same banks, or less than a bank's 4 bytes "
        f"each: {percent(share)} of the SMs' time",
        advice=advice,
        figures={"cycles": each + least, "least_cycles": least, "times": one.whole_times or 0},
    )


_TURNED = (
    "the tile's rows become columns in shared memory: store the tensor transposed in global memory, or transpose it "
    "once before the kernel (Hopper's tensor cores want operands along K, unless their elements have 16 bits)"
)
_OTHER_LAYOUT = "try another shape of the tile, or another layout of the tensor in global memory"
