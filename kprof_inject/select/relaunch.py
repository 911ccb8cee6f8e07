"""Whether a kernel can be launched again from the memory that it began with, as far as its module tells."""

from __future__ import annotations

import re

from kprof_inject.capture.schema import RelaunchRecord
from kprof_inject.ttgir.dialect import FUNCTION, POLL
from kprof_inject.ttgir.nodes import Module, Operation

_POINTER_TO_POINTER = "!tt.ptr<!tt.ptr<"
_VOLATILE = re.compile(r"\bisVolatile = true\b")
_IMPURE = re.compile(r"\bpure = false\b")
_SYMBOL = re.compile(r'\bsymbol = "([^"]*)"')
# PTX and AMD's assembly: a branch, which in an operation of a few instructions leads backwards.
_BRANCH = re.compile(r"\b(bra|s_c?branch\w*)\b")


def relaunch(module: Module) -> RelaunchRecord:
    """What keeps the kernel from being launched again, and whether it may wait for what others write."""
    operations = list(module.walk())
    refusal = next((reason for one in operations if (reason := _refusal(one))), "")
    return RelaunchRecord(refusal=refusal, waits=any(map(_waits, operations)))


def _refusal(operation: Operation) -> str:
    """In words that follow *it*: memory is saved by the kernel's arguments, and all else that it does would be done
    again."""
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
    """True of what may go round until memory has changed. Nobody else may be there to change it when the kernel is
    launched again."""
    if operation.name == POLL or (operation.traits.is_foreign and _BRANCH.search(operation.tail)):
        return True
    return _sees_changes(operation) and any(map(_is_endless, operation.ancestors()))


def _sees_changes(operation: Operation) -> bool:
    traits = operation.traits
    if traits.is_foreign:
        return bool(_IMPURE.search(operation.tail))
    return traits.is_atomic or bool(_VOLATILE.search(operation.tail))


def _is_endless(operation: Operation) -> bool:
    """A loop without bounds, or a function whose blocks may make one."""
    if operation.name == FUNCTION:
        return any(len(region.blocks) > 1 for region in operation.regions)
    return operation.traits.is_loop and not operation.traits.is_counted
