"""The upper bound of the records that a warp writes in one launch, as far as a module's text shows it."""

from __future__ import annotations

from math import prod

from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan
from kprof_inject.ttgir.loop_bounds import iterations_of_loops


def max_records(view: ModuleView, plan: Plan) -> int | None:
    """Return the maximum number of records that a warp writes in one launch, or None if it is unknown.

    It is unknown if a loop has no constant bounds, if the module calls a helper, or if it branches between blocks,
    perhaps backwards. Only one of a scope's ends is passed each time.
    """
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
