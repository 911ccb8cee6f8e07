"""Work of a TTGIR operation for the units of an SM, from the types that it is printed with.

All figures are lower bounds: a layout may make several threads do the same, and the compiler adds instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from msgspec import Struct, field
from msgspec.structs import astuple

from kprof_inject.analysis.structure.layouts import SIDES, conflict_cycles, lanes_and_warps_along
from kprof_inject.ttgir.dialect import AXIS, DIVISIONS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import definition_of, operand_names
from kprof_inject.ttgir.types import PrintedType, bits_of, factors_of, if_misfit, types_of


class Work(Struct, frozen=True):
    """Work of one CTA, or of all.

    Elements count as floats of 32 bits unless a field says otherwise.
    """

    tensor_flops: Mapping[str, float] = field(default_factory=dict)
    """Operations of the tensor cores by the operands' type; all types of 8 bits are ``f8``."""
    special: float = 0
    """Elements that go through a special function."""
    multiplications: float = 0
    additions: float = 0
    logic: float = 0
    """Elements of 32 bits, integers and floats, that are compared, selected or bounded, and integers that are shifted
    or combined by bitwise logic."""
    integer_multiplications: float = 0
    upper_halves: float = 0
    """The integer multiplications that give the upper half of the product."""
    conversions: float = 0
    """Elements that are converted to floats of 32 bits."""
    fp64: float = 0
    """Instructions of the fp64 units for an element each."""
    shared_bytes: float = 0
    """Bytes between shared memory, or the L1, and registers or tensor cores."""
    conflict_cycles: float = 0
    """Cycles of shared memory and the L1 beyond those that the bytes need."""
    l2_bytes: float = 0
    """Bytes from the L2 to the SM."""

    def __add__(self, other: Work) -> Work:
        """Return the sum of both."""
        (mine, *amounts), (others, *other_amounts) = astuple(self), astuple(other)
        flops = {element: mine.get(element, 0) + others.get(element, 0) for element in {**mine, **others}}
        return Work(flops, *map(add, amounts, other_amounts))

    def __mul__(self, times: float) -> Work:
        """Return the work of ``times`` executions."""
        flops, *amounts = astuple(self)
        return Work({element: times * each for element, each in flops.items()}, *(times * each for each in amounts))


NO_WORK = Work()


# Each element takes one instruction of the special function unit, among others: Triton lowers these functions of f32 to
# ex2.approx, lg2.approx, rsqrt.approx, sqrt.approx, and the reciprocal in a division (PTX ISA, "Floating Point
# Instructions"). Logarithms are polynomials.
_SPECIAL = "math.exp math.exp2 math.rsqrt math.sqrt tt.precise_sqrt"
_BOUND = Work(logic=1)
_WORK_OF_ELEMENT = {
    **dict.fromkeys(_SPECIAL.split(), Work(special=1)),
    "arith.mulf": Work(multiplications=1),
    "arith.addf": Work(additions=1),
    "arith.subf": Work(additions=1),
    "math.fma": Work(multiplications=1, additions=1),
    **dict.fromkeys(("arith.extf", "arith.sitofp", "arith.uitofp"), Work(conversions=1)),
    **dict.fromkeys(
        ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf", "arith.cmpf"),
        _BOUND,
    ),
    "tt.clampf": _BOUND,
}


# Instructions of the fp64 units for an element: what ptxas makes of each for sm_90 takes at least as many.
_FP64 = {
    **dict.fromkeys(["arith.mulf", "arith.addf", "arith.subf", "math.fma", "arith.cmpf"], 1),
    **dict.fromkeys(["arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf", "tt.clampf"], 1),
    **dict.fromkeys(("math.exp", "math.exp2"), 15),
    **dict.fromkeys(("math.log", "math.log2"), 25),
    "math.sqrt": 7,
    "math.rsqrt": 5,
    **dict.fromkeys(DIVISIONS, 8),
}


@if_misfit(NO_WORK)
def work_of(operation: Operation, aliases: Mapping[str, str]) -> Work:
    """Return the work of one execution by a CTA; none if an operation's types do not fit it.

    ``aliases`` are the module's.
    """
    name, traits = operation.name, operation.traits
    if not (name in _WORK_OF_COMBINED or name in _FP64 or name in SIDES or traits.is_dot or traits.combines_elements):
        return NO_WORK
    types = types_of(operation)
    if not types:
        return NO_WORK
    if name in _FP64 and types[0].element == "f64":
        return Work(fp64=_FP64[name] * types[0].elements) if types[0].shape else NO_WORK
    if name in DIVISIONS:
        return _division_work(operation, types[-1])
    if name in _WORK_OF_ELEMENT:
        # Each thread computes a scalar itself, which is negligible.
        return _WORK_OF_ELEMENT[name] * types[-1].elements if _is_f32_tensor(types[-1]) else NO_WORK
    if traits.is_dot:
        return _dot_work(operation, types, aliases) + _operands_work(operation, types)
    if name in SIDES:
        return _shared_work(operation, types) + Work(conflict_cycles=conflict_cycles(operation, aliases))
    return _combination_work(operation, types, aliases)


def _is_f32_tensor(result: PrintedType) -> bool:
    return result.element == "f32" and bool(result.shape)


# A division takes one special function, for the reciprocal. It is computed once for a divisor that elements share, but
# not where a region combines elements.
_WORK_OF_COMBINED = {**_WORK_OF_ELEMENT, **dict.fromkeys(DIVISIONS, Work(special=1))}


def _division_work(operation: Operation, result: PrintedType) -> Work:
    if not _is_f32_tensor(result):
        return NO_WORK
    names = operand_names(operation)
    made = definition_of(names[1], operation) if len(names) > 1 else None
    divisors = result.elements
    while made is not None and made.traits.keeps_elements:
        divisors = min(divisors, types_of(made)[0].elements)
        made = definition_of(operand_names(made)[0], made)
    if made is not None and (made.name == "tt.splat" or made.traits.is_constant):
        return NO_WORK
    return Work(special=divisors)


def _shared_work(operation: Operation, types: Sequence[PrintedType]) -> Work:
    """Return the bytes between registers and shared memory.

    An allocation stores its initial value, if it has one. What threads copy without registers counts as bytes from the
    L2.
    """
    moved = types[SIDES[operation.name][0]]
    if moved.kind != "tensor" or operation.traits.starts_async:
        return NO_WORK
    return Work(shared_bytes=moved.elements * moved.bits / 8)


# Rows that tensor cores multiply per read of the other operand: PTX ISA, "wgmma.mma_async" (m64), "tcgen05.mma" (256 by
# a pair of CTAs).
_ROWS_AT_ONCE = {"ttng.warp_group_dot": 64, "ttng.tc_gen5_mma": 256, "ttng.tc_gen5_mma_scaled": 256}


def _operands_work(operation: Operation, types: Sequence[PrintedType]) -> Work:
    """Return the bytes of the operands that tensor cores read from shared memory."""
    rows = _ROWS_AT_ONCE.get(operation.name)
    if rows is None or len(types) < 3:
        return NO_WORK
    first, second = factors_of(operation)
    first_bytes = first.elements * first.bits / 8 if _is_shared(first) else 0
    second_bytes = second.elements * second.bits / 8 if _is_shared(second) else 0
    return Work(shared_bytes=first_bytes + max(first.shape[-2] / rows, 1) * second_bytes)


def _is_shared(one: PrintedType) -> bool:
    return one.kind == "memdesc" and "tensor_memory" not in one.rest


def _combination_work(operation: Operation, types: Sequence[PrintedType], aliases: Mapping[str, str]) -> Work:
    """Return the work of a reduction, scan or map.

    A reduction executes its region for each element that it takes, less those that it returns; a scan at least as
    often; a map for each result.
    """
    if len(types) < 2 or types[0].element not in ("f32", "f64") or not types[0].shape:
        return NO_WORK
    walked = [inner.name for region in operation.regions for inner in region.walk()]
    inside = [_WORK_OF_COMBINED[name] for name in walked if name in _WORK_OF_COMBINED]
    if types[0].element == "f64":
        inside = [Work(fp64=_FP64[name]) for name in walked if name in _FP64]
    times = types[0].elements - types[-1].elements or types[-1].elements
    if operation.name == "tt.reduce" and inside != [_BOUND]:
        times = max(times, _combinations(operation, types[0], aliases))
    return reduce(add, inside, NO_WORK) * times


def _combinations(operation: Operation, taken: PrintedType, aliases: Mapping[str, str]) -> int:
    """Return how often a reduction combines elements, as far as the layout shows; 0 if it does not.

    Each thread combines its own elements, then exchanges the result with other lanes, all of which combine it. (A bound
    alone may be one instruction for all lanes: PTX ISA, "redux.sync".)
    """
    found = AXIS.search(operation.tail)
    spread = lanes_and_warps_along(taken, int(found[1]), aliases) if found else None
    if found is None or spread is None:
        return 0
    lanes, warps = spread
    size = taken.shape[int(found[1])]
    own = max(size // (lanes * warps), 1)
    return taken.elements // size * lanes * warps * (own - 1 + lanes.bit_length() - 1)


_PRECISION = re.compile(r"\binputPrecision\s*=\s*(\w+)")
# Triton's ``InputPrecision``, which some operations print as a number: the type in which the tensor cores take operands
# of f32, and the number of passes.
_PASSES = {
    **dict.fromkeys(("0", "tf32"), ("tf32", 1)),
    **dict.fromkeys(("1", "tf32x3"), ("tf32", 3)),
    **dict.fromkeys(("2", "ieee"), ("f32", 1)),
    **dict.fromkeys(("3", "bf16x3"), ("bf16", 3)),
    **dict.fromkeys(("4", "bf16x6"), ("bf16", 6)),
}
# The default is not printed. For other operations, f32 in tensor cores is tf32.
_DEFAULT_PRECISION = {"tt.dot": "ieee"}
_PACKED_BY_ROWS = "lhs_k_pack = false"
_TENSOR_LAYOUT = re.compile(r"mma|mfma")
_ALIAS = re.compile(r"#\w+")
# The layout of an operand names that of the dot, which may be that of a slice.
_MAX_NESTING = 4


def _dot_work(operation: Operation, types: Sequence[PrintedType], aliases: Mapping[str, str]) -> Work:
    if len(types) < 3 or min(len(types[0].shape), len(types[1].shape)) < 2:
        return NO_WORK
    first, second = factors_of(operation)
    if operation.name in _SCALED:
        is_packed = first.element == _PACKED and _PACKED_BY_ROWS not in operation.tail
        result = types[2] if operation.name == "ttng.tc_gen5_mma_scaled" else types[-1]
        flops = 2 * result.elements * first.shape[-1] * (2 if is_packed else 1)
        wider = max((one.element for one in (first, second) if one.element != _PACKED), key=bits_of, default="f4")
        return Work({_family(wider): flops})
    flops = 2 * first.elements * second.shape[-1]
    result = types[-1]
    if operation.name == "tt.dot" and not _TENSOR_LAYOUT.search(_resolved(result.rest, aliases)):
        if result.element == "f64":
            return Work(fp64=flops / 2)
        if result.element == "f32":
            return Work(multiplications=flops / 2, additions=flops / 2)
    if first.element != "f32":
        return Work({_family(first.element): flops})
    found = _PRECISION.search(operation.tail)
    precision = found[1] if found else _DEFAULT_PRECISION.get(operation.name, "tf32")
    family, passes = _PASSES.get(precision, ("tf32", 1))
    return Work({family: flops * passes})


# Scaled dots pack two floats of four bits into an integer of eight, and run at the rate of the other operand's type.
_SCALED = ("tt.dot_scaled", "ttng.tc_gen5_mma_scaled")
_PACKED = "i8"


def _family(element: str) -> str:
    return "f8" if element.startswith("f8") else element


def _resolved(layout: str, aliases: Mapping[str, str]) -> str:
    for _ in range(_MAX_NESTING):
        layout = _ALIAS.sub(lambda found: aliases.get(found[0], found[0]), layout)
    return layout


# Lanes of a warp with parts of one result of a reduction: a lower bound for the layouts of tensor cores.
_LANES = 4


@if_misfit(0)
def exchanged_bytes(operation: Operation, aliases: Mapping[str, str]) -> float:
    """Return the bytes to and from shared memory if all exchanges between threads that may use it do.

    Threads exchange elements to change a layout, or to combine elements of several threads.
    """
    types = types_of(operation)
    if not types or not types[0].shape:
        return 0
    first, last = types[0], types[-1]
    if operation.name in ("tt.gather", "tt.histogram", "tt.join", "tt.split", "tt.scan"):
        return 2 * first.elements * first.bits / 8
    if operation.name == "ttg.convert_layout" and not _FREE_LAYOUT.search(_resolved(last.rest, aliases)):
        return 2 * first.elements * first.bits / 8
    if operation.name == "tt.reduce":
        return 2 * last.elements * min(first.elements // last.elements, _LANES) * first.bits / 8
    if operation.traits.is_dot:
        # Without tensor cores, each thread reads the operands of its own tile: for 4 x 4, two bytes a multiplication.
        return 2 * _dot_work(operation, types, aliases).multiplications
    return 0


# Operands of dots and slices mostly stay in the threads that have them.
_FREE_LAYOUT = re.compile(r"dot_op|slice")
