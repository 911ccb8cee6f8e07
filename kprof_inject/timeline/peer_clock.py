"""Relation of a GPU's globaltimer to that of another GPU of its host, from comparisons before a run and after it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from kprof_inject.capture.peer_clocks import PeerReading
from kprof_inject.capture.schema import ClockRecord
from kprof_inject.timeline.host_clock import HostClock, fit_host_clock

# Between two GPUs (H100), the drift of their timers changed by 0.46 ppm within 20 s of full load. This is twice that.
_MAX_WANDER_PER_S = 4.6e-8


class PeerClock(Struct, frozen=True):
    """Relation of a timer to that of the GPU ``reference``, a UUID; ``relation`` is None for that GPU itself.

    ``read_ns`` are the times of the readings, by the GPU's own timer.
    """

    reference: str
    relation: HostClock | None
    read_ns: tuple[int, ...]

    def error_ns(self, first_ns: int, last_ns: int) -> int:
        """Return the maximum error of the relation, at the GPU's times from ``first_ns`` to ``last_ns``.

        Between two readings, the timers may have drifted fast first and slowly then, or the other way round.
        """
        if self.relation is None:
            return 0
        begin_ns, end_ns = min(self.read_ns), max(self.read_ns)
        furthest_ns = min(max((begin_ns + end_ns) // 2, first_ns), last_ns)
        # The furthest that a parabola with this second derivative is from its chord; beyond its end, as far.
        from_chord = abs(furthest_ns - begin_ns) * abs(end_ns - furthest_ns) / 2
        return self.relation.error_ns(first_ns, last_ns) + math.ceil(_MAX_WANDER_PER_S * 1e-9 * from_chord)


def fit_peer_clock(uuid: str, readings: Sequence[PeerReading]) -> PeerClock | None:
    """Fit the relation of the GPU with this UUID to the one with which it was compared; None without a comparison."""
    if any(reading.reference == uuid for reading in readings):
        return PeerClock(uuid, None, ())
    own = [reading for reading in readings if reading.device == uuid]
    if not own:
        return None
    relation = fit_host_clock([ClockRecord(0, one.reference_ns, one.device_ns, one.error_ns) for one in own])
    return PeerClock(own[0].reference, relation, tuple(one.device_ns for one in own))
