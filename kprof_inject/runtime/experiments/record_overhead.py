"""Time a launch with records against the same launch without."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any

from kprof_inject.capture.schema import PairedTimesRecord
from kprof_inject.runtime.experiments.back_to_back import BackToBack, empty_ns
from kprof_inject.runtime.experiments.paired_launches import HOST_IS_SLOW, LaunchPairs, PairedLaunches, PairedTimes
from kprof_inject.runtime.experiments.relaunch import NotReplayable
from kprof_inject.runtime.launch.timing import EmptyKernel

_MAX_TIMES = 100
_MIN_TIMES = 5
"""``timeline.comparison`` needs this many for an interval."""
_MIN_NS = 1.0  # below the steps of the device's timer


def time_records(
    launches: PairedLaunches, seconds: float, times: int | None, metadata: Sequence[Any]
) -> PairedTimesRecord:
    """Time the only variant of ``launches``, the kernel with records, against the one without.

    It takes ``times`` pairs, or if that is None as many as ``seconds`` allow. ``metadata`` is that of both builds,
    whose empty kernels are timed as well. Raises ``NotReplayable``, and any error of a launch.
    """
    timed = launches.run(time.monotonic() + seconds, times or _MAX_TIMES, _all, times or _MIN_TIMES)
    if timed.refusals:
        raise NotReplayable(next(iter(timed.refusals.values())))
    (pairs,) = timed.pairs
    if not pairs.ns:
        raise NotReplayable(HOST_IS_SLOW)
    clean_empty_ns, with_records_empty_ns = _empty_times(launches, timed, metadata)
    return PairedTimesRecord(
        clean_ns=_measured(pairs.clean_ns),
        with_records_ns=_measured(pairs.ns),
        launches=timed.launches,
        restored=timed.restored,
        clean_empty_ns=clean_empty_ns,
        with_records_empty_ns=with_records_empty_ns,
    )


def _all(pairs: Sequence[LaunchPairs]) -> Collection[int]:
    return range(len(pairs))


def _measured(times_ns: Sequence[float]) -> tuple[float, ...]:
    return tuple(max(ns, _MIN_NS) for ns in times_ns)


def _empty_times(
    launches: PairedLaunches, timed: PairedTimes, metadata: Sequence[Any]
) -> tuple[float | None, float | None]:
    batch = BackToBack(launches.device, launches.relaunch.stream, launches.memory, timed.launches, restores=False)
    with launches.device.unaffected_by_graphs():
        clean_ns, with_records_ns = (empty_ns(batch, EmptyKernel.like(known)) for known in metadata)
    return clean_ns, with_records_ns
