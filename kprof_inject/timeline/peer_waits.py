"""Waits of a launch that other processes or devices ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np
from msgspec import Struct

from kprof_inject.capture.model import Launch
from kprof_inject.timeline.wait_ends import Ending, WaitEnds


class PeerWait(Struct, frozen=True):
    """Waits for flags in scope ``index`` of a launch: for ``waited_ns`` in total, over its CTAs.

    Launches of another place, known or tagged, ended those that took ``by_peers_ns``; most of this time, ``place`` did.
    """

    index: int
    waited_ns: int
    by_peers_ns: int
    place: str

    @property
    def is_for_peers(self) -> bool:
        """True if peers ended most of it."""
        return 2 * self.by_peers_ns > self.waited_ns


def peer_waits(ends: Sequence[WaitEnds], launch: Launch, handing_on: Collection[int] = ()) -> tuple[PeerWait, ...]:
    """Return the waits of a launch, which is among those of ``ends``, in the order of its scopes.

    The launch's own CTAs in ``handing_on`` count as peers: they hand on what these send.
    """
    for one in ends:
        launches = one.visits.launches
        number = next((at for at, placed in enumerate(launches) if placed.timeline.launch is launch), None)
        if number is not None:
            return tuple(_waits(one, number, handing_on))
    return ()


def _waits(ends: WaitEnds, number: int, handing_on: Collection[int]) -> Iterator[PeerWait]:
    waits, launches = ends.visits.waits, ends.visits.launches
    places = [placed.place_name for placed in launches]
    is_arrow = np.zeros(len(waits), dtype=bool)
    is_arrow[ends.arrows()] = True
    waited_ns = np.maximum(waits["leaves_ns"] - waits["arrives_ns"], 0)
    by_rank = {placed.timeline.launch.origin.rank: placed.place_name for placed in launches}
    is_tagged = ends.endings == Ending.TAGGED
    for scope in np.unique(waits["scope"][waits["launch"] == number]).tolist():
        own = np.flatnonzero((waits["launch"] == number) & (waits["scope"] == scope))
        by_place: dict[str, int] = {}
        for at in own[is_arrow[own]].tolist():
            change = ends.visits.changes[ends.changes[at]]
            place = places[int(change["launch"])]
            if place != places[number] or (int(change["launch"]) == number and int(change["cta"]) in handing_on):
                by_place[place] = by_place.get(place, 0) + int(waited_ns[at])
        for at in own[is_tagged[own]].tolist():
            rank = int(waits["peer"][at])
            place = by_rank.get(rank, f"rank {rank}")
            if place != places[number]:
                by_place[place] = by_place.get(place, 0) + int(waited_ns[at])
        most = max(by_place, key=by_place.__getitem__, default="")
        yield PeerWait(scope, int(waited_ns[own].sum()), sum(by_place.values()), most)
