"""Parts of a removal: how an operation is replaced in the text, so that all lines keep their numbers.

A replacement keeps the operands alive, or the compiler would remove what computes them, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.ssa_values import result_names


class RemovalRefused(Exception):
    """Error that operations cannot be removed; its text is the reason, as a sentence part that follows *because*."""


def replaced(module: Module, operation: Operation, operations: Sequence[str]) -> Replacement:
    """Return the edit that writes operations in place of another one.

    The last of them lacks its result, which is that of the replaced operation, if it has any.
    """
    text = module.text[operation.start : operation.end].rstrip()
    *before, last = operations
    names = result_names(operation)
    result = f"{names[0]} = " if names else ""
    line = " ".join([*before, f"{result}{last}", operation.location_text]).rstrip()
    return operation.start, operation.start + len(text), line + module.newline * text.count("\n")


def own_name(operation: Operation, what: str) -> str:
    """Return the name of a value that is added for an operation."""
    return f"%kprof_removed_{operation.start}_{what}"


def operand_type(operation: Operation) -> str:
    """Return the text of the only type that an operation is printed with. Raises ``RemovalRefused`` otherwise."""
    signature = operation.tail.partition(" loc(")[0].rpartition(" : ")[2].strip()
    if not signature or "->" in signature or ") " in signature:
        raise RemovalRefused(f"{operation.name} is printed in a form that cannot be edited")
    return signature
