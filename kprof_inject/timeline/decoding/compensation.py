"""What the records themselves cost, taken out of durations.

A warp that makes a record takes longer for it, and how much longer hangs on what stands beside the record. So each
distance between two records of a warp is taken to be shorter by the middle of what one record may cost, or of several
where entries were damaged, though never less than nothing. Each distance may be off by ``RecordCost.error_cycles``. A
duration is the sum of the distances in it, so that scopes stay consistent: those in a scope never add up to more than
it, and nothing is negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.record_cost import RecordCost
from kprof_inject.timeline.decoding.records import Records


@dataclass(frozen=True, slots=True)
class Elapsed:
    """For each record, how far it is from the first of its block without what the records between cost: ``cycles`` and
    ``ns``, whole numbers that never fall."""

    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]


def as_recorded(records: Records, ns: NDArray[np.int64]) -> Elapsed:
    """Nothing taken out. ``ns`` are the records' times."""
    return Elapsed(records.cycles, ns)


def without_records(records: Records, ns: NDArray[np.int64], record_cost: RecordCost) -> Elapsed:
    """``record_cost`` taken out for each record."""
    cycles = np.diff(records.cycles)
    # Between two warps there is no distance; those of one warp run on from wherever the one before ended.
    within = np.diff(records.group) == 0
    cost = np.where(records.is_end[:-1], record_cost.after_end_cycles, record_cost.after_start_cycles)
    # Of a damaged entry between, nobody knows whether it was a start.
    cost = cost + record_cost.cycles * (np.diff(records.number) - 1)
    left = np.where(within, np.maximum(cycles - cost, 0.0), 0.0)
    share = left / np.maximum(cycles, 1)
    return Elapsed(_running(left), _running(np.diff(ns) * share))


def _running(distances: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(np.concatenate((np.zeros(1), np.cumsum(distances)))).astype(np.int64)
