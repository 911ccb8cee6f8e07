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
    OPEN,
    OPEN_MASK,
    Array,
    AxisArray,
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
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import constant_of
from kprof_inject.ttgir.types import bytes_of, types_of

Give = Callable[[Operation, Sequence[Value]], Value]


def value_of(operation: Operation, operands: Sequence[Value]) -> Value:
    """Compute the result of an operation that has one result; None is unknown.

    Raises ``TooLarge``, and ``MISFITS`` if the operands do not fit the operation.
    """
    give = _OPERATIONS.get(operation.name)
    if give is None:
        return None
    if operation.name not in _LINEAR and not all(map(is_settled, operands)):
        return OPEN_MASK if operation.name == "arith.cmpi" else OPEN
    return give(operation, operands)


def _of_constant(operation: Operation, _: Sequence[Value]) -> Value:
    number = constant_of(operation)
    if isinstance(number, bool):
        return Mask.of_bit(number)
    return None if number is None else IntegerExpr.integer(number)


_RANGE = re.compile(r"\b(start|end) = (-?\d+)")


def _of_range(operation: Operation, _: Sequence[Value]) -> Value:
    ends = {name: int(value) for name, value in _RANGE.findall(operation.tail)}
    (result,), first = types_of(operation), ends.get("start", 0)
    if result.shape != (ends["end"] - first,):
        return None
    return IntegerExpr((counting(dimension(0), *result.shape, first),))


def _of_part(_: Operation, operands: Sequence[Value]) -> Value:
    whole, index = operands[:2]
    if not isinstance(whole, SharedMemorySlice):
        return None
    return SharedMemorySlice(whole.allocation, index if isinstance(index, IntegerExpr) else None)


_AXIS = re.compile(r"\baxis = (\d+)")
_ORDER = re.compile(r"\border = array<i32: ([\d, ]+)>")


def _of_shape(operation: Operation, operands: Sequence[Value]) -> Value:
    """Move or reshape dimensions, unless the compiler may reorder the elements."""
    value, types = operands[0], types_of(operation)
    if not isinstance(value, IntegerExpr | Mask):
        return None
    if operation.name == "tt.expand_dims" and (axis := _AXIS.search(operation.tail)):
        new = int(axis[1])
        return value.each(lambda part: part.moved(lambda number: number + (number >= new)))
    if operation.name == "tt.trans" and (printed := _ORDER.search(operation.tail)):
        order = [int(number) for number in printed[1].split(",")]
        return value.each(lambda part: part.moved(order.index))
    if operation.name == "tt.reshape" and "allow_reorder" not in operation.tail and len(types) == 2:
        return value.each(lambda part: part.reshaped(types[0].shape, types[1].shape))
    return None


def _of_bitcast(operation: Operation, operands: Sequence[Value]) -> Value:
    is_float = {one.element.startswith(("f", "bf")) for one in types_of(operation)}
    return operands[0] if len(is_float) == 1 else None


def _of_widening(operation: Operation, operands: Sequence[Value]) -> Value:
    value = operands[0]
    if isinstance(value, Mask):
        return None if value.is_lower_bound else _each(value, lambda values: values.astype(np.int64))
    if not isinstance(value, IntegerExpr) or value.bounds()[0] >= 0:
        return value
    bits = types_of(operation)[0].bits
    return _each(value, lambda values: np.where(values < 0, values + (1 << bits), values)) if bits < 64 else None


def _of_narrowing(operation: Operation, operands: Sequence[Value]) -> Value:
    """Keep the low bits of a number; a placeholder is assumed to fit."""
    value, bits = operands[0], types_of(operation)[-1].bits
    if not isinstance(value, IntegerExpr) or not is_settled(value):
        return value
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


OfIntegers = Callable[[IntegerExpr, IntegerExpr], Value]


def _two(compute: OfIntegers) -> Give:
    """Compute with two integers; operations whose names end in ``ui`` take their bits as unsigned numbers."""

    def give(operation: Operation, operands: Sequence[Value]) -> Value:
        if operation.name.endswith("ui"):
            operands = _unsigned(operation, operands)
        one, other = operands[:2]
        return compute(one, other) if isinstance(one, IntegerExpr) and isinstance(other, IntegerExpr) else None

    return give


def _unsigned(operation: Operation, operands: Sequence[Value]) -> list[Value]:
    bits = types_of(operation)[-1].bits
    return [_as_unsigned(one, bits) if isinstance(one, IntegerExpr) else None for one in operands]


def _as_unsigned(value: IntegerExpr, bits: int) -> IntegerExpr | None:
    low, high = value.bounds()
    if low >= 0 and high >> bits == 0:
        return value
    return _each(value, lambda values: values & ((1 << bits) - 1)) if bits < 64 else None


def _joint(compute: Callable[[Array, Array], Array]) -> OfIntegers:
    return lambda one, other: IntegerExpr((joined(compute, one.joint(), other.joint()),))


def _bitwise(compute: Callable[[Array, Array], Array]) -> Give:
    def give(operation: Operation, operands: Sequence[Value]) -> Value:
        one, other = operands[:2]
        if not (isinstance(one, Mask) and isinstance(other, Mask)):
            return _two(partial(_by_bits, compute))(operation, operands)
        if compute is np.bitwise_and:
            return one & other
        if one.is_lower_bound or other.is_lower_bound:
            return None
        return Mask((joined(compute, one.joint(), other.joint()),))

    return give


def _by_bits(compute: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    """Compute groups of terms that have no bits in common each by themselves. Raises ``TooLarge``."""
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
        return IntegerExpr((joined(compute, one.joint(), other.joint()),))
    groups: list[tuple[list[AxisArray], ...]] = []
    most = [0, 0]
    for lowest_bit, side, part in sorted(terms, key=lambda term: term[:2]):
        if lowest_bit > max(most) or not groups:
            groups.append(([constant(0)], [constant(0)]))
        groups[-1][side].append(part)
        most[side] += int(part.values.max())
    found = [joined(compute, *(IntegerExpr(tuple(one)).joint() for one in group)) for group in groups]
    return IntegerExpr.of(constant(0), *found)


_MAX_SHIFT = 62  # larger powers of two are no 64-bit integers


def _times_power(one: IntegerExpr, other: IntegerExpr) -> Value:
    places = other.only()
    if places is None or not 0 <= places <= _MAX_SHIFT:
        return _joint(np.left_shift)(one, other)
    return one * IntegerExpr.integer(1 << places)


def _shifted(one: IntegerExpr, other: IntegerExpr) -> Value:
    places = other.only()
    if places is None or not 0 <= places <= _MAX_SHIFT or one.bounds()[0] < 0:
        return _joint(np.right_shift)(one, other)
    return _quotient(one, IntegerExpr.integer(1 << places))


def _quotient(one: IntegerExpr, other: IntegerExpr) -> Value:
    return _divided(one, other)[0]


def _remainder(one: IntegerExpr, other: IntegerExpr) -> Value:
    return _divided(one, other)[1]


def _divided(one: IntegerExpr, other: IntegerExpr) -> tuple[Value, Value]:
    """Return quotient and remainder; None if a divisor is 0. Raises ``TooLarge``."""
    divisor, (low, high) = other.only(), one.bounds()
    if divisor and low >= 0 and high < divisor:
        return IntegerExpr.integer(0), one
    if not other.joint().values.all():
        return None, None
    if divisor and divisor > 0 and low >= 0:
        multiple, rest, small = _terms_by_divisor(one, divisor)
        parts = (AxisArray(part.axes, part.values // divisor) for part in (*multiple, rest.joint()))
        return IntegerExpr.of(*parts), _each(rest, lambda values: values % divisor) + small
    return _joint(_truncated)(one, other), _joint(lambda one, other: one - _truncated(one, other) * other)(one, other)


def _truncated(one: Array, other: Array) -> Array:
    found: Array = np.abs(one) // np.abs(other) * np.sign(one) * np.sign(other)
    return found


def _ceiling(one: IntegerExpr, other: IntegerExpr) -> Value:
    return _joint(lambda one, other: -(-one // other))(one, other) if other.joint().values.all() else None


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


def _of_comparison(operation: Operation, operands: Sequence[Value]) -> Value:
    found = _COMPARISON.match(operation.tail)
    if found is None:
        return None
    read = _unsigned(operation, operands) if found[1] == "u" else operands
    return _two(partial(compared, _COMPARISONS[found[2]]))(operation, read)


def _of_selection(operation: Operation, operands: Sequence[Value]) -> Value:
    condition = operands[0]
    if not isinstance(condition, Mask) or condition.is_lower_bound:
        return None
    return _two(partial(where, condition))(operation, operands[1:])


def _of_join(operation: Operation, operands: Sequence[Value]) -> Value:
    """Return two tensors along a new last dimension."""
    side = IntegerExpr((counting(dimension(len(types_of(operation)[0].shape)), 2),))
    return _two(lambda one, other: one + (other - one) * side)(operation, operands)


def _of_pointer(operation: Operation, operands: Sequence[Value]) -> Value:
    size_bytes = IntegerExpr.integer(bytes_of(types_of(operation)[0].pointee))
    return _two(lambda pointer, offset: pointer + offset * size_bytes)(operation, operands)


_SAME = """
    tt.splat tt.broadcast tt.int_to_ptr tt.ptr_to_int ttg.convert_layout tt.unsplat
    arith.extsi arith.index_cast arith.index_castui
    ttg.memdesc_trans ttg.memdesc_reshape ttg.memdesc_reinterpret
"""
_LINEAR_NAMES = f"""
    {_SAME} tt.bitcast ttg.memdesc_index ttg.memdesc_subview tt.expand_dims tt.trans tt.reshape tt.addptr
    arith.trunci arith.addi arith.subi arith.muli
"""
_LINEAR = frozenset(_LINEAR_NAMES.split())  # placeholders may be operands of these
_OPERATIONS: Mapping[str, Give] = {
    "arith.constant": _of_constant,
    "tt.make_range": _of_range,
    # A value that a tensor repeats needs no axis for it.
    **dict.fromkeys(_SAME.split(), lambda _, operands: operands[0] if operands else None),
    **dict.fromkeys(
        ("ttg.local_alloc", "ttng.tmem_alloc"), lambda one, _: SharedMemorySlice(one, IntegerExpr.integer(0))
    ),
    **dict.fromkeys(("ttg.memdesc_index", "ttg.memdesc_subview"), _of_part),
    "tt.bitcast": _of_bitcast,
    "arith.extui": _of_widening,
    "arith.trunci": _of_narrowing,
    **dict.fromkeys(("tt.expand_dims", "tt.trans", "tt.reshape"), _of_shape),
    # No kernel depends on poison.
    "ub.poison": lambda operation, _: Mask() if types_of(operation)[0].element == "i1" else IntegerExpr.integer(0),
    "arith.addi": _two(lambda one, other: one + other),
    "arith.subi": _two(lambda one, other: one + -other),
    "arith.muli": _two(lambda one, other: one * other if is_settled(one) or is_settled(other) else OPEN),
    **dict.fromkeys(("arith.divsi", "arith.divui"), _two(_quotient)),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _two(_remainder)),
    "arith.ceildivsi": _two(_ceiling),
    **dict.fromkeys(("arith.minsi", "arith.minui"), _two(_joint(np.minimum))),
    **dict.fromkeys(("arith.maxsi", "arith.maxui"), _two(_joint(np.maximum))),
    "arith.andi": _bitwise(np.bitwise_and),
    "arith.ori": _bitwise(np.bitwise_or),
    "arith.xori": _bitwise(np.bitwise_xor),
    "arith.shli": _two(_times_power),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), _two(_shifted)),
    "math.absi": lambda _, operands: _each(operands[0], np.abs) if isinstance(operands[0], IntegerExpr) else None,
    "tt.join": _of_join,
    "arith.cmpi": _of_comparison,
    "arith.select": _of_selection,
    "tt.addptr": _of_pointer,
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
    """Compute the result of an operation on floats, or of a conversion from or to them; None is unknown.

    Raises ``TooLarge``, and ``MISFITS`` if the operands do not fit the operation.
    """
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
