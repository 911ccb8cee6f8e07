"""Events of asynchronous work: each CTA's in lanes of its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import FlightLanes, InFlight, flight_lanes, group_numbers, numbers_in_group
from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.export.drawing.scene import (
    Arg,
    Counters,
    EventKind,
    Events,
    Nested,
    Part,
    Picked,
    Threads,
    TraceProcess,
    TrackGroups,
)
from kprof_inject.export.drawing.tracks import CTA, SM, sm_label
from kprof_inject.timeline.axis import PlacedLaunch

_CATEGORY = "in flight"


class FlightEvents(Struct, frozen=True):
    """The asynchronous work of a launch."""

    placed: PlacedLaunch
    found: InFlight
    lanes: FlightLanes

    @classmethod
    def of(cls, placed: PlacedLaunch) -> FlightEvents | None:
        """Analyse the launch; return None if no asynchronous work is known."""
        found = recorded_in_flight(placed.timeline)
        return cls(placed, found, flight_lanes(found)) if found is not None and found.groups.size else None

    @property
    def tracks(self) -> int:
        """The maximum number of tracks: lanes, then their CTAs and SMs."""
        return 3 * self.lanes.count

    @property
    def has_bytes(self) -> bool:
        """True if the bytes of some work are known."""
        return bool((self.found.groups["bytes"] > 0).any())

    def counters(self, process: TraceProcess, _first_tid: int) -> Iterator[Part]:
        """Yield the counter of bytes in flight of each SM that copied asynchronously."""
        groups, clock = self.found.groups[self.found.groups["bytes"] > 0], self.placed.clock
        sms, counter = np.unique(groups["sm"], return_inverse=True)
        start_ns, end_ns = clock.on_axis(groups["start_ns"]), clock.on_axis(groups["end_ns"])
        names = [sm_label(sm) for sm in sms.tolist()]
        yield Counters.of_spans(process.pid, names, "bytes", counter, start_ns, end_ns, groups["bytes"])

    def parts(self, process: TraceProcess, first_tid: int) -> Iterator[Part]:
        """Yield the threads and the events."""
        yield from self._threads(process, first_tid)
        yield self._events(process.pid, first_tid)

    def _threads(self, process: TraceProcess, first_tid: int) -> Iterator[Part]:
        pid, lanes = process.pid, self.lanes
        first = np.flatnonzero(np.diff(lanes.lane, prepend=-1))
        lane, groups, work = lanes.lane[first], lanes.groups[first], lanes.work[first]
        cta_of: NDArray[np.int32] = groups["cta"]
        sm_of: NDArray[np.int32] = groups["sm"]
        ctas, cta_begins, cta = np.unique(cta_of, return_index=True, return_inverse=True)
        sms, sm = np.unique(sm_of, return_inverse=True)
        cta_ids = first_tid + lanes.count + np.arange(len(ctas))
        sm_ids = cta_ids[-1] + 1 + np.arange(len(sms))
        in_process = np.full(len(sms), process.track)
        yield TrackGroups(pid, sm_ids, np.arange(len(sms)), Nested(in_process, (SM, sms.astype(np.int64))))
        in_sm = Nested(sm_ids[sm[cta_begins]], (CTA, ctas.astype(np.int64)))
        yield TrackGroups(pid, cta_ids, np.arange(len(ctas)), in_sm)
        label = (Picked(lanes.kinds, work), ", lane ", numbers_in_group(group_numbers(cta, work)) - 1)
        place = (SM, sms[sm].astype(np.int64), f" {CTA}", ctas[cta].astype(np.int64), ": ")
        yield Threads(pid, first_tid + lane, lane, (*place, *label), Nested(cta_ids[cta], label))

    def _events(self, pid: int, first_tid: int) -> Events:
        """Return two events for each group: while it was certainly in flight, and while it may have been."""
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
            pid=pid,
            tids=first_tid + lane,
            kinds=[EventKind(name, _CATEGORY) for work in lanes.kinds for name in (work, f"{work}, possibly complete")],
            kind=kind[kept],
            start_ns=clock.on_axis(starts_ns[kept]),
            end_ns=clock.on_axis(ends_ns[kept]),
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
