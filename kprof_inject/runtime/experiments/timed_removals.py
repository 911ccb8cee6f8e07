"""Time builds of a kernel without some operations, each between launches of the unchanged one.

Their results are wrong, and are thrown away: they are neither compared nor kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from kprof_inject.capture.edits import MIN_PAIRS
from kprof_inject.runtime.experiments.paired_launches import LaunchPairs, PairedLaunches
from kprof_inject.runtime.experiments.results import DiscardedResults
from kprof_inject.runtime.experiments.tasks import TimedRemoval, TimeRemovals
from kprof_inject.runtime.experiments.timed_edits import gain_of

_MAX_ROUNDS = 1000
_PRECISE = 0.002


def time_removals(task: TimeRemovals, launches: PairedLaunches, refusals: Sequence[str]) -> tuple[TimedRemoval, ...]:
    """Time the variants of ``launches``, whose builds are the task's; ``refusals`` has the reasons against some."""
    launches.results = DiscardedResults()
    timed = launches.run(time.monotonic() + task.seconds, _MAX_ROUNDS, _unsettled, MIN_PAIRS)
    return tuple(
        TimedRemoval(gain=gain_of(pairs), refusal=refusal or ("" if pairs.ns else "there was no time to launch it"))
        for pairs, refusal in zip(timed.pairs, refusals, strict=True)
    )


def _unsettled(pairs: Sequence[LaunchPairs]) -> list[int]:
    """Return the builds whose gains are not known well enough."""
    return [place for place, one in enumerate(pairs) if one.error > _PRECISE]
