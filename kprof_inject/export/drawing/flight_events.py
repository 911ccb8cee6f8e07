"""What is drawn of asynchronous work: each CTA's in lanes of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kprof_inject.analysis.flights.groups import InFlight
from kprof_inject.analysis.flights.lanes import FlightLanes, flight_lanes
from kprof_inject.analysis.flights.recorded import recorded_in_flight
from kprof_inject.export.drawing.counters import bytes_in_flight
from kprof_inject.export.drawing.scene import Arg, EventKind, Events, Part, Picked, Threads
from kprof_inject.timeline.axis import PlacedLaunch

_CATEGORY = "in flight"


@dataclass(frozen=True, slots=True)
class FlightEvents:
    """Of a launch."""

    placed: PlacedLaunch
    found: InFlight
    lanes: FlightLanes

    @classmethod
    def of(cls, placed: PlacedLaunch) -> FlightEvents | None:
        """None if no asynchronous work of the launch is known."""
        found = recorded_in_flight(placed.timeline)
        return cls(placed, found, flight_lanes(found)) if found is not None and found.groups.size else None

    def parts(self, pid: int, first_tid: int) -> Iterator[Part]:
        yield self._threads(pid, first_tid)
        yield self._events(pid, first_tid)
        yield from bytes_in_flight(self.found, pid, self.placed.clock)

    def _threads(self, pid: int, first_tid: int) -> Threads:
        lanes = self.lanes
        first = np.flatnonzero(np.diff(lanes.lane, prepend=-1))
        lane, groups = lanes.lane[first], lanes.groups[first]
        sms, ctas = groups["sm"].astype(np.int64), groups["cta"].astype(np.int64)
        names = ("SM ", sms, " CTA ", ctas, ": ", Picked(lanes.kinds, lanes.work[first]), ", ", lane)
        return Threads(pid, first_tid + lane, lane, names)

    def _events(self, pid: int, first_tid: int) -> Events:
        """A group twice: as far as it was under way for sure, and as long as it may have been."""
        lanes, clock = self.lanes, self.placed.clock
        rows = np.arange(len(lanes.groups))
        order = np.argsort(np.concatenate([2 * rows, 2 * rows + 1]), kind="stable")
        starts_ns = np.concatenate([lanes.groups["start_ns"], lanes.known_ns])[order]
        ends_ns = np.concatenate([lanes.known_ns, lanes.end_ns])[order]
        kind = np.concatenate([2 * lanes.work, 2 * lanes.work + 1])[order]
        kept = ends_ns > starts_ns
        twice = np.repeat(rows, 2)[kept]
        lane, groups = lanes.lane[twice], lanes.groups[twice]
        return Events(
            pid,
            first_tid + lane,
            [EventKind(name, _CATEGORY) for work in lanes.kinds for name in (work, f"{work}, perhaps complete")],
            kind[kept],
            clock.on_axis(starts_ns[kept]),
            clock.on_axis(ends_ns[kept]),
            group=lane,
            start_order=2 * np.arange(len(twice)),
            end_order=2 * np.arange(len(twice)) + 1,
            args=(
                Arg("in_flight_ns", groups["end_ns"] - groups["start_ns"]),
                Arg("blocked_ns", groups["blocked_ns"]),
                Arg("depth", groups["depth"].astype(np.int64)),
                Arg("bytes", groups["bytes"], groups["bytes"] > 0),
            ),
        )
