"""Groups of asynchronous work in flight: their columns, the lanes in which they are drawn, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.limits.speed_of_light import Roof
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.select.targets import COPIES
from kprof_inject.timeline.columns import Numbers
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import waves_of
from kprof_inject.ttgir.dialect import traits_of
from kprof_inject.ttgir.loops import CopyPipeline

IN_FLIGHT_COLUMNS = np.dtype(
    [("cta", "i4"), ("sm", "i4"), ("warp", "i2"), ("scope", "i2"), ("wait_scope", "i2"), ("record", "i4")]
    + [(name, "i8") for name in ("start_cycles", "end_cycles", "start_ns", "known_ns", "end_ns", "blocked_ns")]
    + [("depth", "i4"), ("bytes", "i8")]
)
"""One group of asynchronous work that was issued and awaited.

``scope`` and ``wait_scope`` index the scope table; ``record`` is the first record of its scope, as in
``SCOPE_COLUMNS``. The group began at ``start_ns``. It was in flight until ``known_ns`` at least, and until ``end_ns``
at most; the two are equal where the wait blocked, for ``blocked_ns``. ``depth`` is how many groups of its kind were in
flight once it had begun, including itself. ``bytes`` are what this warp's part of it moves; for TMA copies, the
CTA's."""


class InFlight(Struct, frozen=True):
    """The asynchronous work of a launch."""

    groups: NDArray[np.void]
    works: Mapping[int, str]  # the kind of work that each scope issues
    unpaired: Mapping[str, str]  # the reason why an operation's work could not be paired with a wait

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of work, in the order in which they are drawn."""
        return tuple(sorted(set(self.works.values())))


def starts_async(scope: Scope) -> bool:
    """Return True if a scope covers one or several operations that issue asynchronous work."""
    if scope.kind == ScopeKind.PART:
        return scope.label.partition("@")[0] == COPIES
    return scope.kind == ScopeKind.OPERATION and traits_of(scope.label or scope.name).starts_async


def group_numbers(*keys: NDArray[np.integer]) -> Numbers:
    """Return the number of each row's group. A group ends where one of the keys changes."""
    begins = np.zeros(len(keys[0]), bool)
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return np.cumsum(begins)


def numbers_in_group(group: Numbers) -> Numbers:
    """Return each row's place in its group, from 1."""
    return np.arange(len(group)) - np.searchsorted(group, group) + 1


def by_scope(scopes: NDArray[np.int16], values: Mapping[int, int]) -> Numbers:
    """Return the value of each row's scope; 0 for a scope without one."""
    different, place = np.unique(scopes, return_inverse=True)
    return np.array([values.get(scope, 0) for scope in different.tolist()], np.int64)[place]


class FlightLanes(Struct, frozen=True):
    """The groups of a launch that are drawn, ordered by lane and start.

    A group is in flight until ``known_ns`` at least and ``end_ns`` at most, if its lane has room. ``work`` indexes
    ``kinds``. Lanes are numbered CTA by CTA; in a CTA, each kind of work has its own.
    """

    kinds: tuple[str, ...]
    groups: NDArray[np.void]
    work: Numbers
    lane: Numbers
    known_ns: Numbers
    end_ns: Numbers

    @property
    def count(self) -> int:
        """The number of lanes."""
        return int(self.lane.max(initial=-1)) + 1


def flight_lanes(found: InFlight) -> FlightLanes:
    """Assign lanes to the groups of each CTA's first warp: all its warps issue the same work."""
    work = by_scope(found.groups["scope"], {scope: found.kinds.index(kind) for scope, kind in found.works.items()})
    order = np.lexsort((found.groups["start_cycles"], found.groups["warp"], work, found.groups["cta"]))
    groups, work = found.groups[order], work[order]
    member = group_numbers(groups["cta"], work)
    is_first_warp = groups["warp"] == groups["warp"][np.searchsorted(member, member)]
    groups, work = groups[is_first_warp], work[is_first_warp]
    member = group_numbers(groups["cta"], work)
    # A group that ends as it begins has a depth of 0.
    depth = np.maximum(groups["depth"].astype(np.int64), 1)
    deepest = np.maximum.reduceat(depth, np.unique(member, return_index=True)[1]) if depth.size else depth
    lane = (np.cumsum(deepest) - deepest)[member] + (numbers_in_group(member) - 1) % deepest[member]
    order = np.lexsort((groups["start_ns"], lane))
    groups, work, lane = groups[order], work[order], lane[order]
    # None ends after the next start in its lane.
    following = np.append(groups["start_ns"][1:], np.iinfo(np.int64).max)
    is_followed = np.append(lane[1:] == lane[:-1], False)
    end_ns: Numbers = np.where(is_followed, np.minimum(groups["end_ns"], following), groups["end_ns"])
    return FlightLanes(found.kinds, groups, work, lane, np.minimum(groups["known_ns"], end_ns), end_ns)


class Flight(Struct, frozen=True):
    """The groups of asynchronous work that one operation issued.

    The wait of ``blocked_share`` of them blocked; ``latency_ns`` is the median of those, from issue to completion.
    """

    index: int  # the scope's, in the scope table
    scope: str  # its name, which others may have
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
    """Return the metrics of a launch, if anything asynchronous was recorded."""
    groups = found.groups
    if not groups.size and not found.unpaired:
        return None
    flights = []
    for scope in np.unique(groups["scope"]).tolist():
        mine = groups[groups["scope"] == scope]
        blocked = mine[mine["blocked_ns"] > 0]
        flight = Flight(
            index=scope,
            scope=timeline.table.scopes[scope].name,
            source=timeline.table.scopes[scope].source,
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
    held = float((carrying["bytes"] * (carrying["end_cycles"] - carrying["start_cycles"])).sum())
    mean_bytes = held * timeline.ctas_per_recorded / longest if longest else 0.0
    needed = _needed(timeline, carrying, roofs)
    return Flights(tuple(flights), mean_bytes, _max_at_once(carrying, timeline), needed, found.unpaired)


def _max_at_once(groups: NDArray[np.void], timeline: Timeline) -> int:
    # Of a sample of the CTAs, it is any CTA's maximum times the CTAs on an SM.
    waves = waves_of(timeline) if timeline.unrecorded.size else None
    at = np.concatenate([groups["start_cycles"], groups["end_cycles"]])
    change = np.concatenate([groups["bytes"], -groups["bytes"]])
    # A group that ends when another begins does not overlap it.
    order = np.lexsort((change, at, np.tile(groups["cta" if waves else "sm"], 2)))
    return int(np.cumsum(change[order]).max(initial=0)) * (waves.slots_per_sm if waves else 1)


# If fewer waits block, the bytes in flight suffice, and the blocking waits are no measure of the latency.
_MIN_BLOCKED = 0.1


def _needed(timeline: Timeline, groups: NDArray[np.void], roofs: Sequence[Roof]) -> float | None:
    """Return a loop's bandwidth at its roof, times the measured latency."""
    blocked = groups[groups["blocked_ns"] > 0]
    if not groups.size or len(blocked) < _MIN_BLOCKED * len(groups):
        return None
    # The innermost scope with a roof around the operation that issued most of the work.
    most = int(np.bincount(groups["scope"]).argmax())
    by_index = {roof.index: roof for roof in roofs}
    loop = next((by_index[index] for index in timeline.table.around(most) if index in by_index), None)
    if loop is None or not loop.part:
        return None
    latency_cycles = float(np.median(blocked["end_cycles"] - blocked["start_cycles"]))
    carried = float(groups["bytes"].sum()) * timeline.ctas_per_recorded
    return carried / (loop.sm_cycles * loop.part) * latency_cycles


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
