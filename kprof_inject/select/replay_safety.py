"""Decide whether a kernel can be launched again from the memory that it began with, as far as its module shows."""

from __future__ import annotations

import re

from kprof_inject.capture.schema import RelaunchRecord
from kprof_inject.ttgir.dialect import FUNCTION, POLL
from kprof_inject.ttgir.nodes import Module, Operation, Region
from kprof_inject.ttgir.ssa_values import successors_of

_POINTER_TO_POINTER = "!tt.ptr<!tt.ptr<"
_VOLATILE = re.compile(r"\bisVolatile = true\b")
_IMPURE = re.compile(r"\bpure = false\b")
_SYMBOL = re.compile(r'\bsymbol = "([^"]*)"')
# In PTX and in AMD's assembly: a branch, which within an operation of a few instructions is a loop.
_BRANCH = re.compile(r"\b(bra|s_c?branch\w*)\b")
# Inline assembly that has nothing but griddepcontrol (PTX ISA, "griddepcontrol") and comments.
_ASSEMBLY = re.compile(r'\s*"([^"]*)"')
_GRID_CONTROL = re.compile(r"(?:\s|;|\\0A|\\n|//[^\n]*|griddepcontrol\.(?:wait|launch_dependents))*")


def relaunch(module: Module) -> RelaunchRecord:
    """Return what prevents another launch of the kernel, and whether it may wait for writes by others."""
    operations = list(module.walk())
    refusal = next(filter(None, map(_refusal, operations)), "")
    return RelaunchRecord(refusal=refusal, waits=any(map(_waits, operations)))


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
    if traits.is_foreign and _IMPURE.search(operation.tail) and (symbol := _SYMBOL.search(operation.tail)):
        return f"calls {symbol[1]}, which may do anything"
    return ""


def _waits(operation: Operation) -> bool:
    """Return whether the operation may spin until memory changes: in a replay, nothing else may run to change it."""
    if operation.name == POLL or (operation.traits.is_foreign and _BRANCH.search(operation.tail)):
        return True
    return _sees_changes(operation) and any(map(_is_endless, operation.ancestors()))


def _sees_changes(operation: Operation) -> bool:
    traits = operation.traits
    if traits.is_foreign:
        return bool(_IMPURE.search(operation.tail)) and not _waits_for_grids(operation)
    return traits.is_atomic or bool(_VOLATILE.search(operation.tail))


def _waits_for_grids(operation: Operation) -> bool:
    """Return whether the operation waits for the launches before, at most, which have ended in a replay.

    See PTX ISA, "griddepcontrol".
    """
    written = _ASSEMBLY.match(operation.tail)
    return written is not None and bool(_GRID_CONTROL.fullmatch(written[1]))


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
