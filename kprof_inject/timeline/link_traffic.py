"""Bytes that a GPU sent and received over NVLink while launches ran."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median

import numpy as np
from msgspec import Struct

from kprof_inject.capture.link_traffic import DeviceTraffic
from kprof_inject.timeline.host_clock import fit_host_clock
from kprof_inject.timeline.timeline import Timeline

# The bytes of the first and the last sample may be those of other work.
_MIN_INTERVALS = 4
# The host's clock and a GPU's timer are related within some microseconds.
_MAX_LOST = 0.1


class LinkBytes(Struct, frozen=True):
    """Bytes of user data that a launch's GPU sent, and received, while it ran, as the hardware counted them.

    ``bytes_per_s`` is the rate of the direction with more.
    """

    sent_bytes: float
    received_bytes: float
    bytes_per_s: float


def median_link_bytes(found: Sequence[LinkBytes]) -> LinkBytes:
    """Return the median of each figure over launches, of which there is at least one."""
    return LinkBytes(*(median(getattr(one, name) for one in found) for name in LinkBytes.__struct_fields__))


def link_bytes(traffic: DeviceTraffic, interval_ns: int, timeline: Timeline) -> LinkBytes | None:
    """Return what a launch's GPU sent and received while it ran.

    Bytes are taken to be spread evenly over a sample. None for a launch that is too short for that, for one that is not
    within the time that was sampled, and where the device's timer and the host's clock are not related.
    """
    launch = timeline.launch
    readings = [one for one in launch.origin.host_readings if one.device == launch.device]
    relation = fit_host_clock(readings)
    if relation is None:
        return None
    span_ns = np.array([timeline.first_ns, timeline.last_ns], np.int64)
    begin_ns, end_ns = relation.to_host_ns(span_ns).tolist()
    if end_ns - begin_ns < _MIN_INTERVALS * interval_ns or begin_ns < traffic.from_ns or end_ns > traffic.to_ns:
        return None
    if _lost_ns(traffic, begin_ns, end_ns) > _MAX_LOST * (end_ns - begin_ns):
        return None
    first = bisect_right(traffic.begins_ns, begin_ns - interval_ns)
    last = bisect_left(traffic.begins_ns, end_ns)
    begins = np.array(traffic.begins_ns[first:last], np.int64)
    lasting = np.minimum(begins + interval_ns, end_ns) - np.maximum(begins, begin_ns)
    shares = lasting / interval_ns
    sent, received = np.array(traffic.sent_bytes[first:last]), np.array(traffic.received_bytes[first:last])
    both = float((sent * shares).sum()), float((received * shares).sum())
    return LinkBytes(*both, 1e9 * max(both) / (end_ns - begin_ns))


def _lost_ns(traffic: DeviceTraffic, begin_ns: int, end_ns: int) -> int:
    """Return how much of a time was not sampled."""
    overlaps = (min(end, end_ns) - max(begin, begin_ns) for begin, end in traffic.gaps_ns)
    return sum(overlap for overlap in overlaps if overlap > 0)
