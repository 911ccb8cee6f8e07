"""Decide whether a kernel can be launched again from the memory that it began with, as far as its module shows."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from kprof_inject.capture.schema import RelaunchRecord
from kprof_inject.select.calls import callee_symbol
from kprof_inject.select.functions import symbol_of
from kprof_inject.ttgir.dialect import CALL, FUNCTION
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.polling import goes_on_until_memory_changes, has_branch, is_impure, polls, sees_changes
from kprof_inject.ttgir.ssa_values import successors_of

_POINTER_TO_POINTER = "!tt.ptr<!tt.ptr<"
_SYMBOL = re.compile(r'\bsymbol = "([^"]*)"')


def relaunch(module: Module) -> RelaunchRecord:
    """Return what prevents another launch of the kernel, and whether it may wait for writes by others."""
    operations = list(module.walk())
    refusal = next(filter(None, map(_refusal, operations)), "")
    functions = (operation for operation in operations if operation.name == FUNCTION)
    looking = _functions_that_look(operations)
    waits = any(_waits(operation, looking) for operation in operations)
    waits = waits or any(goes_on_until_memory_changes(module, one) for one in functions)
    return RelaunchRecord(refusal=refusal, waits=waits)


def _functions_that_look(operations: Sequence[Operation]) -> Set[str]:
    """Return the functions that see changes of memory by others, themselves or in what they call."""
    inside = {symbol_of(one): list(one.walk()) for one in operations if one.name == FUNCTION}
    known: set[str] = set()
    while (found := {symbol for symbol, body in inside.items() if any(_looks(one, known) for one in body)}) != known:
        known = found
    return known


def _looks(operation: Operation, functions: Set[str]) -> bool:
    if operation.name == CALL:
        return callee_symbol(operation) in functions
    return sees_changes(operation)


def _refusal(operation: Operation) -> str:
    """Return the reason against another launch, in words that follow *it*; empty without any.

    Memory is saved by the kernel's arguments, and all other effects would be repeated.
    """
    traits = operation.traits
    if traits.makes_pointers:
        return f"casts integers to pointers ({operation.name})"
    if _POINTER_TO_POINTER in operation.tail:
        return f"reads pointers from memory ({operation.name})"
    if traits.is_output:
        return f"prints ({operation.name})"
    if is_impure(operation) and (symbol := _SYMBOL.search(operation.tail)):
        return f"calls {symbol[1]}, which may do anything"
    return ""


def _waits(operation: Operation, looking: Set[str]) -> bool:
    """Return whether the operation may spin until memory changes: in a replay, nothing else may run to change it."""
    if polls(operation) or has_branch(operation):
        return True
    return _looks(operation, looking) and any(map(_is_endless, operation.ancestors()))


def _is_endless(operation: Operation) -> bool:
    """Return whether this is a loop without bounds, or a function whose blocks may form one."""
    if operation.name == FUNCTION:
        return any(map(_may_loop, operation.regions))
    return operation.traits.is_loop and not operation.traits.is_counted


def _may_loop(region: Region) -> bool:
    """Return whether a block branches to itself, or to one that is printed before it: every loop of blocks has one."""
    places = {block.label: place for place, block in enumerate(region.blocks)}
    return any(
        places.get(label, -1) <= place
        for place, block in enumerate(region.blocks)
        for last in block.operations[-1:]
        for label, _ in successors_of(last)
    )
