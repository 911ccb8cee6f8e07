"""Results of integer operations on abstract values."""

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
        return value.moved(lambda number: number + (number >= new))
    if operation.name == "tt.trans" and (printed := _ORDER.search(operation.tail)):
        return value.moved([int(number) for number in printed[1].split(",")].index)
    if operation.name == "tt.reshape" and "allow_reorder" not in operation.tail and len(types) == 2:
        return value.reshaped(types[0].shape, types[1].shape)
    return None


def _of_bitcast(operation: Operation, operands: Sequence[Value]) -> Value:
    is_float = {one.element.startswith(("f", "bf")) for one in types_of(operation)}
    return operands[0] if len(is_float) == 1 else None


def _of_widening(operation: Operation, operands: Sequence[Value]) -> Value:
    value = operands[0]
    if isinstance(value, Mask):
        joint = value.joint()
        return None if value.is_lower_bound else IntegerExpr((AxisArray(joint.axes, joint.values.astype(np.int64)),))
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


def _each(value: IntegerExpr, compute: Callable[[Array], Array]) -> IntegerExpr:
    joint = value.joint()
    return IntegerExpr((AxisArray(joint.axes, compute(joint.values)),))


def _two(compute: Callable[[IntegerExpr, IntegerExpr], Value]) -> Give:
    def give(_: Operation, operands: Sequence[Value]) -> Value:
        one, other = operands[:2]
        return compute(one, other) if isinstance(one, IntegerExpr) and isinstance(other, IntegerExpr) else None

    return give


def _unsigned(compute: Callable[[IntegerExpr, IntegerExpr], Value]) -> Give:
    """Compute with the operands' bits as unsigned numbers."""

    def give(operation: Operation, operands: Sequence[Value]) -> Value:
        bits = types_of(operation)[-1].bits
        read = [_as_unsigned(one, bits) if isinstance(one, IntegerExpr) else None for one in operands[:2]]
        return _two(compute)(operation, read)

    return give


def _as_unsigned(value: IntegerExpr, bits: int) -> IntegerExpr | None:
    low, high = value.bounds()
    if low >= 0 and high >> bits == 0:
        return value
    return _each(value, lambda values: values & ((1 << bits) - 1)) if bits < 64 else None


def _joint(compute: Callable[[Array, Array], Array]) -> Callable[[IntegerExpr, IntegerExpr], Value]:
    return lambda one, other: IntegerExpr((joined(compute, one.joint(), other.joint()),))


def _jointly(compute: Callable[[Array, Array], Array]) -> Give:
    return _two(_joint(compute))


def _bitwise(of_bits: Callable[[Array, Array], Array], of_integers: Callable[[Array, Array], Array]) -> Give:
    def give(operation: Operation, operands: Sequence[Value]) -> Value:
        one, other = operands[:2]
        if not (isinstance(one, Mask) and isinstance(other, Mask)):
            return _two(partial(_by_bits, of_integers))(operation, operands)
        if of_bits is np.logical_and:
            return one & other
        if one.is_lower_bound or other.is_lower_bound:
            return None
        return Mask((joined(of_bits, one.joint(), other.joint()),))

    return give


def _by_bits(of_integers: Callable[[Array, Array], Array], one: IntegerExpr, other: IntegerExpr) -> IntegerExpr:
    """Compute groups of terms that have no bits in common each by themselves. Raises ``TooLarge``."""
    mask = other.only()
    if of_integers is np.bitwise_and and mask is not None and mask < 0 <= one.bounds()[0]:
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
        return IntegerExpr((joined(of_integers, one.joint(), other.joint()),))
    groups: list[tuple[list[AxisArray], ...]] = []
    most = [0, 0]
    for lowest_bit, side, part in sorted(terms, key=lambda term: term[:2]):
        if lowest_bit > max(most) or not groups:
            groups.append(([constant(0)], [constant(0)]))
        groups[-1][side].append(part)
        most[side] += int(part.values.max())
    found = [joined(of_integers, *(IntegerExpr(tuple(one)).joint() for one in group)) for group in groups]
    return IntegerExpr.of(constant(0), *found)


def _times_power(one: IntegerExpr, other: IntegerExpr) -> Value:
    places = other.only()
    if places is None or not 0 <= places < 63:
        return _joint(np.left_shift)(one, other)
    return one * IntegerExpr.integer(1 << places)


def _shifted(one: IntegerExpr, other: IntegerExpr) -> Value:
    places = other.only()
    if places is None or not 0 <= places < 63 or one.bounds()[0] < 0:
        return _joint(np.right_shift)(one, other)
    return _quotient(one, IntegerExpr.integer(1 << places))


def _quotient(one: IntegerExpr, other: IntegerExpr) -> Value:
    divisor = other.only()
    if divisor and one.bounds()[0] >= 0 and one.bounds()[1] < divisor:
        return IntegerExpr.integer(0)
    if not _divides(other):
        return None
    if divisor and divisor > 0 and one.bounds()[0] >= 0:
        multiple, rest, _ = _terms_by_divisor(one, divisor)
        parts = (*multiple, rest.joint())
        return IntegerExpr.of(*(AxisArray(part.axes, part.values // divisor) for part in parts))
    return _joint(_divided)(one, other)


def _ceiling(one: IntegerExpr, other: IntegerExpr) -> Value:
    return _joint(lambda one, other: -(-one // other))(one, other) if _divides(other) else None


def _remainder(one: IntegerExpr, other: IntegerExpr) -> Value:
    divisor = other.only()
    if divisor and one.bounds()[0] >= 0 and one.bounds()[1] < divisor:
        return one
    if not _divides(other):
        return None
    if divisor and divisor > 0 and one.bounds()[0] >= 0:
        _, rest, small = _terms_by_divisor(one, divisor)
        return _each(rest, lambda values: values % divisor) + small
    return _joint(lambda one, other: one - _divided(one, other) * other)(one, other)


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


def _divides(divisor: IntegerExpr) -> bool:
    return bool(divisor.joint().values.all())


def _divided(one: Array, other: Array) -> Array:
    found: Array = np.abs(one) // np.abs(other) * np.sign(one) * np.sign(other)
    return found


_COMPARE = re.compile(r"\s*(\w+),")
_COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    **dict.fromkeys(("slt", "ult"), np.less),
    **dict.fromkeys(("sle", "ule"), np.less_equal),
    **dict.fromkeys(("sgt", "ugt"), np.greater),
    **dict.fromkeys(("sge", "uge"), np.greater_equal),
}


_UNSIGNED = ("ult", "ule", "ugt", "uge")


def _of_comparison(operation: Operation, operands: Sequence[Value]) -> Value:
    found = _COMPARE.match(operation.tail)
    compare = _COMPARISONS.get(found[1]) if found else None
    one, other = operands[:2]
    if compare is None or not isinstance(one, IntegerExpr) or not isinstance(other, IntegerExpr):
        return None
    if found and found[1] in _UNSIGNED:
        bits = types_of(operation)[-1].bits
        return _two(lambda one, other: compared(compare, one, other))(
            operation, [_as_unsigned(each, bits) for each in (one, other)]
        )
    return compared(compare, one, other)


def _of_selection(operation: Operation, operands: Sequence[Value]) -> Value:
    condition = operands[0]
    if not isinstance(condition, Mask) or condition.is_lower_bound:
        return None
    return _two(lambda one, other: where(condition, one, other))(operation, operands[1:])


def _of_join(operation: Operation, operands: Sequence[Value]) -> Value:
    """Return two tensors along a new last dimension."""
    side = IntegerExpr((counting(dimension(len(types_of(operation)[0].shape)), 2),))
    return _two(lambda one, other: one + (other - one) * side)(operation, operands)


def _of_pointer(operation: Operation, operands: Sequence[Value]) -> Value:
    pointer, offset = operands[:2]
    types = types_of(operation)
    if not isinstance(pointer, IntegerExpr) or not isinstance(offset, IntegerExpr) or not types:
        return None
    return pointer + offset * IntegerExpr.integer(bytes_of(types[0].pointee))


_SAME = """
    tt.splat tt.broadcast tt.bitcast tt.int_to_ptr tt.ptr_to_int ttg.convert_layout tt.unsplat
    arith.extsi arith.index_cast arith.index_castui
    ttg.memdesc_trans ttg.memdesc_reshape ttg.memdesc_reinterpret
"""
_LINEAR_NAMES = f"""
    {_SAME} ttg.memdesc_index ttg.memdesc_subview tt.expand_dims tt.trans tt.reshape tt.addptr
    arith.trunci arith.addi arith.subi arith.muli
"""
_LINEAR = frozenset(_LINEAR_NAMES.split())
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
    "arith.divsi": _two(_quotient),
    "arith.divui": _unsigned(_quotient),
    "arith.ceildivsi": _two(_ceiling),
    "arith.remsi": _two(_remainder),
    "arith.remui": _unsigned(_remainder),
    "arith.minsi": _jointly(np.minimum),
    "arith.minui": _unsigned(_joint(np.minimum)),
    "arith.maxsi": _jointly(np.maximum),
    "arith.maxui": _unsigned(_joint(np.maximum)),
    "arith.andi": _bitwise(np.logical_and, np.bitwise_and),
    "arith.ori": _bitwise(np.logical_or, np.bitwise_or),
    "arith.xori": _bitwise(np.logical_xor, np.bitwise_xor),
    "arith.shli": _two(_times_power),
    "arith.shrsi": _two(_shifted),
    "arith.shrui": _unsigned(_shifted),
    "math.absi": lambda _, operands: _each(operands[0], np.abs) if isinstance(operands[0], IntegerExpr) else None,
    "tt.join": _of_join,
    "arith.cmpi": _of_comparison,
    "arith.select": _of_selection,
    "tt.addptr": _of_pointer,
}
