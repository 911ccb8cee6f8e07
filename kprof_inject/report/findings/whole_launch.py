"""Whether a timeline has all of a launch that a rule needs: of what is missing, nothing is said."""

from __future__ import annotations

from math import prod

from kprof_inject.timeline.timeline import Timeline


def has_all_ctas(timeline: Timeline) -> bool:
    """False if CTAs never ran, were damaged, or were not chosen."""
    missing = timeline.ctas_never_ran or timeline.ctas_damaged
    return not missing and len(timeline.ctas) >= prod(timeline.launch.grid)


def has_all_records(timeline: Timeline) -> bool:
    """False if rings lost records, or some were damaged: counts and sums are of the rest then."""
    return not timeline.records_lost and not timeline.records_damaged
