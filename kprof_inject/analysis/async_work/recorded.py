"""What of a launch's asynchronous work was recorded, for those who ask for nothing else of its kernel.

Most launches have nothing of the kind: what reads modules is loaded where one has.
"""

from __future__ import annotations

from kprof_inject.analysis.async_work.groups import InFlight, starts_async
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline


def recorded_in_flight(timeline: Timeline) -> InFlight | None:
    """None if nothing of the kind was recorded, or the module cannot be read or evaluated. Asks for the records
    alone."""
    if not any(map(starts_async, timeline.table.scopes)):
        return None
    from kprof_inject.analysis.async_work.in_flight import in_flight
    from kprof_inject.analysis.interpreter.executions import executed_kernel
    from kprof_inject.analysis.unjudged import evaluating

    try:
        ran = executed_kernel(timeline.launch)
        with evaluating():
            return in_flight(timeline, ran)
    except KprofError:
        return None
