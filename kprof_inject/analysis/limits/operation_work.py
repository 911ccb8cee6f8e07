"""Work of TTGIR operations for the units of an SM, from the types that they are printed with.

All figures are lower bounds: a layout may make several threads do the same, and the compiler adds instructions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from operator import add

from msgspec import Struct, field
from msgspec.structs import astuple

from kprof_inject.analysis.structure.layouts import SIDES, conflict_cycles, lanes_and_warps_along
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.select.functions import integer_work
from kprof_inject.ttgir.dialect import AXIS, DIVISIONS, FUNCTION, INTEGER_DIVISIONS
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import Leaf, ValueGraph, constant_of, definition_of, operand_names
from kprof_inject.ttgir.types import PrintedType, bits_of, factors_of, if_misfit, types_of


class Work(Struct, frozen=True):
    """Work of one CTA, or of all, in elements that count as floats of 32 bits, unless a field's name says otherwise.

    ``tensor_flops`` are the tensor cores' by the operands' type; all types of 8 bits are ``f8``. ``special`` elements
    go through a special function. ``logic``: elements of 32 bits, integers and floats, that are compared, selected or
    bounded, and integers that are shifted or combined by bitwise logic. ``upper_halves`` are the integer
    multiplications that give the upper half of the product, ``conversions`` those to floats of 32 bits, ``fp64``
    instructions of the fp64 units for an element each. ``shared_bytes`` move between shared memory, or the L1, and
    registers or tensor cores, ``l2_bytes`` from the L2 to the SM. ``conflict_cycles`` are cycles of shared memory and
    the L1 beyond those that the bytes need.
    """

    tensor_flops: Mapping[str, float] = field(default_factory=dict)
    special: float = 0
    multiplications: float = 0
    additions: float = 0
    logic: float = 0
    integer_multiplications: float = 0
    upper_halves: float = 0
    conversions: float = 0
    fp64: float = 0
    shared_bytes: float = 0
    conflict_cycles: float = 0
    l2_bytes: float = 0

    def __add__(self, other: Work) -> Work:
        (mine, *amounts), (others, *other_amounts) = astuple(self), astuple(other)
        flops = {element: mine.get(element, 0) + others.get(element, 0) for element in {**mine, **others}}
        return Work(flops, *map(add, amounts, other_amounts))

    def __mul__(self, times: float) -> Work:
        flops, *amounts = astuple(self)
        return Work({element: times * each for element, each in flops.items()}, *(times * each for each in amounts))


NO_WORK = Work()

_LOGIC = Work(logic=1)
_BOUNDS = ("arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf", "tt.clampf")
_WORK_OF_ELEMENT = {
    # Each element takes one instruction of the special function unit, among others: Triton lowers these functions of
    # f32 to ex2.approx, lg2.approx, rsqrt.approx, sqrt.approx, and the reciprocal in a division (PTX ISA, "Floating
    # Point Instructions"). Logarithms are polynomials.
    **dict.fromkeys(("math.exp", "math.exp2", "math.rsqrt", "math.sqrt", "tt.precise_sqrt"), Work(special=1)),
    "arith.mulf": Work(multiplications=1),
    **dict.fromkeys(("arith.addf", "arith.subf"), Work(additions=1)),
    "math.fma": Work(multiplications=1, additions=1),
    **dict.fromkeys(("arith.extf", "arith.sitofp", "arith.uitofp"), Work(conversions=1)),
    **dict.fromkeys((*_BOUNDS, "arith.cmpf"), _LOGIC),
}
# A division takes one special function, for the reciprocal. It is computed once for a divisor that elements share, but
# not where a region combines elements.
_WORK_OF_COMBINED = {**_WORK_OF_ELEMENT, **dict.fromkeys(DIVISIONS, Work(special=1))}
# Instructions of the fp64 units for an element: what ptxas makes of each for sm_90 takes at least as many.
_FP64 = {
    **dict.fromkeys((*_BOUNDS, "arith.mulf", "arith.addf", "arith.subf", "math.fma", "arith.cmpf"), 1),
    **dict.fromkeys(("math.exp", "math.exp2"), 15),
    **dict.fromkeys(("math.log", "math.log2"), 25),
    "math.sqrt": 7,
    "math.rsqrt": 5,
    **dict.fromkeys(DIVISIONS, 8),
}


@if_misfit(NO_WORK)
def work_of(operation: Operation, aliases: Mapping[str, str]) -> Work:
    """Return the work of one execution by a CTA; none if an operation's types do not fit it."""
    name, traits = operation.name, operation.traits
    if not (name in _WORK_OF_COMBINED or name in _FP64 or name in SIDES or traits.is_dot or traits.combines_elements):
        return NO_WORK
    types = types_of(operation)
    if name in _FP64 and types[0].element == "f64":
        return Work(fp64=_FP64[name] * types[0].elements) if types[0].shape else NO_WORK
    if name in _WORK_OF_COMBINED:
        # Each thread computes a scalar itself, which is negligible.
        if types[-1].element != "f32" or not types[-1].shape:
            return NO_WORK
        return _WORK_OF_COMBINED[name] * (_divisors(operation) if name in DIVISIONS else types[-1].elements)
    if traits.is_dot:
        return _dot_work(operation, types, aliases) + Work(shared_bytes=_bytes_read_by_tensor_cores(operation, types))
    if name in SIDES:
        moved = types[SIDES[name][0]]
        # What threads copy without registers counts as bytes from the L2.
        moves_registers = moved.kind == "tensor" and not traits.starts_async
        shared_bytes = _bytes(moved) if moves_registers else 0
        return Work(shared_bytes=shared_bytes, conflict_cycles=conflict_cycles(operation, aliases))
    return _combination_work(operation, types, aliases)


def _bytes(one: PrintedType) -> float:
    return one.elements * one.bits / 8


def _divisors(division: Operation) -> int:
    """Return an upper bound of the number of distinct divisors; 0 if all are the same."""
    names = operand_names(division)
    made = definition_of(names[1], division) if len(names) > 1 else None
    divisors = types_of(division)[-1].elements
    while made is not None and made.traits.keeps_elements:
        divisors = min(divisors, types_of(made)[0].elements)
        made = definition_of(operand_names(made)[0], made)
    return 0 if made is not None and (made.name == "tt.splat" or made.traits.is_constant) else divisors


# Rows that tensor cores multiply per read of the other operand: PTX ISA, "wgmma.mma_async" (m64), "tcgen05.mma" (256 by
# a pair of CTAs).
_ROWS_AT_ONCE = {"ttng.warp_group_dot": 64, "ttng.tc_gen5_mma": 256, "ttng.tc_gen5_mma_scaled": 256}


def _bytes_read_by_tensor_cores(dot: Operation, types: Sequence[PrintedType]) -> float:
    rows = _ROWS_AT_ONCE.get(dot.name)
    if rows is None or len(types) < 3:
        return 0
    first, second = factors_of(dot)
    first_bytes, second_bytes = (
        _bytes(one) if one.kind == "memdesc" and "tensor_memory" not in one.rest else 0 for one in (first, second)
    )
    return first_bytes + max(first.shape[-2] / rows, 1) * second_bytes


def _combination_work(operation: Operation, types: Sequence[PrintedType], aliases: Mapping[str, str]) -> Work:
    """Return the work of a reduction, scan or map.

    A reduction executes its region for each element that it takes, less those that it returns; a scan at least as
    often; a map for each result.
    """
    if len(types) < 2 or types[0].element not in ("f32", "f64") or not types[0].shape:
        return NO_WORK
    walked = [inner.name for region in operation.regions for inner in region.walk()]
    work_of_name = _WORK_OF_COMBINED
    if types[0].element == "f64":
        work_of_name = {name: Work(fp64=count) for name, count in _FP64.items()}
    inside = [work_of_name[name] for name in walked if name in work_of_name]
    times = types[0].elements - types[-1].elements or types[-1].elements
    if operation.name == "tt.reduce" and inside != [_LOGIC]:
        times = max(times, _combinations(operation, types[0], aliases))
    return reduce(add, inside, NO_WORK) * times


def _combinations(operation: Operation, taken: PrintedType, aliases: Mapping[str, str]) -> int:
    """Return how often a reduction combines elements by its layout; 0 if unknown.

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
# Scaled dots pack two floats of four bits into an integer of eight, and run at the rate of the other operand's type.
_SCALED, _PACKED = ("tt.dot_scaled", "ttng.tc_gen5_mma_scaled"), "i8"
_TENSOR_LAYOUT = re.compile(r"mma|mfma")
_ALIAS = re.compile(r"#\w+")
_MAX_NESTING = 4  # the layout of an operand names that of the dot, which may be that of a slice


def _dot_work(operation: Operation, types: Sequence[PrintedType], aliases: Mapping[str, str]) -> Work:
    if len(types) < 3 or min(len(types[0].shape), len(types[1].shape)) < 2:
        return NO_WORK
    first, second = factors_of(operation)
    if operation.name in _SCALED:
        is_packed = first.element == _PACKED and "lhs_k_pack = false" not in operation.tail
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
    # The default is not printed. For other operations, f32 in tensor cores is tf32.
    found, default = _PRECISION.search(operation.tail), "ieee" if operation.name == "tt.dot" else "tf32"
    family, passes = _PASSES.get(found[1] if found else default, ("tf32", 1))
    return Work({family: flops * passes})


def _family(element: str) -> str:
    return "f8" if element.startswith("f8") else element


def _resolved(layout: str, aliases: Mapping[str, str]) -> str:
    for _ in range(_MAX_NESTING):
        layout = _ALIAS.sub(lambda found: aliases.get(found[0], found[0]), layout)
    return layout


_LANES = 4  # lanes of a warp with parts of one result of a reduction: a lower bound for the layouts of tensor cores


@if_misfit(0)
def exchanged_bytes(operation: Operation, aliases: Mapping[str, str]) -> float:
    """Return an upper bound of the bytes to and from shared memory by which threads exchange elements."""
    first, last = types_of(operation)[0], types_of(operation)[-1]
    if not first.shape:
        return 0
    moves = operation.name == "ttg.convert_layout" and not _FREE_LAYOUT.search(_resolved(last.rest, aliases))
    if moves or operation.name in ("tt.gather", "tt.histogram", "tt.join", "tt.split", "tt.scan"):
        return 2 * _bytes(first)
    if operation.name == "tt.reduce":
        return 2 * last.elements * min(first.elements // last.elements, _LANES) * first.bits / 8
    if operation.traits.is_dot:
        # Without tensor cores, each thread reads the operands of its own tile: for 4 x 4, two bytes a multiplication.
        return 2 * _dot_work(operation, types_of(operation), aliases).multiplications
    return 0


_FREE_LAYOUT = re.compile(r"dot_op|slice")  # operands of dots and slices mostly stay in the threads that have them

_WORD_BITS = 32
_EXTENSIONS = ("arith.extsi", "arith.extui")
_BITWISE = ("arith.andi", "arith.ori", "arith.xori")
_INTEGER_BOUNDS = ("arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui")
_RIGHT_SHIFTS = ("arith.shrsi", "arith.shrui")
_SHIFTS = ("arith.shli", *_RIGHT_SHIFTS)
_INTEGER_DIVISIONS = (*INTEGER_DIVISIONS, "arith.ceildivsi", "arith.ceildivui", "arith.floordivsi")
_WORK_OF_INTEGER = {
    **dict.fromkeys((*_BITWISE, *_INTEGER_BOUNDS, *_RIGHT_SHIFTS, "arith.cmpi"), _LOGIC),
    **dict.fromkeys((*_INTEGER_DIVISIONS, "arith.muli"), Work(integer_multiplications=1)),
    "tt.mulhiui": Work(integer_multiplications=1, upper_halves=1),
}
# Operations that may merge with an operation whose result only they use.
_MERGED_BY: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(_BITWISE, _BITWISE),
    **dict.fromkeys(_INTEGER_BOUNDS, _INTEGER_BOUNDS),
    # A test of a range is one comparison, and what combines bits also tests them.
    "arith.cmpi": _BITWISE,
    # Bits are extracted without a shift.
    **dict.fromkeys(_RIGHT_SHIFTS, ("arith.cmpi", "arith.trunci")),
}


@lru_cache(maxsize=KERNELS_CACHED)
def work_with_integers(module: Module) -> Mapping[Operation, Work]:
    """Return the work of one execution by a CTA, for each operation on integers that does any.

    It is a lower bound of the work on data: values that were loaded, computed from floats, or are random. Addresses and
    masks do not count, because the compiler computes many of them once for several elements. It also merges what one
    instruction does: three operands of bitwise logic, a test of bits, a sum and its minimum, a product and a sum, a
    shift and a sum, the two shifts of a rotation. It extracts bits by one instruction, and replaces selects by
    predicates. So one of the operations that may be merged counts, and one half of a 64-bit word. The rules come from
    the machine code for sm_90 (``tests/compiler/test_machine_code.py``).
    """
    found: dict[Operation, Work] = {}
    for function in module.walk():
        if function.name == FUNCTION and (on_data := integer_work(module, function)):
            counted = _IntegerFunction(ValueGraph(module, function))
            for leaf in counted.graph.leaves:
                if leaf.operation.start in on_data and (work := counted.work(leaf)) != NO_WORK:
                    found[leaf.operation] = work
    return found


class _IntegerFunction:
    def __init__(self, graph: ValueGraph) -> None:
        self.graph = graph
        self._leaf_of = {leaf.node: leaf for leaf in graph.leaves}
        self._combined = {node for one, nodes in graph.results if one.traits.combines_elements for node in nodes}

    def work(self, leaf: Leaf) -> Work:
        work, types = _WORK_OF_INTEGER.get(leaf.operation.name), types_of(leaf.operation)
        if work is None or not types or not leaf.values:
            return NO_WORK
        computed = types[0] if leaf.operation.name == "arith.cmpi" else types[-1]
        # Bits are predicates.
        if not computed.shape or not computed.element.startswith("i") or computed.bits == 1 or self._is_free(leaf):
            return NO_WORK
        # Elements narrower than a word may be packed, and those that were extended from such computed in pairs.
        made = [one for one in map(self._made_by, leaf.values) if not (one and one.operation.traits.is_constant)]
        sizes = [
            types_of(one.operation)[0].bits if one and one.operation.name in _EXTENSIONS else _WORD_BITS for one in made
        ]
        bits = min(computed.bits, max(sizes, default=_WORD_BITS), _WORD_BITS)
        return work * (computed.elements * bits / _WORD_BITS)

    def _is_free(self, leaf: Leaf) -> bool:
        """Return True if instructions that count, or are none, may include the work of an operation."""
        name, uses = leaf.operation.name, self.graph.uses[leaf.node]
        user = self._leaf_of.get(uses[0]) if len(uses) == 1 else None
        if user is not None and user.operation.name in _MERGED_BY.get(name, ()):
            return True
        constants = [self._constant(value) for value in leaf.values]
        made = [one for one in map(self._made_by, leaf.values) if one]
        if name in _BITWISE:
            return self._is_free_logic(leaf, constants, [one for one in made if one.operation.name in _SHIFTS])
        if name in _RIGHT_SHIFTS:
            return constants[-1] is not None and constants[-1] % 8 == 0  # bytes are read in place
        if name in _INTEGER_DIVISIONS:
            return _is_power_of_two(constants[-1])
        if name == "arith.muli":
            # A product with a sum or difference of two powers of two may be shifts and sums; with a bit, a select.
            bits = [value for one in made if one.operation.name == "arith.andi" for value in one.values]
            has_few_bits = any(one is not None and (one ^ 3 * one).bit_count() <= 2 for one in constants)
            return has_few_bits or any(_is_power_of_two(self._constant(one)) for one in bits)
        # A comparison of a former predicate, or of combined bits.
        parts = (*_EXTENSIONS, *_BITWISE, *_SHIFTS)
        return name == "arith.cmpi" and any(one.operation.name in parts for one in made)

    def _is_free_logic(self, leaf: Leaf, constants: Sequence[int | None], shifts: Sequence[Leaf]) -> bool:
        """Return True for bitwise logic that other instructions may include.

        These are rotations, bits taken from a known place, results of a reduction (the compiler may undo it), whole
        bytes (which are read in place), a complement (part of the instruction that uses it), and bits appended to
        others (by a sum).
        """
        name = leaf.operation.name
        return (
            len(shifts) == len(leaf.values)
            or (name == "arith.andi" and any(self._constant(one.values[-1]) for one in shifts))
            or (name == "arith.ori" and any(one.operation.name == "arith.shli" for one in shifts))
            or any(self._origin(value) in self._combined for value in leaf.values)
            or any(constant in _SIMPLE for constant in constants)
        )

    def _origin(self, node: int) -> int:
        """Return the value that was computed, for one that was only passed on."""
        while (leaf := self._leaf_of.get(node)) is not None and leaf.operation.traits.keeps_elements and leaf.values:
            node = leaf.values[0]
        return node

    def _made_by(self, node: int) -> Leaf | None:
        return self._leaf_of.get(self._origin(node))

    def _constant(self, node: int) -> int | None:
        made = self._made_by(node)
        return constant_of(made.operation) if made else None


# Masks of all bits, of a half or of a byte of a word.
_SIMPLE = (-1, 0xFF, 0xFFFF, 0xFF00, 0xFF0000, -0x1000000, -0x10000)


def _is_power_of_two(number: int | None) -> bool:
    return number is not None and abs(number).bit_count() <= 1
