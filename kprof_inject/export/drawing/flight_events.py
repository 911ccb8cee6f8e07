"""What is drawn of asynchronous work: lanes of a CTA's, and counters of the bytes that are in flight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.flight_groups import InFlight
from kprof_inject.analysis.recorded_flights import recorded_in_flight
from kprof_inject.export.drawing.scene import Arg, Counters, EventKind, Events, Numbers, Part, Picked, Threads
from kprof_inject.timeline.axis import PlacedLaunch

_UNIT = "bytes"
_CATEGORY = "in flight"


@dataclass(frozen=True, slots=True)
class FlightLanes:
    """Of a launch: those groups that are drawn, and the lane of each. All warps of a CTA ask for the same: those of the
    first one that does are drawn."""

    placed: PlacedLaunch
    found: InFlight
    drawn: NDArray[np.void]
    lane: Numbers

    @property
    def count(self) -> int:
        return int(self.lane.max(initial=-1)) + 1

    def parts(self, pid: int, first_tid: int) -> Iterator[Part]:
        works = sorted(set(self.found.works.values()))
        groups, lane = self.drawn, self.lane
        first = np.flatnonzero(np.diff(lane, prepend=-1))
        which = np.array([works.index(self.found.works[scope]) for scope in groups["scope"][first].tolist()], np.int64)
        sms, ctas = groups["sm"][first].astype(np.int64), groups["cta"][first].astype(np.int64)
        names = ("SM ", sms, " CTA ", ctas, ": ", Picked(works, which), ", ", lane[first])
        yield Threads(pid, first_tid + lane[first], lane[first], names)
        kinds = [EventKind(name, _CATEGORY) for work in works for name in (work, f"{work}, perhaps complete")]
        sure = np.array([works.index(self.found.works[scope]) for scope in groups["scope"].tolist()], np.int64)
        rows = np.arange(len(groups))
        # A group is drawn twice: as far as it was under way for sure, and as long as it may have been.
        ends = _apart(lane, groups["start_ns"], groups["end_ns"])
        known = np.minimum(groups["known_ns"], ends)
        order = np.argsort(np.concatenate([2 * rows, 2 * rows + 1]), kind="stable")
        clock = self.placed.clock
        starts_ns = np.concatenate([groups["start_ns"], known])[order]
        ends_ns = np.concatenate([known, ends])[order]
        kept = ends_ns > starts_ns
        twice = np.repeat(rows, 2)[kept]
        yield Events(
            pid,
            first_tid + lane[twice],
            kinds,
            np.concatenate([2 * sure, 2 * sure + 1])[order][kept],
            clock.on_axis(starts_ns[kept]),
            clock.on_axis(ends_ns[kept]),
            group=lane[twice],
            start_order=2 * np.arange(len(twice)),
            end_order=2 * np.arange(len(twice)) + 1,
            args=(
                Arg("in_flight_ns", groups["end_ns"][twice] - groups["start_ns"][twice]),
                Arg("blocked_ns", groups["blocked_ns"][twice]),
                Arg("depth", groups["depth"][twice].astype(np.int64)),
                Arg("bytes", groups["bytes"][twice], groups["bytes"][twice] > 0),
            ),
        )
        yield from self._bytes(pid)

    def _bytes(self, pid: int) -> Iterator[Counters]:
        groups = self.found.groups[self.found.groups["bytes"] > 0]
        if not groups.size:
            return
        sms, counter = np.unique(groups["sm"], return_inverse=True)
        at_ns = self.placed.clock.on_axis(np.concatenate([groups["start_ns"], groups["end_ns"]]))
        change = np.concatenate([groups["bytes"], -groups["bytes"]])
        counter = np.tile(counter, 2)
        order = np.lexsort((at_ns, counter))
        counter, at_ns, values = counter[order], at_ns[order], np.cumsum(change[order])
        last = np.append((np.diff(at_ns) != 0) | (np.diff(counter) != 0), True)
        names = [f"bytes in flight on SM {sm}" for sm in sms.tolist()]
        yield Counters(pid, names, _UNIT, counter[last], at_ns[last], values[last])


def flight_lanes(placed: PlacedLaunch) -> FlightLanes | None:
    """None if no asynchronous work of the launch is known."""
    found = recorded_in_flight(placed.timeline)
    if found is None or not found.groups.size:
        return None
    groups = found.groups
    work = _numbers_of_works(found)[groups["scope"]]
    key = groups["cta"].astype(np.int64) * _WORKS + work
    order = np.lexsort((groups["start_cycles"], groups["warp"], key))
    groups, key = groups[order], key[order]
    begins = np.append(True, np.diff(key) != 0)
    is_first_warp = groups["warp"] == groups["warp"][begins][np.cumsum(begins) - 1]
    groups, key = groups[is_first_warp], key[is_first_warp]
    begins = np.append(True, np.diff(key) != 0)
    member = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    deepest = np.maximum.reduceat(groups["depth"], first)
    number = np.arange(len(groups)) - first[member]
    lane = (np.cumsum(deepest) - deepest)[member] + number % np.maximum(deepest, 1)[member]
    order = np.lexsort((groups["start_ns"], lane))
    return FlightLanes(placed, found, groups[order], lane[order].astype(np.int64))


# More than there are kinds of work.
_WORKS = 8


def _numbers_of_works(found: InFlight) -> Numbers:
    works = sorted(set(found.works.values()))
    numbers = np.zeros(max(found.works) + 1, np.int64)
    for scope, work in found.works.items():
        numbers[scope] = works.index(work)
    return numbers


def _apart(lane: Numbers, starts_ns: Numbers, ends_ns: Numbers) -> Numbers:
    """The ends, none of them behind the next start of its lane."""
    following = np.append(starts_ns[1:], np.iinfo(np.int64).max)
    same = np.append(lane[1:] == lane[:-1], False)
    found: Numbers = np.where(same, np.minimum(ends_ns, following), ends_ns)
    return found
