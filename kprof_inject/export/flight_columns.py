"""Columns that say of each scope what was in flight by it, for tables."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import IN_FLIGHT_COLUMNS
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.timeline.timeline import Timeline

IN_FLIGHT = ("in_flight_ns", "blocked_ns", "depth_in_flight", "bytes_in_flight")
"""Of scopes that ask for asynchronous work, what ``IN_FLIGHT_COLUMNS`` says of that; -1 of all others."""


@dataclass(frozen=True, slots=True)
class FlightColumns:
    """What a launch had in flight, by the record that asked for it."""

    keys: NDArray[np.int64]
    groups: NDArray[np.void]

    @classmethod
    def of(cls, timeline: Timeline) -> FlightColumns:
        found = LaunchAnalysis.of(timeline).in_flight
        groups = found.groups if found else np.empty(0, IN_FLIGHT_COLUMNS)
        keys = _keys(groups, "record")
        order = np.argsort(keys)
        return cls(keys[order], groups[order])

    def of_block(self, block: NDArray[np.void]) -> dict[str, NDArray[np.int64]]:
        """Of a block of scopes."""
        found = {name: np.full(len(block), _NOTHING) for name in IN_FLIGHT}
        if not self.keys.size:
            return found
        keys = _keys(block, "start_record")
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        mine = self.keys[place] == keys
        groups = self.groups[place[mine]]
        values = (groups["end_ns"] - groups["start_ns"], groups["blocked_ns"], groups["depth"], groups["bytes"])
        for name, column in zip(IN_FLIGHT, values, strict=True):
            found[name][mine] = column
        return found


_NOTHING = -1
# More than a CTA has warps, and a warp records.
_WARPS, _RECORDS = 1 << 7, 1 << 32


def _keys(rows: NDArray[np.void], record: str) -> NDArray[np.int64]:
    keys: NDArray[np.int64] = (rows["cta"].astype(np.int64) * _WARPS + rows["warp"]) * _RECORDS + rows[record]
    return keys
