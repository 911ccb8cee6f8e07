"""Removal of loads: numbers from 1 to 2 that are made of the addresses take the place of those in memory.

So all elements differ, and no two operations on them can become one; no number is denormal or infinite, which some
divisions compute in a slower way; and the addresses are still computed. A mask, and what it is for, may vanish.
"""

from __future__ import annotations

from kprof_inject.pipeline.removals.replacing import RemovalRefused, operand_type, own_name, replaced
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import bits_of, types_of

LOAD = "tt.load"
_ADDRESS = "i64"
_VOLATILE = "isVolatile = true"
# The bits of the mantissa, and those of 1.0. Sources: IEEE 754; "FP8 Formats for Deep Learning", Micikevicius et al.
_BITS = {
    "f64": (0x000F_FFFF_FFFF_FFFF, 0x3FF0_0000_0000_0000),
    "f32": (0x007F_FFFF, 0x3F80_0000),
    "f16": (0x03FF, 0x3C00),
    "bf16": (0x007F, 0x3F80),
    "f8E4M3FN": (0x07, 0x38),
    "f8E5M2": (0x03, 0x3C),
}


def without_load(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edit that removes a load of floating-point numbers."""
    pointers, kind, types = operand_names(operation)[:1], operand_type(operation), types_of(operation)
    element = types[0].pointee if types else ""
    pointee = f"!tt.ptr<{element}>"
    if element not in _BITS or _VOLATILE in operation.tail or kind.count(pointee) != 1:
        raise RemovalRefused(f"its elements are {element or 'of an unknown type'}")
    mantissa, one = _BITS[element]
    addresses, words = kind.replace(pointee, _ADDRESS), kind.replace(pointee, f"i{bits_of(element)}")

    def constant(value: int) -> str:
        return f"arith.constant {f'dense<{value}>' if types[0].shape else value} : {words}"

    address, word, low, mask, ones, bits = (
        own_name(operation, what) for what in ("address", "word", "low", "mask", "ones", "bits")
    )
    lines = [f"{address} = tt.ptr_to_int {pointers[0]} : {kind} -> {addresses}"]
    if words == addresses:
        word = address
    else:
        lines.append(f"{word} = arith.trunci {address} : {addresses} to {words}")
    lines += [
        f"{mask} = {constant(mantissa)}",
        f"{ones} = {constant(one)}",
        f"{low} = arith.andi {word}, {mask} : {words}",
        f"{bits} = arith.ori {low}, {ones} : {words}",
        f"tt.bitcast {bits} : {words} -> {kind.replace(pointee, element)}",
    ]
    return [replaced(module, operation, lines)]
