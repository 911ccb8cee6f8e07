"""Types that are wider than the values in them: in memory, and in arithmetic."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kprof_inject.analysis.findings.evidence import Evidence, accesses_in, is_tensor
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.interpreter.executions import CountedOperation
from kprof_inject.analysis.limits.limit import POSSIBLE
from kprof_inject.analysis.limits.operation_work import work_of
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, FP64, ISSUE, L2, L2_TO_SM, SHARED, TENSOR, WGMMA_TARGET
from kprof_inject.analysis.structure.values import Uses
from kprof_inject.quantities import percent
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.types import bits_of, factors_of, types_of

_NARROWING = frozenset(("arith.truncf", "arith.trunci", "tt.fp_to_fp"))
_WIDENING = frozenset(("arith.extf", "arith.extsi", "arith.extui", "arith.sitofp", "arith.uitofp", "tt.fp_to_fp"))
_COPY = "ttg.async_copy_global_to_local"
_BYTE, _HALF_BITS, _FLOAT_BITS, _DOUBLE = 8, 16, 32, "f64"
_MIN_WIDE = 0.1  # of the bytes that a launch moves
_CONVERTED = 0.9  # unconverted, operands pass the registers by and take half of shared memory, or less
_OF_DOUBLES = 0.8  # functions of fp64 take ten times the instructions; a sum takes as many as in fp32, at half the rate
_IMPRECISE = re.compile(r"maxNumImpreciseAcc = (\d+)")  # only for fp8 dots on sm_90 (Triton, language/semantic.py)


@row
def wide_types(evidence: Evidence) -> Iterator[Waste]:
    """Yield loads of values that are converted to a narrower type at once, and stores of values that came from one."""
    whole, wide = 0.0, dict[Operation, tuple[float, int, int]]()
    for one, access in accesses_in(evidence.sample):
        if one.operation.traits.is_atomic or not (moved := access.distinct_bytes(one.times)):
            continue
        whole += moved
        bits, needed = 8 * access.element_bytes, _needed_bits(evidence.uses, one)
        if 0 < needed < bits:
            wide[one.operation] = moved * (1 - needed / bits), bits, needed
    share = sum(saved for saved, *_ in wide.values()) / whole if whole else 0.0
    if share < _MIN_WIDE:
        return
    worst = max(wide, key=lambda operation: wide[operation][0])
    _, bits, needed = wide[worst]
    way = "stored from" if worst.traits.writes_global else "converted at once to"
    text = f"memory moves wider types than the values need: {evidence.words_of(worst)} has {bits} bits an element, "
    text += f"{way} {needed}; {percent(share)} of all bytes would go"
    advice = f"store the tensor with {needed} bits an element: its producer must write that type, or its consumer "
    advice += "read it"
    yield Waste(text, advice, removed=dict.fromkeys((DRAM, L2, L2_TO_SM, SHARED), share), operations=tuple(wide))


def _needed_bits(uses: Uses, one: CountedOperation) -> int:
    """Return the bits that an element in memory needs by the conversions after its load, or before its store."""
    operation = one.operation
    if operation.traits.writes_global:
        made = uses.origin(operation, 1)
        source = uses.origin(made, 0) if made and made.name in _WIDENING else None
        if made is None or source is None or source.traits.reads_memory:
            return 0  # or the conversion is what the kernel is for
        return max(_converted(made)[0], _BYTE)
    if operation.name == _COPY:
        slot = uses.maker(operation, 1)
        allocation = uses.origin(slot, 0) if slot else None
        users = [user for user, _ in uses.readers(allocation or slot or operation) if user.name != _COPY]
        users = [user for user in users if user.name != "ttg.local_dealloc"]
    else:
        users = [user for user, _ in uses.readers(operation)]
    if not users or any(user.name not in _NARROWING for user in users):
        return 0
    if all(reader.traits.writes_global for user in users for reader, _ in uses.readers(user)):
        return 0  # the conversion is what the kernel is for
    return max(*(_converted(user)[1] for user in users), _BYTE)


def _converted(conversion: Operation) -> tuple[int, int]:
    types = types_of(conversion)
    return (bits_of(types[0].element), bits_of(types[-1].element)) if types else (0, 0)


@row
def fp32_dots(evidence: Evidence) -> Iterator[Waste]:
    """Yield dots of 32 bits whose operands have 16 bits of information or fewer, or that use no tensor cores."""
    uses = evidence.uses
    widened, others = dict[Operation, list[Operation]](), list[Operation]()
    for one in evidence.operations:
        factors = factors_of(one.operation) if one.operation.traits.is_dot else ()
        if len(factors) != 2 or any(bits_of(factor.element) != _FLOAT_BITS for factor in factors):
            continue
        sources = [uses.origin(one.operation, place) for place in (0, 1)]
        conversions = [source for source in sources if source is not None and source.name in _WIDENING]
        if len(conversions) == len(sources) and all(0 < _converted(each)[0] <= _HALF_BITS for each in conversions):
            widened[one.operation] = conversions
        elif work_of(one.operation, evidence.module.aliases).multiplications:
            others.append(one.operation)
    if widened:
        first, conversions = next(iter(widened.items()))
        types = " and ".join(sorted({types_of(each)[0].element for made in widened.values() for each in made}))
        inside = [one for dot in widened for one in (dot.loop.walk() if dot.loop else [dot])]
        removed, time_share = evidence.unit_shares_of(inside, _CONVERTED), evidence.time_share_of(inside)
        if not any(work_of(dot, evidence.module.aliases).multiplications for dot in widened):
            removed[TENSOR] = 0.5
        text = f"{evidence.words_of(first)} multiplies in 32 bits what has only 16 or fewer: its operands are {types}, "
        text += f"converted to fp32 before it ({evidence.places_of(conversions)})"
        advice = f"give tl.dot the operands as they are loaded ({types}): it accumulates in fp32 anyway, at twice the "
        advice += "rate of tf32 or more, with half of the shared memory"
        yield Waste(text, advice, removed, tuple(widened), time_share)
    busy = max((evidence.parts.get(unit, 0.0) for unit in (FP32, ISSUE, SHARED)), default=0.0)
    if others and busy >= POSSIBLE:
        text = f"{evidence.words_of(others[0])} multiplies with the fp32 units "
        text += f"({percent(evidence.parts.get(FP32, 0.0))} of peak), not with the tensor cores"
        advice = "use the tensor cores: input_precision='tf32' or 'tf32x3' in tl.dot, or operands of 16 bits, if the "
        advice += "results stay accurate enough"
        removed = dict.fromkeys((FP32, ALU, ISSUE, SHARED), max(evidence.issued_share_of(others), POSSIBLE))
        yield Waste(text, advice, removed, tuple(others), certainty=0.8)


@row
def fp64(evidence: Evidence) -> Iterator[Waste]:
    """Yield fp64 arithmetic in a kernel that loads and stores no fp64 tensors; fp64 scalars can cause it."""
    wide = [
        one
        for one in evidence.operations
        if _DOUBLE in {its.pointee if its.is_pointer else its.element for its in types_of(one.operation)}
    ]
    doubles = [one.operation for one in wide if one.operation.traits.is_arithmetic]
    doubles = [one for one in doubles if not one.traits.is_constant]
    if not doubles or any(one.access and is_tensor(one.operation) for one in wide):
        return
    text = "fp64 arithmetic, although no tensor in memory is fp64, at "
    text += f"{evidence.places_of(doubles)}: {percent(evidence.time_share_of(doubles))} of the warps' time"
    advice = "compute in fp32, and cast fp64 scalars (.to(tl.float32)): fp64 runs at half the rate at best, with twice "
    advice += "the registers; if a sum needs more precision, use Kahan summation, or sum in blocks first"
    yield Waste(text, advice, {**evidence.unit_shares_of(doubles, _OF_DOUBLES), FP64: 1.0}, tuple(doubles))


@row
def partial_sums(evidence: Evidence) -> Iterator[Waste]:
    """Yield fp8 dots that drain the tensor cores several times for each tile to add partial sums (sm_90)."""
    dots = [one for one in evidence.operations if one.operation.traits.is_dot]
    for one in dots if evidence.kernel.target == WGMMA_TARGET else ():
        found, factors = _IMPRECISE.search(one.operation.tail), factors_of(one.operation)
        products, whole = int(found[1]) if found else 0, factors[0].shape[-1] if factors and factors[0].shape else 0
        if not 0 < products < whole:
            continue
        text = f"{evidence.words_of(one.operation)} waits for the tensor cores after every {products} of its {whole} "
        text += "products along K, to add their sum in fp32 outside of them"
        advice = f"raise max_num_imprecise_acc in tl.dot from {products} to {whole}, if results stay accurate enough"
        removed, share = evidence.saved_by([one.operation], 1 - products / whole)
        yield Waste(text, advice, removed | {TENSOR: 0.0}, (one.operation,), share, certainty=0.5)
