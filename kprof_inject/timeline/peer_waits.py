"""Waits of launches that other processes or devices ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct

from kprof_inject.capture.model import Launch
from kprof_inject.timeline.wait_ends import Ending, WaitEnds

_UNKNOWN = (Ending.NO_ADDRESS, Ending.NOT_RECORDED, Ending.NOT_SURE)
_NONE = -1


class PeerWait(Struct, frozen=True):
    """Waits for flags in scope ``index`` of a launch: for ``waited_ns`` in total, over its CTAs.

    ``by_place_ns`` has each place whose launches, known or tagged, ended some, with the time of these, the longest
    first. What ended those of ``unknown_ns`` is not known.
    """

    index: int
    waited_ns: int
    unknown_ns: int
    by_place_ns: tuple[tuple[str, int], ...]

    @property
    def by_peers_ns(self) -> int:
        """Time of those that peers ended."""
        return sum(ns for _, ns in self.by_place_ns)

    @property
    def is_for_peers(self) -> bool:
        """True if peers ended most of it."""
        return 2 * self.by_peers_ns > self.waited_ns


class PeerWaits:
    """Waits of all launches of a report, by the launch."""

    def __init__(self, ends: Sequence[WaitEnds]) -> None:
        """Sort the waits by their launches."""
        self._found = {
            id(placed.timeline.launch): (waits, number)
            for waits in map(_WaitsOfAxis, ends)
            for number, placed in enumerate(waits.launches)
        }

    def of(self, launch: Launch, handing_on: Collection[int] = ()) -> tuple[PeerWait, ...]:
        """Return the waits of a launch, in the order of its scopes; empty if it has none.

        The launch's own CTAs in ``handing_on`` count as peers: they hand on what these send.
        """
        waits, number = self._found.get(id(launch), (None, 0))
        return tuple(waits.of(number, handing_on)) if waits else ()


class _WaitsOfAxis:
    """Waits of the launches of one axis."""

    def __init__(self, ends: WaitEnds) -> None:
        self.launches = ends.visits.launches
        waits = ends.visits.waits
        self._waited_ns = np.maximum(waits["leaves_ns"] - waits["arrives_ns"], 0)
        self._scope, self._launch = waits["scope"], waits["launch"]
        self._names = list(dict.fromkeys(placed.place_name for placed in self.launches))
        self._place = np.array([self._names.index(placed.place_name) for placed in self.launches])
        self._is_unknown = np.isin(ends.endings, _UNKNOWN)
        # The launch, the CTA and the place that ended each wait.
        self._by = np.full((3, len(waits)), _NONE)
        arrows = ends.arrows()
        changes = ends.visits.changes[ends.changes[arrows]]
        self._by[:, arrows] = changes["launch"], changes["cta"], self._place[changes["launch"]]
        tagged = ends.endings == Ending.TAGGED
        self._by[2, tagged] = [self._place_of(rank) for rank in waits["peer"][tagged].tolist()]
        self._order = np.argsort(self._launch, kind="stable")

    def _place_of(self, rank: int) -> int:
        for placed in self.launches:
            if placed.timeline.launch.origin.rank == rank:
                return self._names.index(placed.place_name)
        name = f"rank {rank}"
        if name not in self._names:
            self._names.append(name)
        return self._names.index(name)

    def of(self, number: int, handing_on: Collection[int]) -> Iterator[PeerWait]:
        first, last = np.searchsorted(self._launch[self._order], (number, number + 1))
        own = self._order[first:last]
        launch, cta, place = self._by[:, own]
        is_handed_on = (launch == number) & np.isin(cta, list(handing_on))
        by_peer = (place != _NONE) & ((place != self._place[number]) | is_handed_on)
        for scope in np.unique(self._scope[own]).tolist():
            at = self._scope[own] == scope
            waited_ns = self._waited_ns[own]
            totals = np.bincount(place[at & by_peer], waited_ns[at & by_peer], minlength=len(self._names))
            found = [(self._names[one], int(totals[one])) for one in np.argsort(-totals, kind="stable") if totals[one]]
            yield PeerWait(
                index=scope,
                waited_ns=int(waited_ns[at].sum()),
                unknown_ns=int(waited_ns[at & self._is_unknown[own]].sum()),
                by_place_ns=tuple(found),
            )
