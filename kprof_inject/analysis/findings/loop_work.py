"""Work in each iteration of a loop that could be done once: what does not depend on the iteration, and reductions."""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import Finding, Results, found, rule
from kprof_inject.analysis.structure.dependence import (
    accumulation_of,
    invariant_operations,
    varying_names,
)
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.dialect import DIVISIONS, INTEGER_DIVISIONS
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import types_of

# These edits are small, and their gain is measured where they are: less would be within noise.
_MIN_SHARE = 0.05
_MAX_NAMES = 3
# ptxas unrolls loops by 4 if no barrier is in the way. Loads of the four iterations then overlap.
_MAX_OVERLAP = 0.75
# On an H100, such edits won up to twice the time of the operations that they removed.
_LIKELY = 1.5
_REDUCTION = "tt.reduce"
# One reduction is left after the loop, and accumulators for all elements take registers.
_MIN_ITERATIONS = 4


@rule()
def loop_invariant(evidence: Evidence) -> Results:
    """Yield loads and costly arithmetic that a loop repeats, and divisions by a value that is always the same.

    The compiler moves pure operations out of a loop, but no load if the loop may write to memory.
    """
    if evidence.executed is None:
        return
    module, seen = evidence.executed.module, set[Operation]()
    for loop in evidence.loops:
        repeated = [one for one in invariant_operations(module, loop) if one not in seen and _is_costly(one)]
        divided = [one for one in _divisions_by_invariants(module, loop) if one not in seen]
        seen.update(repeated, divided)
        if not (repeated or divided):
            continue
        share = evidence.execution_share_of([*repeated, *divided])
        if share >= _MIN_SHARE:
            yield _invariant_finding(evidence, loop, repeated, divided, share)


def _is_costly(one: Operation) -> bool:
    if one.traits.reads_global or one.name == _REDUCTION:
        return True
    is_slow = one.traits.is_transcendental or one.name in (*DIVISIONS, *INTEGER_DIVISIONS)
    return is_slow and any(printed.shape for printed in types_of(one))


def _divisions_by_invariants(module: Module, loop: Operation) -> list[Operation]:
    varying = varying_names(module, loop)
    divisions = []
    for one in body_of(loop):
        names = operand_names(one)
        is_division = one.name in DIVISIONS and len(names) == 2 and any(printed.shape for printed in types_of(one))
        if is_division and names[0] in varying and names[1] not in varying:
            divisions.append(one)
    return divisions


def _invariant_finding(
    evidence: Evidence, loop: Operation, repeated: Sequence[Operation], divided: Sequence[Operation], share: float
) -> Finding:
    removed = [*repeated, *divided]
    gain = evidence.max_gain_without(removed, share)
    if evidence.stalls and any(one.name == _REDUCTION for one in repeated):
        # Iterations also overlap without the barriers of reductions: no warp then waits for each load alone.
        loads = [one for one in body_of(loop) if one.traits.reads_global]
        waits = evidence.stalls.share_of_waits(evidence.lines_of(loads))
        gain = max(min(gain + _MAX_OVERLAP * waits, evidence.max_gain()), gain)
    advice = []
    if repeated:
        names = evidence.names_of(repeated)
        advice.append(f"move {names} before the loop")
        if any(one.traits.reads_global for one in repeated):
            advice.append("the compiler does not, as the loop also writes to memory that might overlap")
    if divided:
        names = listed([evidence.place_of(one) for one in divided], _MAX_NAMES)
        advice.append(f"compute the reciprocal of the divisor before the loop, and multiply by it at {names}")
    return found(
        evidence,
        gain,
        text=f"{evidence.name_around(removed[0])} does in each iteration what does not depend on it: "
        f"{evidence.names_of(removed)} take{'s' if len(removed) == 1 else ''} {percent(share)} of the warps' time",
        advice="; ".join(advice),
        figures={"operations": len(repeated), "divisions": len(divided), "time_share": share},
        likely=min(_LIKELY * share, gain),
        at=removed,
    )


@rule()
def reduction_in_loop(evidence: Evidence) -> Results:
    """Yield loops that reduce over threads in each iteration, though only the sum of all results is needed."""
    if evidence.executed is None:
        return
    module = evidence.executed.module
    for loop in evidence.loops:
        sums = [
            one for one in body_of(loop) if one.name == _REDUCTION and accumulation_of(module, loop, one) is not None
        ]
        share = evidence.time_share_of(sums) if sums else 0.0
        if share < _MIN_SHARE or (iterations := evidence.iterations_of(loop)) < _MIN_ITERATIONS:
            continue
        gain = evidence.max_gain_without(sums, share) * (1 - 1 / iterations)  # one is left, after the loop
        yield found(
            evidence,
            gain,
            text=f"{evidence.name_around(sums[0])} reduces over threads in each iteration, only to accumulate the "
            f"results: {evidence.names_of(sums)} take{'s' if len(sums) == 1 else ''} {percent(share)} of the warps' "
            "time",
            advice="accumulate the tensor element by element in the loop, and reduce it once after the loop (the order "
            "of additions changes)",
            figures={"reductions": len(sums), "time_share": share},
            likely=min(_LIKELY * share, gain),
            at=sums,
        )
