"""Iteration counts of loops whose bounds are constants in the module's text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kprof_inject.ttgir.constants import constant_of
from kprof_inject.ttgir.nodes import Operation

_VALUE = r"(%[\w$.-]+)"
# Lower bound, upper bound, step.
_BOUNDS = re.compile(rf"\s*%[\w$.-]+ = {_VALUE} to {_VALUE} step {_VALUE}|\({_VALUE}, {_VALUE}, {_VALUE}[,)]")


def iterations_of_loops(operations: Sequence[Operation]) -> dict[Operation, int | None]:
    """Return the iterations of each loop, in the order of the text; None for a loop without constant bounds.

    ``operations`` are all operations of a module.
    """
    constants = _constants(operations)
    return {operation: _iterations(operation, constants) for operation in operations if operation.traits.is_loop}


def _constants(operations: Iterable[Operation]) -> dict[str, int]:
    """Return the integer that each name denotes, without the names that another region defines again."""
    found: dict[str, int] = {}
    defined: set[str] = set()
    for operation in operations:
        name = operation.results.partition("=")[0].strip()
        value = constant_of(operation)
        if value is not None and name not in defined:
            found[name] = value
        elif name in defined:
            found.pop(name, None)
        defined.add(name)
    return found


def _iterations(loop: Operation, constants: Mapping[str, int]) -> int | None:
    bounds = _BOUNDS.match(loop.tail)
    names = [name for name in bounds.groups() if name] if bounds else []
    if len(names) != 3 or not all(name in constants for name in names):
        return None
    first, last, step = (constants[name] for name in names)
    return max(0, -(-(last - first) // step)) if step > 0 else None
