"""Columns with the asynchronous work in flight by each scope, for tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import IN_FLIGHT_COLUMNS
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.timeline.timeline import Timeline

IN_FLIGHT = ("in_flight_ns", "blocked_ns", "depth_in_flight", "bytes_in_flight")
"""The values of ``IN_FLIGHT_COLUMNS`` for scopes that start asynchronous work; -1 for all others."""


@dataclass(frozen=True, slots=True)
class FlightColumns:
    """The asynchronous work of a launch, by the record of the scope that started it."""

    keys: NDArray[np.int64]
    groups: NDArray[np.void]

    @classmethod
    def of(cls, timeline: Timeline) -> FlightColumns:
        """Analyse the asynchronous work of a launch."""
        found = LaunchAnalysis.of(timeline).in_flight
        groups = found.groups if found else np.empty(0, IN_FLIGHT_COLUMNS)
        keys = _keys(groups, "record")
        order = np.argsort(keys)
        return cls(keys[order], groups[order])

    def of_block(self, block: NDArray[np.void]) -> dict[str, NDArray[np.int64]]:
        """Return the columns for a block of scopes."""
        found = {name: np.full(len(block), _NOTHING) for name in IN_FLIGHT}
        if not self.keys.size:
            return found
        keys = _keys(block, "start_record")
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        has_work = self.keys[place] == keys
        groups = self.groups[place[has_work]]
        values = (groups["end_ns"] - groups["start_ns"], groups["blocked_ns"], groups["depth"], groups["bytes"])
        for name, column in zip(IN_FLIGHT, values, strict=True):
            found[name][has_work] = column
        return found


_NOTHING = -1
# More than the warps of a CTA, and than the records of a warp.
_WARPS, _RECORDS = 1 << 7, 1 << 32


def _keys(rows: NDArray[np.void], record: str) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (rows["cta"].astype(np.int64) * _WARPS + rows["warp"]) * _RECORDS + rows[record]
    return keys
