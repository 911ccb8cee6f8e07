"""Results of operations on abstract values: of integers, and of floats that a kernel converts to integers.

Such floats are roots that find the row of a packed triangle, for example. They are computed as IEEE 754 defines it; a
GPU's fast division and root may differ in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import gcd

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import (
    ALWAYS,
    NEVER,
    OPEN,
    OPEN_MASK,
    Array,
    AxisArray,
    Descriptor,
    IntegerExpr,
    Mask,
    SharedMemorySlice,
    Value,
    compared,
    constant,
    counting,
    dimension,
    is_settled,
    joined,
    where,
)
from kprof_inject.ttgir.dialect import AXIS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import constant_of
from kprof_inject.ttgir.types import bytes_of, if_misfit, types_of

# A value that a tensor repeats needs no axis for it.
_SAME_NAMES = """
    tt.splat tt.broadcast tt.unsplat ttg.convert_layout tt.int_to_ptr tt.ptr_to_int
    arith.extsi arith.index_cast arith.index_castui ttg.memdesc_trans ttg.memdesc_reshape ttg.memdesc_reinterpret
"""
# Placeholders are no operands of these; of additions and the like they may be.
_NOT_LINEAR_NAMES = """
    ttg.local_alloc ttng.tmem_alloc tt.join arith.extui arith.select arith.cmpi math.absi
    arith.divsi arith.divui arith.ceildivsi arith.remsi arith.remui arith.minsi arith.minui arith.maxsi arith.maxui
    arith.andi arith.ori arith.xori arith.shli arith.shrsi arith.shrui
"""
_SAME, _NOT_LINEAR = (frozenset(names.split()) for names in (_SAME_NAMES, _NOT_LINEAR_NAMES))
_BITWISE = {"arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor}
_RANGE = re.compile(r"\b(start|end) = (-?\d+)")
_ORDER = re.compile(r"\border = array<i32: ([\d, ]+)>")


def value_of(operation: Operation, operands: Sequence[Value]) -> Value:
    """Compute the result of an operation that has one result. Raises ``TooLarge`` and ``MISFITS``."""
    name, types = operation.name, types_of(operation)
    if name in _NOT_LINEAR and not all(map(is_settled, operands)):
        return OPEN_MASK if name == "arith.cmpi" else OPEN
    match name, operands:
        case "arith.constant", _:
            number = constant_of(operation)
            if isinstance(number, bool):
                return ALWAYS if number else NEVER
            return None if number is None else IntegerExpr.integer(number)
        case "ub.poison", _:  # no kernel depends on it
            return ALWAYS if types[0].element == "i1" else IntegerExpr.integer(0)
        case "tt.make_range", _:
            ends = {end: int(number) for end, number in _RANGE.findall(operation.tail)}
            first, size = ends.get("start", 0), ends["end"] - ends.get("start", 0)
            return IntegerExpr((counting(dimension(0), size, first),)) if types[0].shape == (size,) else None
        case _, [value, *_] if name in _SAME:
            return value
        case "tt.bitcast", [value]:
            is_float = {one.element.startswith(("f", "bf")) for one in types}
            return value if len(is_float) == 1 else None
        case "ttg.local_alloc" | "ttng.tmem_alloc", _:
            return SharedMemorySlice(operation, IntegerExpr.integer(0))
        case "ttg.memdesc_index" | "ttg.memdesc_subview", [SharedMemorySlice() as memory, index, *_]:
            return SharedMemorySlice(memory.allocation, index if isinstance(index, IntegerExpr) else None)
        case "tt.expand_dims", [IntegerExpr() | Mask() as value] if axis := AXIS.search(operation.tail):
            new = int(axis[1])
            return value.each(lambda part: part.moved(lambda number: number + (number >= new)))
        case "tt.trans", [IntegerExpr() | Mask() as value] if printed := _ORDER.search(operation.tail):
            order = [int(number) for number in printed[1].split(",")]
            return value.each(lambda part: part.moved(order.index))
        case "tt.reshape", [IntegerExpr() | Mask() as value] if "allow_reorder" not in operation.tail:
            before, after = types
            return value.each(lambda part: part.reshaped(before.shape, after.shape))
        case "tt.join", [IntegerExpr() as one, IntegerExpr() as other]:  # along a new last dimension
            side = IntegerExpr((counting(dimension(len(types[0].shape)), 2),))
            return one + (other - one) * side
        case "tt.make_tensor_descriptor", _:
            return descriptor_of(operands, (len(operands) - 1) // 2, bytes_of(types[0].pointee))
        case "tt.addptr", [IntegerExpr() as pointer, IntegerExpr() as offset]:
            return pointer + offset * IntegerExpr.integer(bytes_of(types[0].pointee))
        case "arith.trunci", [IntegerExpr() as one] if is_settled(one):  # a placeholder is assumed to fit
            return _low_bits(one, types[-1].bits)
        case "arith.trunci", [value]:
            return value
        case "arith.extui", [Mask() as mask]:
            return None if mask.is_lower_bound else _each(mask, lambda values: values.astype(np.int64))
        case "arith.extui", [IntegerExpr() as one]:
            return one if one.bounds()[0] >= 0 else _unsigned(one, types[0].bits)
        case "math.absi", [IntegerExpr() as one]:
            return _each(one, np.abs)
        case "arith.andi", [Mask() as mask, Mask() as other_mask]:
            return mask & other_mask
        case _, [Mask(is_lower_bound=False) as mask, Mask(is_lower_bound=False) as other_mask] if name in _BITWISE:
            return Mask((joined(_BITWISE[name], mask.joint(), other_mask.joint()),))
        case "arith.select", [Mask(is_lower_bound=False) as mask, IntegerExpr() as one, IntegerExpr() as other]:
            return where(mask, one, other)
        case "arith.cmpi", [IntegerExpr() as one, IntegerExpr() as other]:
            return _compared(operation, one, other)
        case _, [IntegerExpr() as one, IntegerExpr() as other] if name in _OF_INTEGERS:
            if name.endswith("ui"):
                one, other = (_unsigned(each, types[-1].bits) for each in (one, other))
            return _OF_INTEGERS[name](one, other)
    return None


def _low_bits(value: IntegerExpr, bits: int) -> IntegerExpr | Mask:
    if bits == 1:
        joint = value.joint()
        return Mask((AxisArray(joint.axes, joint.values & 1 != 0),))
    low, high = value.bounds()
    half = 1 << (bits - 1)
    if -half <= low and high < half:
        return value
    return _each(value, lambda values: ((values + half) & (2 * half - 1)) - half)


def _each(value: IntegerExpr | Mask, compute: Callable[[Array], Array]) -> IntegerExpr:
    joint = value.joint()
    return IntegerExpr((AxisArray(joint.axes, compute(joint.values)),))


def _unsigned(value: IntegerExpr, bits: int) -> IntegerExpr:
    low, high = value.bounds()
    if low >= 0 and high >> bits == 0:
        return value
    if bits >= 64:  # negative, and too large as an unsigned number
        raise OverflowError
    return _each(value, lambda values: values & ((1 << bits) - 1))


# The first letter says whether integers are signed, and the order of floats that are no numbers.
_COMPARISON = re.compile(r"\s*([sou]?)(eq|ne|lt|le|gt|ge),")
_COMPARISONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _compared(operation: Operation, one: IntegerExpr, other: IntegerExpr) -> Mask | None:
    found = _COMPARISON.match(operation.tail)
    if found and found[1] == "u":
        one, other = (_unsigned(each, types_of(operation)[-1].bits) for each in (one, other))
    return compared(_COMPARISONS[found[2]], one, other) if found else None


_MAX_SHIFT = 62  # larger powers of two are no 64-bit integers


def _shifted(compute: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> IntegerExpr | None:
    places = other.only()
    if places is None or not 0 <= places <= _MAX_SHIFT or (compute is np.right_shift and one.bounds()[0] < 0):
        return _joint(compute, one, other)
    power = IntegerExpr.integer(1 << places)
    return one * power if compute is np.left_shift else _divided(one, power)[0]


def _joint(compute: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    return IntegerExpr((joined(compute, one.joint(), other.joint()),))


def _by_bits(compute: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    """Compute groups of terms that have no bits in common each by themselves."""
    mask = other.only()
    if compute is np.bitwise_and and mask is not None and mask < 0 <= one.bounds()[0]:
        other = IntegerExpr.integer(mask & (1 << one.bounds()[1].bit_length()) - 1)
    terms: list[tuple[int, int, AxisArray]] = []
    for side, value in enumerate((one, other)):
        for part in value.parts:
            bits = int(np.bitwise_or.reduce(part.values, axis=None))
            # A number that is the same everywhere can be split anywhere.
            for term in [part] if part.axes or bits < 0 else [constant(bits & 1 << place) for place in range(63)]:
                if term.values.any():
                    terms.append((bits & -bits if term is part else int(term.values), side, term))
    if any(part.values.min(initial=0) < 0 for _, _, part in terms):
        return _joint(compute, one, other)
    groups: list[tuple[list[AxisArray], ...]] = []
    most = [0, 0]
    for lowest_bit, side, part in sorted(terms, key=lambda term: term[:2]):
        if lowest_bit > max(most) or not groups:
            groups.append(([constant(0)], [constant(0)]))
        groups[-1][side].append(part)
        most[side] += int(part.values.max())
    found = [joined(compute, *(IntegerExpr(tuple(one)).joint() for one in group)) for group in groups]
    return IntegerExpr.of(constant(0), *found)


def _divided(one: IntegerExpr, other: IntegerExpr) -> tuple[IntegerExpr | None, IntegerExpr | None]:
    """Return quotient and remainder; None if a divisor is 0."""
    divisor, (low, high) = other.only(), one.bounds()
    if divisor and low >= 0 and high < divisor:
        return IntegerExpr.integer(0), one
    if not other.joint().values.all():
        return None, None
    if divisor and divisor > 0 and low >= 0:
        multiple, rest, small = _terms_by_divisor(one, divisor)
        parts = (AxisArray(part.axes, part.values // divisor) for part in (*multiple, rest.joint()))
        return IntegerExpr.of(*parts), _each(rest, lambda values: values % divisor) + small
    rest = _joint(lambda one, other: one - _truncated(one, other) * other, one, other)
    return _joint(_truncated, one, other), rest


def _truncated(one: Array, other: Array) -> Array:
    found: Array = np.abs(one) // np.abs(other) * np.sign(one) * np.sign(other)
    return found


def _terms_by_divisor(value: IntegerExpr, divisor: int) -> tuple[list[AxisArray], IntegerExpr, IntegerExpr]:
    """Split a sum into terms that are multiples of a number, others, and small ones that only add to the remainder.

    All but the small ones are multiples of a divisor of the number, and those are never as large as that.
    """
    factors = [(gcd(divisor, int(np.gcd.reduce(part.values, axis=None))), part) for part in value.parts]
    multiple = [part for factor, part in factors if factor == divisor]
    rest = sorted((one for one in factors if one[0] != divisor), key=lambda one: -one[0])
    count = len(rest)
    for place, (factor, _) in enumerate(rest):
        low, high = IntegerExpr(tuple(part for _, part in rest[place:])).bounds()
        if low >= 0 and high < gcd(divisor, *(factor for factor, _ in rest[:place])):
            count = place
            break
    others, small = (IntegerExpr.of(constant(0), *(part for _, part in some)) for some in (rest[:count], rest[count:]))
    return multiple, others, small


_OF_INTEGERS: Mapping[str, Callable[[IntegerExpr, IntegerExpr], Value]] = {
    "arith.addi": lambda one, other: one + other,
    "arith.subi": lambda one, other: one + -other,
    "arith.muli": lambda one, other: one * other if is_settled(one) or is_settled(other) else OPEN,
    **dict.fromkeys(("arith.divsi", "arith.divui"), lambda one, other: _divided(one, other)[0]),
    **dict.fromkeys(("arith.remsi", "arith.remui"), lambda one, other: _divided(one, other)[1]),
    "arith.ceildivsi": lambda one, other: (
        _joint(lambda one, other: -(-one // other), one, other) if other.joint().values.all() else None
    ),
    **dict.fromkeys(("arith.minsi", "arith.minui"), partial(_joint, np.minimum)),
    **dict.fromkeys(("arith.maxsi", "arith.maxui"), partial(_joint, np.maximum)),
    **{name: partial(_by_bits, compute) for name, compute in _BITWISE.items()},
    "arith.shli": partial(_shifted, np.left_shift),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), partial(_shifted, np.right_shift)),
}

_FLOATS = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
_FLOAT_CONSTANT = re.compile(r"\s*(?:dense<)?(-?\d+\.[\d.e+-]+)>? : ")
_OF_FLOATS: Mapping[str, Callable[..., Array]] = {
    **dict.fromkeys(("arith.sitofp", "arith.extf", "arith.truncf"), np.positive),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), np.trunc),
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    **dict.fromkeys(("arith.divf", "tt.precise_divf"), np.divide),
    "arith.negf": np.negative,
    **dict.fromkeys(("arith.maximumf", "arith.maxnumf"), np.maximum),
    **dict.fromkeys(("arith.minimumf", "arith.minnumf"), np.minimum),
    "tt.clampf": np.clip,
    **dict.fromkeys(("math.sqrt", "tt.precise_sqrt"), np.sqrt),
    "math.absf": np.abs,
    "math.floor": np.floor,
    "math.ceil": np.ceil,
    "math.exp2": np.exp2,
    "math.log2": np.log2,
}


def float_value_of(operation: Operation, operands: Sequence[Value]) -> Value:
    """Compute the result of an operation on floats, or of a conversion. Raises ``TooLarge`` and ``MISFITS``."""
    kind, compute = types_of(operation)[-1].element, _OF_FLOATS.get(operation.name)
    if operation.name == "arith.constant":
        number = _FLOAT_CONSTANT.match(operation.tail)
        return IntegerExpr((AxisArray((), np.array(number[1], _FLOATS[kind])),)) if number else None
    is_comparison = operation.name == "arith.cmpf"
    if is_comparison and (predicate := _COMPARISON.match(operation.tail)):
        compute = _COMPARISONS[predicate[2]]
    parts = [one for one in operands if isinstance(one, IntegerExpr)]
    if compute is None or len(parts) < len(operands):
        return None
    if not all(map(is_settled, parts)):
        return OPEN_MASK if is_comparison else OPEN
    found = joined(compute, *(one.joint() for one in parts))
    if is_comparison:
        return Mask((found,))
    if kind not in _FLOATS and not np.isfinite(found.values).all():
        return None
    return IntegerExpr((AxisArray(found.axes, found.values.astype(_FLOATS.get(kind, np.int64))),))


def descriptor_of(values: Sequence[Value], rank: int, element_bytes: int) -> Descriptor:
    """Return the descriptor of a base address, then ``rank`` sizes, then as many strides in elements."""
    address, *sums = (value if isinstance(value, IntegerExpr) else None for value in values)
    element = IntegerExpr.integer(element_bytes)
    strides = tuple(stride and stride * element for stride in sums[rank : 2 * rank])
    return Descriptor(address, tuple(sums[:rank]), strides)


_LIST = re.compile(r"\[([^\]]*)\]")


@if_misfit(None)
def descriptor_in_memory(operation: Operation, operands: Sequence[Value]) -> Descriptor | None:
    """Return the descriptor that ``ttng.tensormap_create`` writes.

    Printed form: ``%to, %base, [box], [shape], [strides in bytes, except the innermost], [element strides]``, innermost
    dimension first.
    """
    types = types_of(operation)
    boxes, rank, *rest = (one.count("%") for one in _LIST.findall(operation.tail.partition(" : ")[0]))
    if len(rest) != 2 or len(operands) != 2 + boxes + rank + sum(rest):
        return None
    sums = [value if isinstance(value, IntegerExpr) else None for value in operands]
    shape, strides = sums[2 + boxes :][:rank], sums[2 + boxes + rank :][: rank - 1]
    element = IntegerExpr.integer(bytes_of(types[1].pointee))
    return Descriptor(sums[1], tuple(shape[::-1]), (*strides[::-1], element))


_DESCRIBED = re.compile(r"!tt\.tensordesc<(?:tensor<)?((?:\d+x)+)([a-z]\w*)")


def described(argument_type: str) -> tuple[int, int] | None:
    """Return the rank and the element size in bytes of an argument that is a descriptor, and None for others."""
    found = _DESCRIBED.match(argument_type)
    return (found[1].count("x"), bytes_of(found[2])) if found else None
