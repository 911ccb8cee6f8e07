"""Results of integer operations on abstract values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.axis_arrays import (
    OPEN,
    OPEN_MASK,
    AxisArray,
    IntegerExpr,
    Mask,
    SharedMemorySlice,
    Value,
    compared,
    counting,
    dimension,
    is_settled,
    joined,
    where,
)
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.ssa_values import constant_of
from kprof_inject.ttgir.types import bits_of, types_of

Array = NDArray[Any]
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
    constant = constant_of(operation)
    if isinstance(constant, bool):
        return Mask.of_bit(constant)
    return None if constant is None else IntegerExpr.integer(constant)


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


def _of_expansion(operation: Operation, operands: Sequence[Value]) -> Value:
    found = _AXIS.search(operation.tail)
    if not found or not isinstance(operands[0], IntegerExpr | Mask):
        return None
    new = int(found[1])
    return operands[0].moved(lambda number: number + (number >= new))


def _of_transposition(operation: Operation, operands: Sequence[Value]) -> Value:
    found = _ORDER.search(operation.tail)
    if not found or not isinstance(operands[0], IntegerExpr | Mask):
        return None
    order = [int(number) for number in found[1].split(",")]
    return operands[0].moved(order.index)


def _of_reshaping(operation: Operation, operands: Sequence[Value]) -> Value:
    """Reshape, unless the compiler may reorder the elements."""
    types = types_of(operation)
    if "allow_reorder" in operation.tail or len(types) != 2 or not isinstance(operands[0], IntegerExpr | Mask):
        return None
    return operands[0].reshaped(types[0].shape, types[1].shape)


def _of_widening(operation: Operation, operands: Sequence[Value]) -> Value:
    value = operands[0]
    if isinstance(value, Mask):
        joint = value.joint()
        return None if value.is_lower_bound else IntegerExpr((AxisArray(joint.axes, joint.values.astype(np.int64)),))
    if not isinstance(value, IntegerExpr) or value.bounds()[0] >= 0:
        return value
    bits = types_of(operation)[0].bits
    return _each(value, lambda values: np.where(values < 0, values + (1 << bits), values)) if bits < _WORD else None


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


_WORD = 64


def _two(compute: Callable[[IntegerExpr, IntegerExpr], Value]) -> Give:
    def give(_: Operation, operands: Sequence[Value]) -> Value:
        one, other = operands[:2]
        return compute(one, other) if isinstance(one, IntegerExpr) and isinstance(other, IntegerExpr) else None

    return give


def _unsigned(compute: Callable[[IntegerExpr, IntegerExpr], Value]) -> Give:
    """Compute only non-negative operands: unsigned operations read negative ones differently."""
    return _two(lambda one, other: compute(one, other) if min(one.bounds()[0], other.bounds()[0]) >= 0 else None)


def _joint(compute: Callable[[Array, Array], Array]) -> Callable[[IntegerExpr, IntegerExpr], Value]:
    return lambda one, other: IntegerExpr((joined(compute, one.joint(), other.joint()),))


def _jointly(compute: Callable[[Array, Array], Array]) -> Give:
    return _two(_joint(compute))


def _bitwise(of_masks: Callable[[Mask, Mask], Value], of_sums: Callable[[Array, Array], Array]) -> Give:
    of_integers = _jointly(of_sums)

    def give(operation: Operation, operands: Sequence[Value]) -> Value:
        one, other = operands[:2]
        if isinstance(one, Mask) and isinstance(other, Mask):
            return of_masks(one, other)
        return of_integers(operation, operands)

    return give


def _joined_masks(compute: Callable[[Array, Array], Array]) -> Callable[[Mask, Mask], Value]:
    def give(one: Mask, other: Mask) -> Value:
        if one.is_lower_bound or other.is_lower_bound:
            return None
        return Mask((joined(compute, one.joint(), other.joint()),))

    return give


def _quotient(one: IntegerExpr, other: IntegerExpr) -> Value:
    divisor = other.only()
    if divisor and one.bounds()[0] >= 0 and one.bounds()[1] < divisor:
        return IntegerExpr.integer(0)
    if not _divides(other):
        return None
    if divisor and divisor > 0 and one.bounds()[0] >= 0:
        multiple, rest = _multiple_and_rest(one, divisor)
        return IntegerExpr.of(*(_floor(part, divisor) for part in multiple), _floor(rest.joint(), divisor))
    return IntegerExpr((joined(_divided, one.joint(), other.joint()),))


def _ceiling(one: IntegerExpr, other: IntegerExpr) -> Value:
    if not _divides(other):
        return None
    return IntegerExpr((joined(lambda one, other: -(-one // other), one.joint(), other.joint()),))


def _remainder(one: IntegerExpr, other: IntegerExpr) -> Value:
    divisor = other.only()
    if divisor and one.bounds()[0] >= 0 and one.bounds()[1] < divisor:
        return one
    if not _divides(other):
        return None
    if divisor and divisor > 0 and one.bounds()[0] >= 0:
        _, rest = _multiple_and_rest(one, divisor)
        return _each(rest, lambda values: values % divisor)
    return IntegerExpr((joined(lambda one, other: one - _divided(one, other) * other, one.joint(), other.joint()),))


def _multiple_and_rest(value: IntegerExpr, divisor: int) -> tuple[list[AxisArray], IntegerExpr]:
    """Split a sum into parts that are multiples of a number, and the others, which need not be joined with them."""
    is_multiple = [not (part.values % divisor).any() for part in value.parts]
    multiple = [part for part, is_it in zip(value.parts, is_multiple, strict=True) if is_it]
    rest = [part for part, is_it in zip(value.parts, is_multiple, strict=True) if not is_it]
    return multiple, IntegerExpr(tuple(rest)) if rest else IntegerExpr.integer(0)


def _floor(part: AxisArray, divisor: int) -> AxisArray:
    return AxisArray(part.axes, part.values // divisor)


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
    if found and found[1] in _UNSIGNED and min(one.bounds()[0], other.bounds()[0]) < 0:
        return None
    return compared(compare, one, other)


def _of_selection(_: Operation, operands: Sequence[Value]) -> Value:
    condition, one, other = operands[:3]
    if not isinstance(condition, Mask) or condition.is_lower_bound:
        return None
    return where(condition, one, other) if isinstance(one, IntegerExpr) and isinstance(other, IntegerExpr) else None


def _of_pointer(operation: Operation, operands: Sequence[Value]) -> Value:
    pointer, offset = operands[:2]
    types = types_of(operation)
    if not isinstance(pointer, IntegerExpr) or not isinstance(offset, IntegerExpr) or not types:
        return None
    return pointer + offset * IntegerExpr.integer(bytes_of(types[0].pointee))


def bytes_of(element: str) -> int:
    """Return the size of an element type in bytes, at least 1."""
    return _POINTER_BYTES if element.startswith("!tt.ptr") else max(bits_of(element) // 8, 1)


_POINTER_BYTES = 8


_SAME = """
    tt.splat tt.broadcast tt.bitcast tt.int_to_ptr tt.ptr_to_int ttg.convert_layout tt.unsplat
    arith.extsi arith.index_cast arith.index_castui
    ttg.memdesc_trans ttg.memdesc_reshape ttg.memdesc_reinterpret
"""
_LINEAR = frozenset(
    (
        *_SAME.split(),
        "ttg.memdesc_index",
        "ttg.memdesc_subview",
        "tt.expand_dims",
        "tt.trans",
        "tt.reshape",
        "arith.trunci",
        "arith.addi",
        "arith.subi",
        "arith.muli",
        "tt.addptr",
    )
)
_OPERATIONS: Mapping[str, Give] = {
    "arith.constant": _of_constant,
    "tt.make_range": _of_range,
    # A value that a tensor repeats needs no axis for it.
    **dict.fromkeys(_SAME.split(), lambda _, operands: operands[0] if operands else None),
    **dict.fromkeys(
        ("ttg.local_alloc", "ttng.tmem_alloc"), lambda one, _: SharedMemorySlice(one, IntegerExpr.integer(0))
    ),
    **dict.fromkeys(("ttg.memdesc_index", "ttg.memdesc_subview"), _of_part),
    "arith.extui": _of_widening,
    "arith.trunci": _of_narrowing,
    "tt.expand_dims": _of_expansion,
    "tt.trans": _of_transposition,
    "tt.reshape": _of_reshaping,
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
    "arith.andi": _bitwise(lambda one, other: one & other, np.bitwise_and),
    "arith.ori": _bitwise(_joined_masks(np.logical_or), np.bitwise_or),
    "arith.xori": _bitwise(_joined_masks(np.logical_xor), np.bitwise_xor),
    "arith.shli": _jointly(np.left_shift),
    "arith.shrsi": _jointly(np.right_shift),
    "arith.shrui": _unsigned(_joint(np.right_shift)),
    "arith.cmpi": _of_comparison,
    "arith.select": _of_selection,
    "tt.addptr": _of_pointer,
}
