"""How many records a warp writes at most in one launch, where the module's text alone tells."""

from __future__ import annotations

from kprof_inject.select.places import is_loop
from kprof_inject.select.plan import Plan
from kprof_inject.select.view import ModuleView


def most_records(view: ModuleView, plan: Plan) -> int | None:
    """The most records that a warp writes; None if a loop decides, or a helper that is called who knows how often.

    Of a scope's ends, one is passed. Branches between blocks may lead backwards, so that nothing is known then."""
    if len(view.functions) > 1:
        return None
    operations = list(view.module.walk())
    if any(operation.name.startswith("cf.") for operation in operations):
        return None
    loops = [(operation.start, operation.end) for operation in operations if is_loop(operation)]
    for record in plan.records:
        if any(start < record.point.offset < end for start, end in loops):
            return None
    return 2 * len(plan.scopes)
