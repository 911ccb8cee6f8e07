"""Removal of stores: they are disabled by a mask of which the compiler does not know that it is false."""

from __future__ import annotations

import re

from kprof_inject.pipeline.removals.replacing import Edit, RemovalRefused, operand_type, own_name
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import operand_names
from kprof_inject.ttgir.types import types_of

STORE = "tt.store"
# The compiler knows that a grid has at least one program along z of its own intrinsic, but not of assembly.
_NEVER_ZERO = "mov.u32 $0, %nctaid.z;"
_CONSTRAINTS = '{constraints = "=r", packed_element = 1 : i32, pure = true}'


def without_store(module: Module, operation: Operation) -> list[Edit]:
    """Return the edit that disables a store."""
    names, kind = operand_names(operation), operand_type(operation)
    types = types_of(operation)
    if len(names) not in (2, 3) or len(types) != 1:
        raise RemovalRefused("it is printed in a form that cannot be edited")
    count, zero, never, mask, both = (own_name(operation, what) for what in ("count", "zero", "never", "mask", "both"))
    pointee = f"!tt.ptr<{types[0].pointee}>"
    is_tensor = bool(types[0].shape)
    masks = kind.replace(pointee, "i1") if is_tensor else "i1"
    lines = [
        f'{count} = tt.elementwise_inline_asm "{_NEVER_ZERO}" {_CONSTRAINTS} -> i32',
        f"{zero} = arith.constant 0 : i32",
        f"{never} = arith.cmpi eq, {count}, {zero} : i32",
        *([f"{mask} = tt.splat {never} : i1 -> {masks}"] if is_tensor else []),
    ]
    last = mask if is_tensor else never
    if len(names) == 3:
        lines.append(f"{both} = arith.andi {names[2]}, {last} : {masks}")
        last = both
    text = module.text[operation.start : operation.end]
    operands = ", ".join(names)
    found = re.search(rf"\b{re.escape(STORE)} {re.escape(operands)}(?=[\s:])", text)
    if found is None:
        raise RemovalRefused("it is printed in a form that cannot be edited")
    masked = f"{STORE} {names[0]}, {names[1]}, {last}"
    at = operation.start
    return [(at, at, " ".join(lines) + " "), (at + found.start(), at + found.end(), masked)]
