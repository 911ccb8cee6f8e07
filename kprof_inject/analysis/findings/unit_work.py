"""Work that units need not do: in turn, on dots without tensor cores, on bank conflicts, spills, special functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.findings.finding import MIN_SHARE, Results, found, rule
from kprof_inject.analysis.roofs.limits import DRAM, LIMITING, MIN_NOTABLE, MIN_TOGETHER, POSSIBLE, UNIT_NAMES
from kprof_inject.analysis.roofs.operation_work import work_of
from kprof_inject.analysis.roofs.rates import ALU, FP32, ISSUE, SHARED, SPECIAL, TENSOR
from kprof_inject.analysis.structure.banks import conflict_cycles, is_transposed, min_cycles
from kprof_inject.capture.resources import BLACKWELL
from kprof_inject.quantities import listed, percent
from kprof_inject.ttgir.dialect import DIVISIONS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names
from kprof_inject.ttgir.types import types_of


@rule()
def alternating_units(evidence: Evidence) -> Results:
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
    yield found(
        evidence,
        share=share,
        text=f"{UNIT_NAMES[TENSOR]} ({percent(tensor)} of peak) and {UNIT_NAMES[other]} ({percent(part)}) work in turn",
        advice=f"let dots overlap the other arithmetic: more CTAs on an SM{more_than} (fewer registers, smaller "
        f"tiles), or two halves of a tile that take turns{specialized}",
        figures={"tensor": tensor, "other": part},
        likely=share / 3,
    )


@rule()
def fp32_dots(evidence: Evidence) -> Results:
    """Yield dots that multiply with the fp32 units, if these or the issue of their instructions limit the launch."""
    busy = max((evidence.parts.get(unit, 0.0) for unit in (FP32, ISSUE, SHARED)), default=0.0)
    if busy < POSSIBLE:
        return
    dots = [
        one.operation
        for one in evidence.operations
        if one.operation.traits.is_dot and work_of(one.operation, evidence.aliases).multiplications
    ]
    if not dots:
        return
    share = evidence.max_gain(dict.fromkeys((FP32, ALU, ISSUE, SHARED), max(evidence.issued_share_of(dots), POSSIBLE)))
    if share < MIN_SHARE:
        return
    yield found(
        evidence,
        share=share,
        text=f"{evidence.words_of(dots[0])} multiplies with the fp32 units "
        f"({percent(evidence.parts.get(FP32, 0.0))} of peak), not with the tensor cores",
        advice="use the tensor cores: input_precision='tf32' or 'tf32x3' in tl.dot, or operands of 16 bits, if the "
        "results stay accurate enough",
        figures={"dots": len(dots)},
        likely=0.8 * share,
        at=dots,
    )


@rule()
def bank_conflicts(evidence: Evidence) -> Results:
    """Yield accesses to shared memory with bank conflicts.

    The cycles are a lower bound, from the layouts; an SM has one shared memory.
    """
    if not evidence.sm_cycles:
        return
    for one in evidence.operations:
        each = conflict_cycles(one.operation, evidence.aliases)
        share = min(each * (one.whole_times or 0) / evidence.sm_cycles, 1.0)
        if share < MIN_SHARE:
            continue
        # The layouts show a lower bound of the conflicts.
        removed, advice = max(share, evidence.measured.conflict_share if evidence.measured else 0.0), _OTHER_LAYOUT
        if is_transposed(one.operation, evidence.aliases):
            removed, advice = 1 - (1 - removed) * _REST_OF_COPY, _TRANSPOSED
        gain = max(share, evidence.max_gain({SHARED: removed}))
        least, roof = min_cycles(one.operation), evidence.roof_around(one.operation)
        where = f" in {evidence.name_of(roof)}" if roof else ""
        yield found(
            evidence,
            gain,
            text=f"bank conflicts: {one.operation.name}{where} ({evidence.place_of(one.operation)}) occupies shared "
            f"memory for {each + least} cycles instead of {least}, {percent(share)} of the SMs' time: threads of a "
            "warp access the same bank, or less than its 4 bytes",
            advice=advice,
            figures={"cycles": each + least, "least_cycles": least, "times": one.whole_times or 0},
            likely=(share + gain) / 2,
            at=[one.operation],
        )


# Operands that need not be transposed are copied to shared memory past the registers: no thread loads or stores them.
_REST_OF_COPY = 0.5
_TRANSPOSED = (
    "store the tensor transposed in global memory, or transpose it once before the kernel: the tile's rows become "
    "columns in shared memory (Hopper's tensor cores need operands along K, unless their elements have 16 bits)"
)
_OTHER_LAYOUT = "try another shape of the tile, or another layout of the tensor in global memory"


_LOCAL_ACCESSES = frozenset(("LDL", "STL"))


@rule()
def spills(evidence: Evidence) -> Results:
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
    yield found(
        evidence,
        share=gain,
        text=f"registers do not suffice: each thread keeps {spilled} in local memory, whose accesses take "
        f"{percent(share)} of the warps' time",
        advice="use fewer registers per thread: more warps (num_warps), or smaller tiles"
        + (", or no maxnreg" if evidence.kernel.metadata.get("maxnreg") else ""),
        figures={"spills": spilled, "time_share": share},
    )


_EXP = frozenset(("math.exp", "math.exp2"))
_LOG = frozenset(("math.log", "math.log2"))
_SQRT = frozenset(("math.sqrt", "tt.precise_sqrt"))
# With the busiest of these units below, other things limit the launch.
_MIN_BUSY = 0.5
_ARITHMETIC = (SPECIAL, FP32, ALU, ISSUE)
# If memory is busier by more than this, fewer special functions hardly help; of other arithmetic, they are a part.
_MIN_OF_MEMORY = 0.85
# Less of the special functions, or of all instructions, is not worth an edit.
_MIN_REMOVED = 0.05
_MAX_NAMES = 3


class _Removable(Struct, frozen=True):
    """Operations that an equal expression does not need."""

    operations: tuple[Operation, ...]
    root: Operation
    edit: str
    """The edit, such as *exp(a) * exp(b) is exp(a + b)*."""


_Operands = Sequence[Operation | None]


def _both(operands: _Operands, names: frozenset[str], edit: str) -> str:
    is_fitting = len(operands) == 2 and all(one is not None and one.name in names for one in operands)
    return edit if is_fitting else ""


_PATTERNS: Mapping[str, Callable[[_Operands], str]] = {
    "arith.mulf": lambda operands: (
        _both(operands, _EXP, "exp(a) * exp(b) is exp(a + b)")
        or _both(operands, _SQRT, "sqrt(a) * sqrt(b) is sqrt(a * b)")
    ),
    "arith.addf": lambda operands: _both(operands, _LOG, "log(a) + log(b) is log(a * b)"),
    "arith.subf": lambda operands: _both(operands, _LOG, "log(a) - log(b) is log(a / b)"),
}


@rule()
def special_functions(evidence: Evidence) -> Results:
    """Yield special functions that an equal expression would not need; else where a busy unit's work comes from."""
    busy = max((evidence.parts.get(unit, 0.0) for unit in _ARITHMETIC), default=0.0)
    if busy < _MIN_BUSY:
        return
    counts = {
        one.operation: special * one.times
        for one in evidence.operations
        if one.times and (special := work_of(one.operation, evidence.aliases).special)
    }
    whole = sum(counts.values())
    if not whole:
        return
    removable = list(_removable(evidence, counts))
    removed = {operation for one in removable for operation in one.operations}
    special = sum(counts.get(one, 0.0) for one in removed) / whole
    issued = evidence.issued_share_of(removed.union(one.root for one in removable)) if removable else 0.0
    share = evidence.max_gain({SPECIAL: special, **dict.fromkeys((FP32, ALU, ISSUE), issued)})
    if max(special, issued) >= _MIN_REMOVED and share >= MIN_SHARE:
        places: dict[str, str] = {}
        for one in removable:
            places.setdefault(one.edit, evidence.place_of(one.root))
        edits = listed([f"{edit} ({place})" for edit, place in places.items()], _MAX_NAMES)
        busiest = max(_ARITHMETIC, key=lambda unit: evidence.parts.get(unit, 0.0))
        yield found(
            evidence,
            share,
            text=f"{percent(special)} of the special functions are not needed; {busiest} at "
            f"{percent(evidence.parts[busiest])} of peak",
            advice=f"use fewer special functions: {edits}",
            figures={"removable": len(removable), "removable_share": special},
            lines_of=removed,
        )
        return
    # No expression is known to be equal, but the unit may limit the launch.
    memory = max((part for unit, part in evidence.parts.items() if unit not in _ARITHMETIC), default=0.0)
    if evidence.parts.get(SPECIAL, 0.0) >= max(_MIN_BUSY, _MIN_OF_MEMORY * memory):
        often: Counter[str] = Counter()
        for operation, count in counts.items():
            often[evidence.words_of(operation)] += round(count)
        where = listed([f"{words} ({percent(count / whole)})" for words, count in often.most_common()], _MAX_NAMES)
        share = evidence.max_gain({SPECIAL: 1.0})
        yield found(
            evidence,
            share,
            text=f"the special function units are at {percent(evidence.parts[SPECIAL])} of peak: {where}",
            advice="use fewer special functions (exponentials, divisions, square roots): fold factors into exp2, "
            "compute a reciprocal once and multiply, compute on fewer elements, or replace some by polynomials of "
            "multiply-adds",
            figures={"removable": 0},
            likely=share / 2,
            lines_of=counts,
        )


def _removable(evidence: Evidence, counts: Mapping[Operation, float]) -> Iterator[_Removable]:
    divisions: dict[str, list[Operation]] = {}
    joined: dict[Operation, Operation | None] = {}  # products and sums of functions, with the function that they keep
    for one in (counted.operation for counted in evidence.operations):
        may_match = one.name in _PATTERNS or one.name in DIVISIONS or one.traits.is_transcendental
        operands = [definition_of(name, one) for name in operand_names(one)] if may_match else []
        if one.name in _PATTERNS:
            functions = [joined.get(operand, operand) if operand is not None else None for operand in operands]
            if edit := _PATTERNS[one.name](functions):
                joined[one] = functions[0]
                yield _Removable(tuple(other for other in functions[1:] if other is not None), one, edit)
        if one.name in DIVISIONS and len(operands) == 2:
            if one in counts:
                divisions.setdefault(operand_names(one)[1], []).append(one)
            simpler = [_of_division(one, operands)]
        else:
            simpler = [_of_power(one, operands) if one.name in _EXP else None]
        simpler.append(_of_broadcast(one, operands) if one in counts else None)
        yield from filter(None, simpler)
    for same in divisions.values():
        if len(same) > 1:
            yield _Removable(tuple(same[1:]), same[0], "several divisions by one value: compute its reciprocal once")


def _of_division(one: Operation, operands: _Operands) -> _Removable | None:
    dividend, divisor = operands
    if divisor is not None and divisor.name in _EXP:
        if dividend is not None and dividend.name in _EXP:
            return _Removable((one, divisor), one, "exp(a) / exp(b) is exp(a - b)")
        return _Removable((one,), one, "x / exp(a) is x * exp(-a)")
    if divisor is not None and divisor.name in _SQRT:
        return _Removable((one,), one, "x / sqrt(a) is x * rsqrt(a)")
    return None


def _of_power(one: Operation, operands: _Operands) -> _Removable | None:
    """Return an exponential of a logarithm, or of a multiple of one, with the logarithm."""
    (inner,) = operands or (None,)
    if inner is None:
        return None
    if inner.name in _LOG:
        return _Removable((one, inner), one, "exp(log(a)) is a")
    factors = [definition_of(name, inner) for name in operand_names(inner)] if inner.name == "arith.mulf" else []
    logarithm = next((factor for factor in factors if factor is not None and factor.name in _LOG), None)
    if logarithm is None:
        return None
    return _Removable((one, logarithm), one, "exp(c * log(a)) is a ** c: multiplications, if c is whole")


def _of_broadcast(one: Operation, operands: _Operands) -> _Removable | None:
    """Return a function of elements that are copies of fewer: it could be computed before they are copied."""
    made, types = operands[0] if operands else None, types_of(one)
    if len(operands) != 1 or not types:
        return None
    while made is not None and made.traits.keeps_elements:
        if types_of(made)[0].elements < types[-1].elements:
            return _Removable(
                (one,), one, f"{one.name.rpartition('.')[2]} of a broadcast: compute it before the broadcast"
            )
        made = definition_of(operand_names(made)[0], made)
    return None
