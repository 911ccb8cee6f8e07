"""Floats that a kernel converts to integers, such as the root that finds the row of a packed triangle.

They are computed as IEEE 754 defines it. A GPU's fast division and root may differ in the last bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from kprof_inject.analysis.interpreter.axis_arrays import (
    OPEN,
    OPEN_MASK,
    Array,
    AxisArray,
    IntegerExpr,
    Mask,
    Value,
    is_settled,
    joined,
)
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.types import types_of


def has_float_indices(module: Module) -> bool:
    """Return True if a module converts any floats to integers."""
    return "arith.fpto" in module.text


_TYPES = {"f16": np.float16, "bf16": np.float32, "f32": np.float32, "f64": np.float64}
_CONSTANT = re.compile(r"\s*(?:dense<)?(-?\d+\.[\d.e+-]+)>? : ")
_PREDICATE = re.compile(r"\s*[ou]?(eq|ne|lt|le|gt|ge),")
_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
_COMPUTE: Mapping[str, Callable[..., Array]] = {
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
    kind = types_of(operation)[-1].element
    if operation.name == "arith.constant":
        number = _CONSTANT.match(operation.tail)
        return IntegerExpr((AxisArray((), np.array(number[1], _TYPES[kind])),)) if number else None
    is_comparison = operation.name == "arith.cmpf"
    compute = _COMPUTE.get(operation.name)
    if is_comparison and (predicate := _PREDICATE.match(operation.tail)):
        compute = _COMPARISONS[predicate[1]]
    if compute is None or not all(isinstance(one, IntegerExpr) for one in operands):
        return None
    if not all(map(is_settled, operands)):
        return OPEN_MASK if is_comparison else OPEN
    parts = [one.joint() for one in operands if isinstance(one, IntegerExpr)]
    found = joined(compute, *parts)
    if is_comparison:
        return Mask((found,))
    if kind not in _TYPES and not np.isfinite(found.values).all():
        return None
    return IntegerExpr((AxisArray(found.axes, found.values.astype(_TYPES.get(kind, np.int64))),))
