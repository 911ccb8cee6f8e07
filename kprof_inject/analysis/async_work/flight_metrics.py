"""Metrics of asynchronous work: depth, latency, bytes in flight, and the bytes that the roof would need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.async_work.groups import InFlight
from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.roofs.speed_of_light import Roof
from kprof_inject.capture.model import Kernel
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import waves_of
from kprof_inject.ttgir.loops import CopyPipeline


class Flight(Struct, frozen=True):
    """The groups of asynchronous work that one operation issued.

    The wait of ``blocked_share`` of them blocked. ``latency_ns`` is the median of those, from issue to completion; None
    if none blocked.
    """

    index: int
    """The scope's, in the scope table."""
    scope: str
    """Its name, which others may have."""
    source: str
    work: str
    groups: int
    depth: int
    latency_ns: float | None
    blocked_share: float
    blocked_ns: int
    group_bytes: int


class Flights(Struct, frozen=True):
    """The asynchronous work of a launch.

    Bytes are those of copies on an SM that had any: the mean over the kernel's time there, and the maximum.
    ``needed_bytes`` would keep the loop's roof busy at the measured latency (Little's law); None if no wait blocked, or
    no roof is known. ``unpaired`` gives the reason for each operation that is missing.
    """

    flights: tuple[Flight, ...]
    mean_bytes_per_sm: float
    most_bytes_per_sm: int
    needed_bytes: float | None
    unpaired: Mapping[str, str]


def flights_of(timeline: Timeline, found: InFlight, roofs: Sequence[Roof]) -> Flights | None:
    """Return the metrics of a launch, or None if nothing asynchronous was recorded."""
    groups = found.groups
    if not groups.size and not found.unpaired:
        return None
    flights = []
    for scope in np.unique(groups["scope"]).tolist():
        mine = groups[groups["scope"] == scope]
        blocked = mine[mine["blocked_ns"] > 0]
        info = timeline.table.scopes[scope]
        flight = Flight(
            index=scope,
            scope=info.name,
            source=info.source,
            work=found.works[scope],
            groups=len(mine),
            depth=int(np.median(mine["depth"])),
            latency_ns=float(np.median(blocked["end_ns"] - blocked["start_ns"])) if blocked.size else None,
            blocked_share=len(blocked) / len(mine),
            blocked_ns=int(blocked["blocked_ns"].sum()),
            group_bytes=int(np.median(mine["bytes"])),
        )
        flights.append(flight)
    longest = max((roof.sm_cycles for roof in roofs), default=0)
    carrying = groups[groups["bytes"] > 0]
    carried: NDArray[np.int64] = carrying["bytes"]
    starts_cycles: NDArray[np.int64] = carrying["start_cycles"]
    held = float((carried * (carrying["end_cycles"] - starts_cycles)).sum()) * timeline.ctas_per_recorded
    return Flights(
        tuple(flights),
        held / longest if longest else 0.0,
        _max_at_once(carrying, timeline),
        _needed(timeline, carrying, roofs),
        found.unpaired,
    )


def _max_at_once(groups: NDArray[np.void], timeline: Timeline) -> int:
    """Return the maximum number of bytes in flight at once on any SM.

    If only a sample of the CTAs recorded, it is that of any CTA, times the CTAs on an SM.
    """
    if not groups.size:
        return 0
    if timeline.unrecorded.size and (waves := waves_of(timeline)) is not None:
        return _most_of_one(groups, "cta") * waves.slots_per_sm
    return _most_of_one(groups, "sm")


def _most_of_one(groups: NDArray[np.void], place: str) -> int:
    at = np.concatenate([groups["start_cycles"], groups["end_cycles"]])
    of = np.tile(groups[place], 2)
    carried: NDArray[np.int64] = groups["bytes"]
    change = np.concatenate([carried, -carried])
    # A group that ends when another begins does not overlap it.
    order = np.lexsort((change, at, of))
    return int(np.cumsum(change[order]).max())


# If fewer waits block, the bytes in flight suffice, and the blocking waits are no measure of the latency.
_MIN_BLOCKED = 0.1


def _needed(timeline: Timeline, groups: NDArray[np.void], roofs: Sequence[Roof]) -> float | None:
    """Return the bandwidth of a loop at its roof, times the measured latency."""
    blocked = groups[groups["blocked_ns"] > 0]
    if not groups.size or len(blocked) < _MIN_BLOCKED * len(groups):
        return None
    # The innermost scope with a roof around the operation that issued most of the work.
    most = int(np.bincount(groups["scope"]).argmax())
    by_index = {roof.index: roof for roof in roofs}
    loop = next((by_index[index] for index in timeline.table.around(most) if index in by_index), None)
    if loop is None or not loop.part:
        return None
    starts_cycles: NDArray[np.int64] = blocked["start_cycles"]
    latencies_cycles = blocked["end_cycles"] - starts_cycles
    carried = float(groups["bytes"].sum()) * timeline.ctas_per_recorded
    return carried / (loop.sm_cycles * loop.part) * float(np.median(latencies_cycles))


class CopiedAhead(Struct, frozen=True):
    """The copies of a pipelined loop: ``stage_bytes`` for each iteration of a CTA, ``depth`` iterations ahead."""

    depth: int
    stage_bytes: int
    ctas_per_sm: int

    def bytes_per_sm(self, more_stages: int = 0) -> int:
        """Return the maximum number of bytes in flight for the CTAs of an SM."""
        return (self.depth + more_stages) * self.stage_bytes * self.ctas_per_sm


def copied_ahead(ran: ExecutedKernel, kernel: Kernel, pipeline: CopyPipeline) -> CopiedAhead:
    """Return the copies of a loop, with as many CTAs on an SM as the kernel has without records."""
    accesses = (one.access for one in ran.of_loop(pipeline.loop))
    stage_bytes = sum(
        access.whole_bytes for access in accesses if access and access.form.reads and not access.form.by_registers
    )
    return CopiedAhead(pipeline.depth, stage_bytes, kernel.clean.ctas_per_sm or 1)
