"""Instructions that results do not need: addresses, masks, spills, and arithmetic that cheaper expressions replace."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set

from msgspec import Struct

from kprof_inject.analysis.findings.evidence import MAX_NAMES, Evidence, is_tensor
from kprof_inject.analysis.findings.finding import MIN_SHARE, Waste, row
from kprof_inject.analysis.interpreter.executions import entry_function
from kprof_inject.analysis.limits.limit import POSSIBLE
from kprof_inject.analysis.limits.operation_work import work_of
from kprof_inject.analysis.limits.rates import ALU, DRAM, FP32, ISSUE, L2, L2_TO_SM, SPECIAL
from kprof_inject.analysis.limits.stalls import share_of_instructions
from kprof_inject.analysis.structure.values import Uses, varying_names
from kprof_inject.capture.resources import THREADS_PER_WARP
from kprof_inject.quantities import counted, listed, percent
from kprof_inject.ttgir.dialect import CALL, DIVISIONS, INTEGER_DIVISIONS
from kprof_inject.ttgir.loops import body_of
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.polling import polling_loops
from kprof_inject.ttgir.ssa_values import definition_of, loop_arguments, operand_names, result_names
from kprof_inject.ttgir.types import PrintedType, types_of

_MIN_SHARE = 0.15  # of all instructions
_NEEDED = 0.1  # each access needs an address, which advances by an addition
_WIDE_BITS = 64
_DIVISION = (
    "do not divide for each element: let the program id, or a dimension of the tile, be the row; make the divisor a "
    "tl.constexpr (a power of two becomes a shift); or divide once for each row"
)
_WIDE = "index in 32 bits, and add a 64-bit base once to the pointer (tl.int64 only where offsets exceed 2**31)"
_ADVANCE = (
    "compute addresses once, and let pointers advance by a constant in the loop; leave out masks that are always true "
    "(a size that the tile divides, as tl.constexpr), or use tensor descriptors"
)
_MIN_REPEATED = 0.5
_SCALAR = PrintedType("", (), "i32")
_LOCAL_ACCESSES = frozenset(("LDL", "STL"))
_MIN_SPILLED = 0.1  # of the warps' time
_EXP = frozenset(("math.exp", "math.exp2"))
_LOG = frozenset(("math.log", "math.log2"))
_SQRT = frozenset(("math.sqrt", "tt.precise_sqrt"))
_MIN_BUSY = 0.5  # with the busiest of these units below, other things limit the launch
_ARITHMETIC = (SPECIAL, FP32, ALU, ISSUE)
_MIN_REMOVED = 0.05  # less of the special functions, or of all instructions, is not worth an edit
# Products, sums and differences of two functions that one function replaces.
_PATTERNS: Sequence[tuple[str, frozenset[str], str]] = (
    ("arith.mulf", _EXP, "exp(a) * exp(b) is exp(a + b)"),
    ("arith.mulf", _SQRT, "sqrt(a) * sqrt(b) is sqrt(a * b)"),
    ("arith.addf", _LOG, "log(a) + log(b) is log(a * b)"),
    ("arith.subf", _LOG, "log(a) - log(b) is log(a / b)"),
)
_JOINING = frozenset(name for name, *_ in _PATTERNS)
_FAST = "divide with / and use tl.sqrt or tl.rsqrt, if the last bit does not matter; compute a reciprocal once, and "
_FAST += "multiply by it"
_OF_PRODUCTS = "multiply, and take roots: x ** 1.5 is x * tl.sqrt(x), x ** -0.5 is tl.rsqrt(x)"
_SLOW = {
    "tt.precise_divf": ("a division rounded by IEEE 754", _FAST),
    "tt.precise_sqrt": ("a square root rounded by IEEE 754", _FAST),
    "__nv_powf": ("a power with a constant exponent", _OF_PRODUCTS),
    "__nv_pow": ("a power with a constant exponent", _OF_PRODUCTS),
}
_SYMBOL = re.compile(r'symbol = "(\w+)"')
# Fast division and square root take an instruction of the special function units, and one or two more, in place of some
# ten and a branch (PTX ISA, "div.full.f32", "sqrt.approx.f32"); a power takes some fifty (libdevice, in SASS).
_OF_SLOW = 0.95
_UNUSED_NUMBERS = 0.8
_PRODUCTS_REMOVED = 0.95
_MIN_TILE = 16  # of a dot, in each dimension
_FLOATS = frozenset(("f16", "bf16", "f32"))
_AVOIDABLE = 0.9  # of the iterations, at most


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


class _Removable(Struct, frozen=True):
    operations: tuple[Operation, ...]
    root: Operation
    edit: str


@row
def special_functions(evidence: Evidence) -> Iterator[Waste]:
    """Yield special functions that an equal expression would not need."""
    part, busiest = max((evidence.parts.get(unit, 0.0), unit) for unit in _ARITHMETIC)
    if part < _MIN_BUSY:
        return
    counts = {
        one.operation: special * one.times
        for one in evidence.operations
        if one.times and (special := work_of(one.operation, evidence.module.aliases).special)
    }
    removable = list(_removable(evidence, counts))
    removed = {operation for one in removable for operation in one.operations}
    special = sum(counts.get(one, 0.0) for one in removed) / max(sum(counts.values()), 1)
    roots = removed.union(one.root for one in removable)
    if not removable or max(special, evidence.issued_share_of(roots)) < _MIN_REMOVED:
        return
    places: dict[str, str] = {}
    for one in removable:
        places.setdefault(one.edit, evidence.place_of(one.root))
    edits = listed([f"{edit} ({place})" for edit, place in places.items()], MAX_NAMES)
    text = f"{percent(special)} of the special functions are not needed; {busiest} at {percent(part)} of peak"
    operations = tuple(sorted(removed, key=lambda one: one.start))
    shares, figures = {**evidence.unit_shares_of(roots), SPECIAL: special}, {"removable_share": special}
    yield Waste(text, f"use fewer special functions: {edits}", shares, operations, figures=figures)


def _removable(evidence: Evidence, counts: Mapping[Operation, float]) -> Iterator[_Removable]:
    divisions: dict[str, list[Operation]] = {}
    joined: dict[Operation, Operation] = {}  # products and sums of functions, with the function that they keep
    for one in (executed.operation for executed in evidence.operations):
        may_match = one.name in _JOINING or one.name in DIVISIONS or one.traits.is_transcendental
        operands = [definition_of(name, one) for name in operand_names(one)] if may_match else []
        functions = [joined.get(operand, operand) for operand in operands if operand is not None]
        for name, names, edit in _PATTERNS:
            matching = [other for other in functions if other.name in names] if one.name == name else []
            if matching:
                joined[one] = matching[0]  # a product with another factor still has the function
            if len(matching) == 2:
                yield _Removable((matching[1],), one, edit)
        if one.name in DIVISIONS and len(operands) == 2:
            if one in counts:
                divisions.setdefault(operand_names(one)[1], []).append(one)
            simpler = [_of_division(one, *operands)]
        else:
            simpler = [_of_power(one, operands[0]) if one.name in _EXP and operands else None]
        simpler.append(_of_broadcast(one, operands[0]) if one in counts and len(operands) == 1 else None)
        yield from (found for found in simpler if found and any(other in counts for other in found.operations))
    for same in divisions.values():
        if len(same) > 1:
            yield _Removable(tuple(same[1:]), same[0], "several divisions by one value: compute its reciprocal once")


def _of_division(one: Operation, dividend: Operation | None, divisor: Operation | None) -> _Removable | None:
    if divisor is None or divisor.name not in _EXP:
        is_root = divisor is not None and divisor.name in _SQRT
        return _Removable((one,), one, "x / sqrt(a) is x * rsqrt(a)") if is_root else None
    if dividend is not None and dividend.name in _EXP:
        return _Removable((one, divisor), one, "exp(a) / exp(b) is exp(a - b)")
    return _Removable((one,), one, "x / exp(a) is x * exp(-a)")


def _of_power(one: Operation, inner: Operation | None) -> _Removable | None:
    if inner is None:
        return None
    if inner.name in _LOG:
        return _Removable((one, inner), one, "exp(log(a)) is a")
    for name in operand_names(inner) if inner.name == "arith.mulf" else ():
        factor = definition_of(name, inner)
        if factor is not None and factor.name in _LOG:
            return _Removable((one, factor), one, "exp(c * log(a)) is a ** c: multiplications, if c is whole")
    return None


def _of_broadcast(one: Operation, made: Operation | None) -> _Removable | None:
    types = types_of(one)
    while types and made is not None and made.traits.keeps_elements:
        if types_of(made)[0].elements < types[-1].elements:
            function = one.name.rpartition(".")[2]
            return _Removable((one,), one, f"{function} of a broadcast: compute it before the broadcast")
        made = definition_of(operand_names(made)[0], made)
    return None


@row
def rounded_functions(evidence: Evidence) -> Iterator[Waste]:
    """Yield functions that take several times as long as an equal or nearly equal expression."""
    found = {one.operation: _function_of(one.operation) for one in evidence.operations if is_tensor(one.operation)}
    slow = [one for one, function in found.items() if function in _SLOW]
    share = evidence.time_share_of(slow)
    if share < MIN_SHARE:
        return
    what, advice = zip(*(_SLOW[found[one]] for one in slow), strict=True)
    text = f"{listed([*dict.fromkeys(what)], MAX_NAMES)} at {evidence.places_of(slow)} "
    text += f"take{'s' if len({*what}) == 1 else ''} {percent(share)} of the warps' time"
    removed, time_share = evidence.saved_by(slow, _OF_SLOW)
    yield Waste(text, "; ".join(dict.fromkeys(advice)), removed, tuple(slow), time_share)


def _function_of(one: Operation) -> str:
    # A power is only slow for nothing if its exponent is constant.
    symbol = _SYMBOL.search(one.tail)
    exponents = [definition_of(name, one) for name in operand_names(one)[1:2]] if symbol else []
    return symbol[1] if symbol and all(made and made.traits.is_constant for made in exponents) else one.name


@row
def random_numbers(evidence: Evidence) -> Iterator[Waste]:
    """Yield generators of random numbers that take a notable part of the instructions."""
    generators = [one.operation for one in evidence.operations if one.operation.traits.is_random]
    places = {evidence.place_of(one) for one in generators}
    rounds = [one.operation for one in evidence.operations if generators and evidence.place_of(one.operation) in places]
    share = evidence.issued_share_of(rounds)
    if share < MIN_SHARE:
        return
    text = f"random numbers at {evidence.places_of(generators)} take {percent(share)} of the instructions: Philox "
    text += "makes four numbers at a time"
    advice = "use all four numbers of a block (tl.rand4x, tl.randint4x: a quarter of the offsets, each for four "
    advice += "elements), or fewer rounds (n_rounds)"
    removed, time_share = evidence.saved_by(rounds, _UNUSED_NUMBERS)
    yield Waste(text, advice, removed, tuple(generators), time_share, certainty=0.7)


@row
def product_sums(evidence: Evidence) -> Iterator[Waste]:
    """Yield sums of products of rows and columns, or of squared differences: a matrix product without tensor cores."""
    multiplied = [one.operation for one in evidence.operations if one.operation.name in ("arith.mulf", "math.fma")]
    products = [one for one in multiplied if _is_outer(evidence, one)]
    if not products:
        return
    around = [one for product in products for one in (product.loop.walk() if product.loop else [product])]
    share = evidence.issued_share_of(around)
    text = f"the sum of products at {evidence.places_of(products)} is a matrix product, by single elements "
    text += f"({percent(share)} of the instructions)"
    advice = "use tl.dot on tiles of rows and columns, on the tensor cores (squared differences are squared norms "
    advice += "less twice the product: |x|^2 + |y|^2 - 2 x.y)"
    removed, time_share = evidence.saved_by(around, _PRODUCTS_REMOVED)
    yield Waste(text, advice, removed, tuple(products), time_share, certainty=0.9)


def _is_outer(evidence: Evidence, product: Operation) -> bool:
    """Return True for a product of factors that vary along different dimensions of a tile, which a loop adds up."""
    types, uses = types_of(product), evidence.uses
    if not types or len(types[-1].shape) < 2 or types[-1].element not in _FLOATS:
        return False
    factors = [uses.maker(product, place) for place in (0, 1)]
    if factors[0] is factors[1] and factors[0] is not None and factors[0].name == "arith.subf":
        factors = [uses.maker(factors[0], place) for place in (0, 1)]  # a squared difference
    along = [_varying_dims(uses, factor) for factor in factors]
    is_large = all(types[-1].shape[dim] >= _MIN_TILE for dims in along for dim in dims)
    if not is_large or along[0] <= along[1] or along[1] <= along[0]:
        return False
    readers = [user for user, _ in uses.readers(product)]
    readers += [other for user in readers if user.name == "arith.extf" for other, _ in uses.readers(user)]
    if along[0] & along[1]:
        return any(user.name == "tt.reduce" for user in readers)
    carried = set(loop_arguments(evidence.module, product.loop)) if product.loop else set()
    return any(user.name == "arith.addf" and not carried.isdisjoint(operand_names(user)) for user in readers)


def _varying_dims(uses: Uses, factor: Operation | None) -> set[int]:
    while factor is not None and factor.traits.is_move:
        factor = uses.maker(factor, 0)
    if factor is None or factor.name != "tt.broadcast" or len(types := types_of(factor)) < 2:
        return set()
    return {dim for dim, size in enumerate(types[0].shape) if size > 1}


@row
def frozen_iterations(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops that update values only while a condition on these holds: in the end, iterations change nothing."""
    module, uses = evidence.module, evidence.uses
    for loop in evidence.loops:
        body, arguments, varying = body_of(loop), loop_arguments(module, loop)[1:], varying_names(module, loop)
        passed = operand_names(body[-1]) if body else []
        keeping = {
            argument: one
            for one in body
            if one.name == "arith.select" and len(names := operand_names(one)) == 3
            for argument, value in zip(arguments, passed, strict=False)
            if names[2] == argument and value in result_names(one) and is_tensor(one)
        }
        frozen = [one for one in keeping.values() if (read := _read(uses, one, varying)) and read <= keeping.keys()]
        if not frozen:
            continue
        text = f"{evidence.name_around(frozen[0])} keeps values at {evidence.places_of(frozen)} once a condition on "
        text += "them fails, and runs all iterations even if it fails for all elements of the tile"
        advice = "end the loop when no element is active any more: a while loop on tl.max of the condition, computed "
        advice += "every few iterations; smaller tiles end sooner"
        removed, time_share = evidence.saved_by(body, _AVOIDABLE)
        yield Waste(text, advice, removed, tuple(frozen), time_share, certainty=0.5)


def _read(uses: Uses, select: Operation, varying: Set[str]) -> set[str]:
    """Return the values of a loop from which the condition of a select is computed, without what computes them."""
    found, seen, pending = set[str](), set[Operation](), [(select, 0)]
    while pending:
        user, place = pending.pop()
        made, name = uses.maker(user, place), operand_names(user)[place]
        if name not in varying:
            continue
        if made is None or not (made.traits.is_arithmetic or made.traits.is_move):
            found.add(name)
        elif made not in seen:
            seen.add(made)
            pending += [(made, operand) for operand in range(len(operand_names(made)))]
    return found


@row
def searches(evidence: Evidence) -> Iterator[Waste]:
    """Yield loops that only compare running sums, and continue after the result is known."""
    for loop in (one for one in evidence.loops if one.name == "scf.for"):
        sums, compared = [one for one in body_of(loop) if one.name == "tt.scan"], list[Operation]()
        names = {name for one in sums for name in result_names(one)}
        for one in body_of(loop):
            if names.isdisjoint(operand_names(one)):
                continue
            if one.name in ("arith.addf", "arith.addi"):
                names.update(result_names(one))
            else:
                compared.append(one)
        if not compared or any(one.name not in ("arith.cmpf", "arith.cmpi") for one in compared):
            continue
        text = f"{evidence.name_around(sums[0])} searches running sums ({evidence.places_of(compared)}), and continues "
        text += "after the result is known"
        advice = "if no term is negative, stop once the running sum passes the value (a while loop, which is not "
        advice += "pipelined), or find the block by sums of blocks first, and search only there"
        removed, time_share = evidence.saved_by([one for one in loop.walk() if one is not loop], _AVOIDABLE)
        removed |= dict.fromkeys((DRAM, L2, L2_TO_SM), _AVOIDABLE)
        yield Waste(text, advice, removed, tuple(compared), time_share, certainty=0.4)
