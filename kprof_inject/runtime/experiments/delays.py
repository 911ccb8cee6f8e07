"""Time a launch with each of its planned delays, until every slope is precise."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence

from kprof_inject.capture.experiments import DelaysRecord
from kprof_inject.runtime.experiments.paired_launches import LaunchPairs, PairedLaunches, PairedTimes

SLOPE_ERROR = 0.03
"""An experiment ends early when half the interval of every slope is below this."""

MAX_ROUNDS = 2000
"""More rounds do not help: a slope that is imprecise after these is so for other reasons."""


def are_precise(pairs: Sequence[LaunchPairs], delays: Sequence[tuple[int, int, float]], slope_error: float) -> bool:
    """Return whether all slopes are known to within ``slope_error``; false if there are none.

    ``delays`` has for each build its scope, its cycles, and the fraction by which the kernel takes longer if none of
    these cycles are hidden.
    """
    base = {scope: pairs[index].error for index, (scope, cycles, _) in enumerate(delays) if not cycles}
    errors: dict[int, float] = {}
    for index, (scope, cycles, share) in enumerate(delays):
        if cycles:
            error = math.hypot(pairs[index].error, base.get(scope, 0.0)) / share if share else math.inf
            errors.setdefault(scope, error)  # of the scope's first delay, the shortest
    return bool(errors) and max(errors.values()) <= slope_error


def shares_of(plan: DelaysRecord, included: Sequence[int]) -> list[tuple[int, int, float]]:
    """Return the ``delays`` of ``are_precise`` for some builds of a plan."""
    builds = [plan.builds[place] for place in included]
    return [(build.scope, build.delay_cycles, build.whole_share) for build in builds]


def time_delays(launches: PairedLaunches, plan: DelaysRecord, seconds: float) -> PairedTimes:
    """Time the builds of a plan, which are the variants of ``launches``, for at most ``seconds``.

    Raises as ``PairedLaunches.run`` does.
    """

    def unsettled(pairs: Sequence[LaunchPairs]) -> Collection[int]:
        included = [place for place, found in enumerate(pairs) if found.ns]
        is_enough = are_precise([pairs[place] for place in included], shares_of(plan, included), SLOPE_ERROR)
        return () if is_enough else range(len(pairs))

    return launches.run(time.monotonic() + seconds, MAX_ROUNDS, unsettled)
