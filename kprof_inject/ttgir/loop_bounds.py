"""How often loops go round, as far as a module's text alone tells."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kprof_inject.ttgir.constants import constant_of
from kprof_inject.ttgir.nodes import Operation

_VALUE = r"(%[\w$.-]+)"
# From, to, by.
_BOUNDS = re.compile(rf"\s*%[\w$.-]+ = {_VALUE} to {_VALUE} step {_VALUE}|\({_VALUE}, {_VALUE}, {_VALUE}[,)]")


def iterations_of_loops(operations: Sequence[Operation]) -> dict[Operation, int | None]:
    """Of each loop among all of a module's operations, in the order of the text; None of one whose bounds are no
    constants."""
    constants = _constants(operations)
    return {one: _iterations(one, constants) for one in operations if one.traits.is_loop}


def _constants(operations: Iterable[Operation]) -> dict[str, int]:
    """The integers that names stand for. A name may be given again in another region: then it is none."""
    found: dict[str, int] = {}
    given: set[str] = set()
    for operation in operations:
        name = operation.results.partition("=")[0].strip()
        value = constant_of(operation)
        if value is not None and name not in given:
            found[name] = value
        elif name in given:
            found.pop(name, None)
        given.add(name)
    return found


def _iterations(loop: Operation, constants: Mapping[str, int]) -> int | None:
    bounds = _BOUNDS.match(loop.tail)
    names = [name for name in bounds.groups() if name] if bounds else []
    if len(names) != 3 or not all(name in constants for name in names):
        return None
    first, last, step = (constants[name] for name in names)
    return max(0, -(-(last - first) // step)) if step > 0 else None
