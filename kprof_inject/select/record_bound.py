"""How many records a warp writes in one launch at most, as far as a module's text alone tells."""

from __future__ import annotations

from math import prod

from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan
from kprof_inject.ttgir.loop_bounds import iterations_of_loops


def most_records(view: ModuleView, plan: Plan) -> int | None:
    """None if a loop decides whose bounds are no constants, or a helper that is called who knows how often. Branches
    between blocks may lead backwards, so that nothing is known then. Of a scope's ends, one is passed each time."""
    if len(view.functions) > 1:
        return None
    operations = list(view.module.walk())
    if any(operation.traits.is_branch for operation in operations):
        return None
    times = [(loop.start, loop.end, count) for loop, count in iterations_of_loops(operations).items()]
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
