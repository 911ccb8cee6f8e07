"""Lanes for drawing asynchronous work next to the warps of its CTA: nothing overlaps within a lane."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import (
    InFlight,
    Numbers,
    begins_group,
    first_of_group,
    group_numbers,
    numbers_in_group,
)


@dataclass(frozen=True, slots=True)
class FlightLanes:
    """The groups of a launch that are drawn, ordered by lane and start.

    A group is in flight until ``known_ns`` at least, and until ``end_ns`` at most, as far as its lane has room.
    ``work`` indexes ``kinds``. Lanes are numbered through the launch, CTA by CTA; in a CTA, each kind of work has lanes
    of its own.
    """

    kinds: tuple[str, ...]
    groups: NDArray[np.void]
    work: Numbers
    lane: Numbers
    known_ns: Numbers
    end_ns: Numbers

    @property
    def count(self) -> int:
        """The number of lanes."""
        return int(self.lane.max(initial=-1)) + 1


def flight_lanes(found: InFlight) -> FlightLanes:
    """Assign lanes to the groups of each CTA's first warp: all its warps issue the same work."""
    work = _kind_of_scopes(found)[found.groups["scope"]]
    order = np.lexsort((found.groups["start_cycles"], found.groups["warp"], work, found.groups["cta"]))
    groups, work = found.groups[order], work[order]
    is_first_warp = groups["warp"] == first_of_group(groups["warp"], group_numbers(groups["cta"], work))
    groups, work = groups[is_first_warp], work[is_first_warp]
    member = group_numbers(groups["cta"], work)
    # A group that ends as it begins has a depth of 0.
    depth = np.maximum(groups["depth"].astype(np.int64), 1)
    deepest = np.maximum.reduceat(depth, np.flatnonzero(begins_group(member))) if depth.size else depth
    lane = (np.cumsum(deepest) - deepest)[member] + (numbers_in_group(member) - 1) % deepest[member]
    order = np.lexsort((groups["start_ns"], lane))
    groups, work, lane = groups[order], work[order], lane[order]
    end_ns = _apart(lane, groups["start_ns"], groups["end_ns"])
    return FlightLanes(found.kinds, groups, work, lane, np.minimum(groups["known_ns"], end_ns), end_ns)


def _kind_of_scopes(found: InFlight) -> Numbers:
    numbers, kinds = np.zeros(max(found.works, default=0) + 1, np.int64), found.kinds
    for scope, work in found.works.items():
        numbers[scope] = kinds.index(work)
    return numbers


def _apart(lane: Numbers, starts_ns: Numbers, ends_ns: Numbers) -> Numbers:
    """Return the ends, none of them after the next start in its lane."""
    following = np.append(starts_ns[1:], np.iinfo(np.int64).max)
    same = np.append(lane[1:] == lane[:-1], False)
    found: Numbers = np.where(same, np.minimum(ends_ns, following), ends_ns)
    return found
