"""Launches that a peer limits, or the links to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kprof_inject.analysis.roofs.limits import LIMITING, Limit
from kprof_inject.analysis.roofs.memory_waits import MEMORY_WAITS
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.quantities import percent, size_text
from kprof_inject.timeline.peer_waits import PeerWait

if TYPE_CHECKING:
    from kprof_inject.analysis.communication import Communication

PEER = "a peer"
NVLINK = "NVLink"
# Peak bytes per second in one direction, by the target. NVIDIA's data sheets give both directions together: A100 SXM
# 600 GB/s, H100 and H200 SXM 900 GB/s, B200 1800 GB/s.
_NVLINK_BYTES_PER_S = {"cuda:80": 300e9, "cuda:90": 450e9, "cuda:100": 900e9}


def nvlink_bytes_per_s(target: str) -> float | None:
    """Return the peak of all of a device's links, in one direction; None for a target that is not in the table."""
    return _NVLINK_BYTES_PER_S.get(target)


def peer_limit(
    found: Limit, summary: LaunchSummary, target: str, waits: Sequence[PeerWait], communication: Communication | None
) -> Limit:
    """Return the limit of a launch, given the one ``found`` without its peers: these, their links, or that one."""
    if communication is not None and (limit := _nvlink(found, summary, target, communication)):
        return limit
    waited_ns, by_peers_ns = (sum(getattr(wait, field) for wait in waits) for field in ("waited_ns", "by_peers_ns"))
    if found.name != MEMORY_WAITS or 2 * by_peers_ns <= waited_ns:
        return found
    longest = max(waits, key=lambda wait: wait.by_peers_ns)
    scope = summary.scopes[longest.index]
    text = f"a peer: {percent(scope.share or 0.0)} of the warps' time is in {scope.distinct_name}, of which "
    text += f"{longest.place} ends {percent(longest.by_peers_ns / longest.waited_ns)}"
    return replace(found, name=PEER, text=text)


def _nvlink(found: Limit, summary: LaunchSummary, target: str, communication: Communication) -> Limit | None:
    """Return NVLink if it moves data at more than the usual part of its peak, and no unit is busier."""
    peak = nvlink_bytes_per_s(target)
    if not peak or not summary.duration_ns or not communication.crosses_links:
        return None
    part = 1e9 * communication.busier_bytes / summary.duration_ns / peak
    if part < max(LIMITING, *found.parts.values(), 0.0):
        return None
    does = "reads" if communication.read_bytes > communication.written_bytes else "writes"
    text = f"NVLink (at least {percent(min(part, 1.0))} of peak: the launch {does} "
    text += f"{size_text(communication.busier_bytes)} of peers' memory)"
    return Limit(f"{NVLINK} {100 * min(part, 1.0):.0f} %", (NVLINK,), text, found.parts)
