"""Launches that a peer limits, or the links to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kprof_inject.analysis.roofs.limits import LIMITING, Limit
from kprof_inject.analysis.roofs.memory_waits import MEMORY_WAITS
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import listed, percent, short_time, size_text
from kprof_inject.timeline.peer_waits import PeerWait

if TYPE_CHECKING:
    from kprof_inject.analysis.communication import Communication

PEER = "a peer"
NVLINK = "NVLink"
# Peak bytes per second in one direction, by what the device's name has, the first that fits. NVIDIA's data sheets give
# both directions together: H100 and H200 SXM 900 GB/s (H200 NVL, with a bridge of four, too), H100 NVL 600, A100 SXM
# 600, B200 1800. Cards for PCIe may have no bridge.
_NVLINK_BYTES_PER_S = {
    "H100 NVL": 300e9,
    "H100 PCIe": None,
    "H100": 450e9,
    "H200": 450e9,
    "A100-SXM": 300e9,
    "B200": 900e9,
}


def nvlink_bytes_per_s(device_name: str) -> float | None:
    """Return the peak of all of a device's links, in one direction; None for a device that is not in the table."""
    return next((rate for part, rate in _NVLINK_BYTES_PER_S.items() if part in device_name), None)


def peer_limit(
    found: Limit,
    summary: LaunchSummary,
    device_name: str,
    waits: Sequence[PeerWait],
    communication: Communication | None,
) -> Limit:
    """Return the limit of a launch, given the one ``found`` without its peers: these, their links, or that one."""
    if communication is not None and (limit := _nvlink(found, summary, device_name, communication)):
        return limit
    waited_ns, by_peers_ns = sum(wait.waited_ns for wait in waits), sum(wait.by_peers_ns for wait in waits)
    if found.name != MEMORY_WAITS or 2 * by_peers_ns <= waited_ns:
        return found
    longest = max(waits, key=lambda wait: wait.by_peers_ns)
    scope = summary.scopes[longest.index]
    text = f"a peer: {percent(scope.share or 0.0)} of the warps' time is in {scope.distinct_name}, of which "
    shares = [f"{place} ends {percent(ns / longest.waited_ns)}" for place, ns in longest.by_place_ns]
    return replace(found, name=PEER, text=text + listed(shares, _MAX_PLACES))


_MAX_PLACES = 3


def _nvlink(found: Limit, summary: LaunchSummary, device_name: str, communication: Communication) -> Limit | None:
    """Return NVLink if it moves data at more than the usual part of its peak, and no unit is busier."""
    peak = nvlink_bytes_per_s(device_name)
    if not peak or not summary.duration_ns:
        return None
    part = min(1e9 * communication.link_bytes / summary.duration_ns / peak, 1.0)
    if part < max(LIMITING, *found.parts.values()):
        return None
    moved = f"{size_text(communication.link_bytes)} of peers' memory in {short_time(summary.duration_ns)}"
    text = f"NVLink (at least {percent(part)} of peak: {moved})"
    return Limit(f"{NVLINK} {100 * part:.0f} %", (NVLINK,), text, found.parts)
