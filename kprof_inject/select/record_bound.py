"""How many records a warp writes in one launch at most, as far as a module's text alone tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from kprof_inject.select.plan import Plan
from kprof_inject.select.view import ModuleView
from kprof_inject.ttgir.nodes import Operation

# An integer that stands for itself, printed or in the generic form.
_INTEGER = re.compile(r"\s*(?:\(\) <\{value = )?(-?\d+) : (?:i\d+|index)\b")
_VALUE = r"(%[\w$.-]+)"
# From, to, by.
_BOUNDS = re.compile(rf"\s*%[\w$.-]+ = {_VALUE} to {_VALUE} step {_VALUE}|\({_VALUE}, {_VALUE}, {_VALUE}[,)]")


def most_records(view: ModuleView, plan: Plan) -> int | None:
    """None if a loop decides whose bounds are no constants, or a helper that is called who knows how often. Branches
    between blocks may lead backwards, so that nothing is known then. Of a scope's ends, one is passed each time."""
    if len(view.functions) > 1:
        return None
    operations = list(view.module.walk())
    if any(operation.traits.is_branch for operation in operations):
        return None
    constants = _constants(operations)
    times = [
        (operation.start, operation.end, _iterations(operation, constants))
        for operation in operations
        if operation.traits.is_loop
    ]
    total = 0
    seen: set[str] = set()
    for record in plan.records:
        if not record.is_start and record.name in seen:
            continue
        seen |= set() if record.is_start else {record.name}
        around = [count for start, end, count in times if start < record.point.offset < end]
        if None in around:
            return None
        total += prod(count for count in around if count is not None)
    return total


def _constants(operations: list[Operation]) -> dict[str, int]:
    """The integers that names stand for. A name may be given again in another region: then it is none."""
    found: dict[str, int] = {}
    given: set[str] = set()
    for operation in operations:
        name = operation.results.partition("=")[0].strip()
        value = _INTEGER.match(operation.tail) if operation.traits.is_constant else None
        if value and name not in given:
            found[name] = int(value[1])
        elif name in given:
            found.pop(name, None)
        given.add(name)
    return found


def _iterations(loop: Operation, constants: Mapping[str, int]) -> int | None:
    """How many a ``scf.for`` has; None if that is not known, or of another loop."""
    bounds = _BOUNDS.match(loop.tail)
    names = [name for name in bounds.groups() if name] if bounds else []
    if len(names) != 3 or not all(name in constants for name in names):
        return None
    first, last, step = (constants[name] for name in names)
    return max(0, -(-(last - first) // step)) if step > 0 else None
