"""Bytes that a GPU sent and received over NVLink while launches ran."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.link_traffic import DeviceTraffic


class LinkBytes(Struct, frozen=True):
    """Bytes of user data that a launch's GPU sent, and received, while it ran, as the hardware counted them."""

    sent_bytes: float
    received_bytes: float


def median_link_bytes(found: Sequence[LinkBytes]) -> LinkBytes:
    """Return the median of each direction over launches, of which there is at least one."""
    return LinkBytes(median(one.sent_bytes for one in found), median(one.received_bytes for one in found))


def link_bytes(traffic: DeviceTraffic, interval_ns: int, spans: Sequence[tuple[int, int]]) -> list[LinkBytes] | None:
    """Return what was sent and received in each of the ``spans`` of launches of one GPU, by its globaltimer.

    Launches that share a sample share its bytes, by their times in it. None if samples were lost.
    """
    if traffic.is_cut or not spans:
        return None
    begins = np.array(traffic.begins_ns, np.int64)
    overlaps = [_overlap(begins, interval_ns, span) for span in spans]
    total = np.maximum(np.sum(overlaps, axis=0), 1)
    both = (np.array(traffic.sent_bytes, np.float64), np.array(traffic.received_bytes, np.float64))
    return [LinkBytes(*(float((one * own / total).sum()) for one in both)) for own in overlaps]


def _overlap(begins: NDArray[np.int64], interval_ns: int, span: tuple[int, int]) -> NDArray[np.int64]:
    lasting = np.minimum(begins + interval_ns, span[1]) - np.maximum(begins, span[0])
    found: NDArray[np.int64] = np.maximum(lasting, 0)
    return found
