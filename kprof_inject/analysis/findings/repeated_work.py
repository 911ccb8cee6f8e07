"""Work that could be done once: in each iteration of a loop, or in each CTA, though it depends on neither."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from kprof_inject.analysis.findings.evidence import Evidence, elements_of, is_tensor
from kprof_inject.analysis.findings.finding import Waste, row
from kprof_inject.analysis.findings.loaded_again import common_bytes, moved_by
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.interpreter.footprints import union
from kprof_inject.analysis.structure import values
from kprof_inject.quantities import percent
from kprof_inject.ttgir.dialect import DIVISIONS, DOT_WAIT, INTEGER_DIVISIONS, READ
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import loop_arguments, operand_names, result_names
from kprof_inject.ttgir.types import factors_of, if_misfit, types_of

_MAX_OVERLAP = 0.75  # ptxas unrolls loops by 4 if no barrier is in the way. Loads of the four then overlap
_REDUCTION = "tt.reduce"
_MIN_ITERATIONS = 4  # one reduction is left after the loop, and accumulators for all elements take registers
_EXTREMES = frozenset(
    ("arith.maxnumf", "arith.maximumf", "arith.minnumf", "arith.minimumf", "arith.maxsi", "arith.minsi")
)
_MIN_CTAS = 2  # with fewer CTAs, computing it once saves little of the time of all SMs
_MIN_SHARE = 0.1
_SUMS = ("arith.addf", "arith.addi", "math.fma")
_PRODUCT, _BUFFER = "arith.mulf", "ttg.local_alloc"
_REGISTER_MOVES = frozenset(("ttg.local_load", "ttg.local_store", "ttg.local_alloc", "ttg.convert_layout"))
_LINEAR = frozenset(
    (_PRODUCT, "arith.extf", "arith.truncf", "arith.sitofp", "arith.uitofp", "arith.extsi", "tt.fp_to_fp")
)


@row
def loop_invariant(evidence: Evidence) -> Iterator[Waste]:
    """Yield loads and costly arithmetic that a loop repeats, and divisions by a value that is always the same.

    The compiler moves pure operations out of a loop, but no load if the loop may write to memory.
    """
    module, seen = evidence.module, set[Operation]()
    loads, stores = (moved_by(evidence.sample, reads=reads) for reads in (True, False))
    for loop in evidence.loops:
        stored = union(one.touched for one in stores if loop in one.operation.ancestors())
        seen.update(one.operation for one in loads if common_bytes(one.touched, stored))  # each may load other values
        repeated = [one for one in values.invariant_operations(module, loop) if one not in seen and _is_costly(one)]
        varying = values.varying_names(module, loop)
        divisions = [(one, operand_names(one)) for one in body_of(loop) if one.name in DIVISIONS and is_tensor(one)]
        divisions = [(one, names) for one, names in divisions if len(names) == 2 and one not in seen]
        divided = [one for one, names in divisions if names[0] in varying and names[1] not in varying]
        seen.update(repeated, divided)
        if not repeated and not divided:
            continue
        work = [*repeated, *divided]
        share = time = evidence.execution_share_of(work)
        if any(one.name == _REDUCTION for one in repeated):
            time = _saved_without_barriers(evidence, loop, share)
        advice = []
        if repeated:
            advice.append(f"move {evidence.names_of(repeated)} before the loop")
            if any(one.traits.reads_global for one in repeated):
                advice.append("the compiler does not, as the loop also writes to memory that might overlap")
        if divided:
            where = evidence.places_of(divided)
            advice.append(f"compute the reciprocal of the divisor before the loop, and multiply by it at {where}")
        text = f"{evidence.name_around(work[0])} does in each iteration what does not depend on it: "
        text += f"{evidence.names_of(work)} take{'s' if len(work) == 1 else ''} {percent(share)} of the warps' time"
        figures = {"operations": len(repeated), "divisions": len(divided), "time_share": share}
        yield Waste(text, "; ".join(advice), evidence.without(work), tuple(work), time, figures=figures)


def _is_costly(one: Operation) -> bool:
    if one.traits.reads_global or one.name == _REDUCTION:
        return True
    is_slow = one.traits.is_transcendental or one.name in (*DIVISIONS, *INTEGER_DIVISIONS)
    return is_slow and is_tensor(one)


def _saved_without_barriers(evidence: Evidence, loop: Operation, share: float) -> float:
    # Without the barriers of reductions, iterations overlap, and the loads of several are in flight together.
    loads = [one for one in body_of(loop) if one.traits.reads_global]
    waits = evidence.stalls.share_of_waits(evidence.lines_of(loads)) if evidence.stalls else 0.0
    return min(share + _MAX_OVERLAP * waits, 1.0)


@row
def reduction_in_loop(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops that reduce over threads in each iteration, though only the sum of all results is needed."""
    module = evidence.module
    for loop in evidence.loops:
        reductions = [one for one in body_of(loop) if one.name == _REDUCTION]
        sums = [one for one in reductions if values.accumulation_of(module, loop, one) is not None]
        is_running = not sums and _has_running_extreme(module, loop)
        if is_running:  # such as a running maximum, by which a sum is rescaled
            sums = [one for one in reductions if not types_of(one)[-1].shape]
        if not sums or (iterations := evidence.iterations_of(loop)) < _MIN_ITERATIONS:
            continue
        share, saved = evidence.time_share_of(sums), 1 - 1 / iterations  # one is left, after the loop
        if is_running:
            only = "to a running value of the whole block"
            advice = "keep a running value for each element of the block (a maximum and a rescaled sum for each), and "
            advice += "combine them once after the loop"
        else:
            only = "only to accumulate the results"
            advice = "accumulate the tensor element by element in the loop, and reduce it once after the loop (the "
            advice += "order of additions changes)"
        text = f"{evidence.name_around(sums[0])} reduces over threads in each iteration, {only}: "
        text += f"{evidence.names_of(sums)} take{'s' if len(sums) == 1 else ''} {percent(share)} of the warps' time"
        removed = {unit: saved * part for unit, part in evidence.without(sums).items()}
        time, figures = _saved_without_barriers(evidence, loop, share * saved), {"reductions": len(sums)}
        yield Waste(text, advice, removed, tuple(sums), time, certainty=0.7, figures=figures)


def _has_running_extreme(module: Module, loop: Operation) -> bool:
    if any(one.traits.is_dot or one.traits.writes_global for one in loop.walk()):
        return False  # what an iteration needs of its own block is no running value
    body, carried = body_of(loop), set(loop_arguments(module, loop)[1:])
    reduced = {name for one in body if one.name == _REDUCTION for name in result_names(one)}
    combined = [set(operand_names(one)) for one in body if one.name in _EXTREMES]
    return any(names & carried and names & reduced for names in combined)


@row
def same_in_all_ctas(evidence: Evidence) -> Iterator[Waste]:
    """Yield costly arithmetic that CTAs repeat: it depends on no program id, or not on those in which they differ."""
    function = entry_function(evidence.module)
    if function is None or evidence.summary.ctas < _MIN_CTAS:
        return
    ids = values.program_ids(function)
    seen = set[Operation]()
    for words, varying in (("", frozenset().union(*ids.values())), *(ids.items() if len(ids) > 1 else ())):
        same = values.independent_operations(evidence.module, function, varying)
        same = [one for one in same if not one.traits.is_constant and not one.traits.reads_global]
        costly = [
            one
            for one in same
            if one.traits.is_transcendental or one.traits.is_dot or one.name in (*DIVISIONS, _REDUCTION)
            if one not in seen and is_tensor(one)
        ]
        seen.update(costly)
        share = evidence.time_share_of(same) if costly else 0.0
        if share < _MIN_SHARE:
            continue
        what = evidence.names_of(costly)
        if words:
            who = f"CTAs that differ only in {words} compute the same"
            advice = f"let a CTA do several of these, and compute it once (a loop over {words}), or load it as a table"
        else:
            who = f"each of {evidence.summary.ctas} CTAs computes the same"
            advice = "compute it once, before the launch or in a small kernel of its own, and load the result: a table"
        text = f"{who}: {what}, with what these need, take {percent(share)} of the warps' time"
        figures = {"operations": len(same), "time_share": share}
        yield Waste(text, advice, evidence.without(same), tuple(costly), share, figures=figures)


@row
def operands_by_registers(evidence: Evidence) -> Iterator[Waste]:
    """Yield operands of dots that a loop changes on their way: through registers and back to shared memory."""
    module, uses = evidence.module, evidence.uses
    for loop in evidence.loops:
        body, changed = body_of(loop), dict[Operation, None]()
        for dot, place in ((one, place) for one in body if one.traits.is_dot for place in (0, 1)):
            made = uses.origin(dot, place)
            if made is None or _is_loaded(made) or not _is_in_shared_memory(dot, place):
                continue
            if any(map(_is_loaded, _chain(uses, made, body))):
                changed[made] = None
        if not changed:
            continue
        varying = values.varying_names(module, loop)
        factors = [one for made in changed for one in _chain(uses, made, body) if _has_invariant(uses, one, varying)]
        moved = [*changed, *(one for one in body if one.name in _REGISTER_MOVES)]
        share = evidence.time_share_of(moved)
        if factors:
            advice = f"multiply the accumulator after the loop, not the operand at {evidence.places_of(factors)}: the "
            advice += "factor does not depend on the loop, and copies then go from memory to the tensor cores directly"
        else:
            advice = "convert or scale the operand once, before the kernel or in the kernel that writes it; or keep it "
            advice += "as the dot's first operand, which the tensor cores take from registers"
        text = f"an operand of the dot in {evidence.name_around(loop)} goes through registers in each iteration, to "
        text += f"be changed at {evidence.places_of(changed)}, and back to shared memory: {percent(share)} of the "
        text += "warps' time"
        removed, certainty = evidence.without(moved), 0.9 if factors else 0.4
        yield Waste(text, advice, removed, tuple(changed), share, certainty=certainty, around=loop)


@row
def scaled_in_loop(evidence: Evidence) -> Iterator[Waste]:
    """Yield results of dots that a loop scales by what does not depend on it, before it adds them up."""
    module, uses = evidence.module, evidence.uses
    for loop in evidence.loops:
        carried, varying = set(loop_arguments(module, loop)[1:]), values.varying_names(module, loop)
        scaled = dict[Operation, None]()
        for dot in (one for one in body_of(loop) if one.traits.is_dot):
            pending, chain = [dot], list[Operation]()
            while pending:
                one = pending.pop()
                for user, _ in uses.readers(one):
                    if user.name in _LINEAR or user.name == DOT_WAIT:
                        chain.append(user)
                        pending.append(user)
                    elif user.name in _SUMS and not carried.isdisjoint(operand_names(user)):
                        scaled.update(dict.fromkeys(each for each in chain if _has_invariant(uses, each, varying)))
        if not scaled:
            continue
        work = [one for one in body_of(loop) if one in scaled or one.name in (*_SUMS, *_LINEAR)]
        share = evidence.time_share_of(work)
        text = f"{evidence.name_around(loop)} scales each result of a dot at {evidence.places_of(scaled)} by what "
        text += f"does not depend on the iteration, and adds it up outside of the tensor cores: {percent(share)} of "
        text += "the warps' time"
        advice = "let the dot accumulate (tl.dot(a, b, acc)), in integers if its operands are, and scale the sum "
        advice += "once after the loop"
        yield Waste(text, advice, evidence.unit_shares_of(work), tuple(scaled), time_share=share, around=loop)


@row
def divided_in_loop(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops that divide their accumulator in each iteration by a value that several elements share."""
    uses = evidence.uses
    for loop in evidence.loops:
        divided = [
            one
            for one in body_of(loop)
            if one.name in DIVISIONS and any(user is body_of(loop)[-1] for user, _ in uses.readers(one))
            if (divisor := uses.origin(one, 1)) and elements_of(divisor) < elements_of(one)
        ]
        if not divided:
            continue
        share = evidence.time_share_of(divided)
        text = f"{evidence.name_around(loop)} divides its accumulator in each iteration by a value that several "
        text += f"elements share ({evidence.places_of(divided)}): {percent(share)} of the warps' time"
        advice = "if this normalizes a running sum, keep the sum unnormalized (rescale only by the running maximum), "
        advice += "and divide once after the loop"
        yield Waste(text, advice, evidence.unit_shares_of(divided), tuple(divided), time_share=share, around=loop)


def _chain(uses: values.Uses, made: Operation, body: Sequence[Operation]) -> Iterator[Operation]:
    """Yield conversions and products by which a loop's body changes what it loads, from the last to the load."""
    pending = [made]
    while pending:
        one = pending.pop()
        if _is_loaded(one):
            yield one
        elif one in body and one.name in _LINEAR:
            yield one
            makers = (uses.origin(one, place) for place in range(len(operand_names(one))))
            pending += [maker for maker in makers if maker is not None]


def _is_loaded(one: Operation) -> bool:
    return one.traits.reads_global or one.name in (READ, _BUFFER)


@if_misfit(False)
def _is_in_shared_memory(dot: Operation, place: int) -> bool:
    return factors_of(dot)[place].kind == "memdesc"


def _has_invariant(uses: values.Uses, product: Operation, varying: Set[str]) -> bool:
    for place, name in enumerate(operand_names(product)[:2] if product.name == _PRODUCT else ()):
        made = uses.origin(product, place)
        # A shared-memory buffer is invariant, but its contents are not.
        if name not in varying or (made and made.name != _BUFFER and varying.isdisjoint(result_names(made))):
            return True
    return False
