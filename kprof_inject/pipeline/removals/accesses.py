"""Removal of stores and asynchronous copies: they are disabled by a mask that the compiler does not know to be false.

What they store or copy, and where, is still computed. A disabled copy fills shared memory with zeros.
"""

from __future__ import annotations

import re

from kprof_inject.pipeline.removals.replacing import RemovalRefused, own_name
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.nodes import Module, Operation

STORE = "tt.store"
COPY = "ttg.async_copy_global_to_local"
# The compiler knows that a grid has at least one program along z of its own intrinsic, but not of assembly.
_NEVER_ZERO = "mov.u32 $0, %nctaid.z;"
_CONSTRAINTS = '{constraints = "=r", packed_element = 1 : i32, pure = true}'
_NAME = r"%[\w$.#-]+"
_OPERANDS = {
    STORE: re.compile(rf" {_NAME}, {_NAME}(?P<mask>, (?P<name>{_NAME}))?(?=[\s:])"),
    COPY: re.compile(rf" {_NAME}, {_NAME}(?P<mask> mask (?P<name>{_NAME}))?(?=[\s:])"),
}
_BEFORE_MASK = {STORE: ", ", COPY: " mask "}
# Their pointers: a tensor of them, or one alone.
_POINTERS = re.compile(r" : (?P<type>tensor<(?:\d+x)+!tt\.ptr<\w+>, .*?>|!tt\.ptr<\w+>)(?= ->| loc\(|\s*$)")
_POINTER = re.compile(r"!tt\.ptr<\w+>")


def without_access(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edits that disable a store, or an asynchronous copy."""
    operands = _OPERANDS[operation.name].match(operation.tail)
    pointers = _POINTERS.search(operation.tail)
    if operands is None or pointers is None:
        raise RemovalRefused("it is printed in a form that cannot be edited")
    masks = _POINTER.sub("i1", pointers["type"])
    count, zero, never, mask, both = (own_name(operation, what) for what in ("count", "zero", "never", "mask", "both"))
    lines = [
        f'{count} = tt.elementwise_inline_asm "{_NEVER_ZERO}" {_CONSTRAINTS} -> i32',
        f"{zero} = arith.constant 0 : i32",
        f"{never} = arith.cmpi eq, {count}, {zero} : i32",
    ]
    last = never
    if masks != "i1":
        lines.append(f"{mask} = tt.splat {never} : i1 -> {masks}")
        last = mask
    if operands["name"]:
        lines.append(f"{both} = arith.andi {operands['name']}, {last} : {masks}")
        last = both
    begin = module.text.index(operation.name, operation.start + len(operation.results)) + len(operation.name)
    end = begin + operands.end()
    place = begin + operands.start("mask") if operands["mask"] else end
    return [
        (operation.start, operation.start, " ".join(lines) + " "),
        (place, end, f"{_BEFORE_MASK[operation.name]}{last}"),
    ]
