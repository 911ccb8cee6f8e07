"""What the records themselves cost, taken out of durations.

A warp that makes a record takes longer for it. So each distance between two records of a warp is taken to be shorter by
one record's cost, or by several where entries were damaged, though never less than nothing; a duration is the sum of
the distances in it. So scopes stay consistent: those in a scope never add up to more than it, and nothing is negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.timeline.records import Records


@dataclass(frozen=True, slots=True)
class Elapsed:
    """For each record, how far it is from the first of its block without what the records between cost: ``cycles`` and
    ``ns``, whole numbers that never fall."""

    cycles: NDArray[np.int64]
    ns: NDArray[np.int64]


def as_recorded(records: Records, ns: NDArray[np.int64]) -> Elapsed:
    """Nothing taken out. ``ns`` are the records' times."""
    return Elapsed(records.cycles, ns)


def without_records(records: Records, ns: NDArray[np.int64], cost_cycles: float) -> Elapsed:
    """``cost_cycles`` taken out for each record."""
    cycles = np.diff(records.cycles)
    # Between two warps there is no distance; those of one warp run on from wherever the one before ended.
    within = np.diff(records.group) == 0
    cost = cost_cycles * np.diff(records.number)
    left = np.where(within, np.maximum(cycles - cost, 0.0), 0.0)
    share = left / np.maximum(cycles, 1)
    return Elapsed(_running(left), _running(np.diff(ns) * share))


def _running(distances: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(np.concatenate((np.zeros(1), np.cumsum(distances)))).astype(np.int64)
