"""Units that work in turn, on dots without tensor cores, on bank conflicts, or on spilled registers."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Finding
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.roofs.limits import DRAM, LIMITING, MIN_NOTABLE, MIN_TOGETHER, POSSIBLE, UNIT_NAMES
from kprof_inject.analysis.roofs.operation_work import work_of
from kprof_inject.analysis.roofs.unit_rates import ALU, FP32, ISSUE, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.structure.banks import conflict_cycles, is_transposed, min_cycles
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.resources import BLACKWELL
from kprof_inject.quantities import percent


def alternating_units(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield tensor cores that rest while other arithmetic goes on, and the other way round."""
    tensor = evidence.parts.get(TENSOR, 0.0)
    other = max((SPECIAL, FP32), key=lambda unit: evidence.parts.get(unit, 0.0))
    part = evidence.parts.get(other, 0.0)
    if min(tensor, part) < MIN_NOTABLE or tensor + part < MIN_TOGETHER or evidence.busiest[1] >= LIMITING:
        return
    share = evidence.max_gain()
    if share < MIN_SHARE:
        return
    backend, _, architecture = evidence.kernel.target.partition(":")
    is_specializable = backend == "cuda" and int(architecture) >= BLACKWELL
    specialized = ", or warp specialization (tl.range(..., warp_specialize=True))" if is_specializable else ""
    room = evidence.kernel.clean.ctas_per_sm
    more_than = f" than the {room} that {'fits' if room == 1 else 'fit'} now" if room else ""
    yield Finding(
        rule="alternating-units",
        scope=None,
        share=share,
        text=f"{UNIT_NAMES[TENSOR]} ({percent(tensor)} of peak) and {UNIT_NAMES[other]} ({percent(part)}) work in turn",
        advice=f"let dots overlap the other arithmetic: more CTAs on an SM{more_than} (fewer registers, smaller "
        f"tiles), or two halves of a tile that take turns{specialized}",
        figures={"tensor": tensor, "other": part},
        likely=share / 3,
    )


def fp32_dots(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield dots that multiply with the fp32 units, if these or the issue of their instructions limit the launch."""
    busy = max((evidence.parts.get(unit, 0.0) for unit in (FP32, ISSUE, SHARED)), default=0.0)
    if evidence.executed is None or busy < POSSIBLE:
        return
    aliases = evidence.executed.module.aliases
    dots = [
        one.operation
        for one in evidence.executed.operations
        if one.operation.traits.is_dot and work_of(one.operation, aliases).multiplications
    ]
    if not dots:
        return
    share = evidence.max_gain(dict.fromkeys((FP32, ALU, ISSUE, SHARED), max(evidence.issued_share_of(dots), POSSIBLE)))
    if share < MIN_SHARE:
        return
    yield evidence.at(
        dots,
        Finding(
            rule="fp32-dots",
            scope=None,
            share=share,
            text=f"{evidence.words_of(dots[0])} multiplies with the fp32 units "
            f"({percent(evidence.parts.get(FP32, 0.0))} of peak), not with the tensor cores",
            advice="use the tensor cores: input_precision='tf32' or 'tf32x3' in tl.dot, or operands of 16 bits, if the "
            "results stay accurate enough",
            figures={"dots": len(dots)},
            likely=0.8 * share,
        ),
    )


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
        yield _conflict(evidence, one, each, share, gain, advice)


# Operands that need not be transposed are copied to shared memory past the registers: no thread loads or stores them.
_REST_OF_COPY = 0.5


def _conflict(evidence: Evidence, one: CountedOperation, each: int, share: float, gain: float, advice: str) -> Finding:
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


_LOCAL_ACCESSES = frozenset(("LDL", "STL"))


def spills(evidence: Evidence) -> Iterator[Finding | Unjudged]:
    """Yield spills whose accesses take a notable part of the instructions or of the warps' time."""
    spilled = evidence.kernel.clean.spills
    if not spilled or evidence.machine_code is None:
        return
    share = evidence.time_share_of_instructions(_LOCAL_ACCESSES)
    waste = evidence.dram_waste  # what does not fit into the L2
    removed = {**dict.fromkeys(evidence.parts, 1.0), DRAM: 1.0 if waste is None else waste}
    gain = min(share, evidence.max_gain(removed))
    if gain < MIN_SHARE:
        return
    yield Finding(
        rule="spills",
        scope=None,
        share=gain,
        text=f"registers do not suffice: each thread keeps {spilled} in local memory, whose accesses take "
        f"{percent(share)} of the warps' time",
        advice="use fewer registers per thread: more warps (num_warps), or smaller tiles"
        + (", or no maxnreg" if evidence.kernel.metadata.get("maxnreg") else ""),
        figures={"spills": spilled, "time_share": share},
    )
