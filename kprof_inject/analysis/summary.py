"""A launch in numbers: the time of its scopes, how its CTAs fill the SMs, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct, structs
from numpy.typing import NDArray

from kprof_inject.capture.mode import RecordCost
from kprof_inject.capture.model import Place
from kprof_inject.capture.scopes import ScopeKind, distinct_names
from kprof_inject.capture.slowdown import Slowdown
from kprof_inject.quantities import counted, numbered
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.partitions import PartitionScopes, partition_names
from kprof_inject.timeline.phases import Phases, PhaseSums
from kprof_inject.timeline.scope_statistics import MemoryWait, MemoryWaitSums, ScopeStatistics, ScopeSums, SmCycles
from kprof_inject.timeline.tags import TagStatistics, TagSums
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import (
    Ending,
    IdleSms,
    Waves,
    cycles_of_all_ctas,
    ending_of,
    idle_sms_of,
    launch_duration_ns,
    waves_of,
)


class RecordFaults(Struct, frozen=True):
    """Number of records that are missing or unusable, and of the warps and CTAs concerned.

    ``worst_*`` describe the warp with most of them, and ``worst_written`` counts all records that it wrote.
    """

    records: int
    warps: int
    ctas: int
    worst_cta: int
    worst_warp: int
    worst_records: int
    worst_written: int

    @classmethod
    def of(cls, incomplete: NDArray[np.void], column: str) -> RecordFaults | None:
        """Summarise one count of ``INCOMPLETE_COLUMNS``, if it is not 0 for all warps."""
        faulty = incomplete[incomplete[column] > 0]
        if not faulty.size:
            return None
        worst = faulty[["cta", "warp", column, "records_written"]][faulty[column].argmax()].tolist()
        return cls(int(faulty[column].sum()), len(faulty), len(np.unique(faulty["cta"])), *worst)


class ScopeSummary(ScopeStatistics, frozen=True, eq=False, kw_only=True):
    """Statistics of one scope of one launch."""

    index: int  # its key: its index in the scope table
    record: str  # name of its records
    scope: str  # its name, which need not be unique
    distinct_name: str  # its name, with its site if other scopes have the same name
    title: str
    """Its name as shown next to its source line; the kernel's own body has the name of its partition added, if only one
    runs it."""
    kind: str
    depth: int  # number of scopes of the table that enclose it
    source: str
    without_partner: int  # number of its records whose start or end is missing
    between_iterations_ns: int | None
    """Self time of a loop if each of its recorded iterations has its own end; None for any other scope."""
    sm_cycles: int  # cycles, summed over the SMs, in which at least one warp ran it
    partition: str | None  # name of the partition that runs it; None if there are no partitions
    tags: tuple[TagStatistics, ...] = ()  # its times by the values of its tags

    @property
    def executions(self) -> int:
        """Number of executions by CTAs. All warps that run it do so together."""
        return self.count // max(len(self.warps.ids), 1)

    @property
    def self_share(self) -> float:
        """Self time as part of the same whole as ``share``; 0 if times are unknown."""
        if self.share is None or self.self_ns is None or self.total_ns is None:
            return 0.0
        return self.share * self.self_ns / max(self.total_ns, 1)


class PartitionSummary(PartitionScopes, frozen=True):
    """A partition of a launch."""

    whole_ns: int  # time of all its warps, which the shares of its scopes refer to
    outside_ns: int | None
    """Time outside all its scopes; None if its warps lost records, as the scopes of these are unknown."""

    @property
    def title(self) -> str:
        """The partition's name with its warps."""
        if not self.warps:
            count = "" if self.warp_count is None else f"{counted(self.warp_count, 'warp')}, "
            return f"{self.called} ({count}{'no records' if self.scopes else 'nothing selected'})"
        some = self.warp_count is not None and len(self.warps) < self.warp_count
        part = f", {len(self.warps)} of {self.warp_count}" if some else ""
        return f"{self.called} ({numbered('warp', self.warps)}{part})"


class LaunchSummary(Struct, frozen=True):
    """A launch: the fitted clock, its losses, and its scopes."""

    kernel: str
    variant: str
    launch: int
    graph: bool  # true for the last replay of a CUDA graph
    place: Place  # the process and device that it ran on
    grid: tuple[int, int, int]
    warps: int
    ctas: int
    cta_name: str
    warp_name: str  # the names for CTAs and warps, from ``Kernel``
    recorded_ctas: int  # number of the ``ctas`` that recorded: figures of scopes are of these
    slowdown: Slowdown | None  # how much longer these take than the others; None if all recorded
    duration_ns: int
    clock_mhz: float
    clock_error: float
    residual_ns: float
    clock_source: ClockSource
    nominal_mhz: float | None  # the device's nominal clock
    record_cost: RecordCost | None
    resolution_ns: float  # shortest duration that exceeds the cost of a record; 0 if nothing was subtracted
    subtracted_ns: int
    """Part of ``warp_time_ns`` that was subtracted as the cost of records, computed from ``record_cost``."""
    warp_time_ns: int
    records_written: int
    records_lost: int
    records_damaged: int
    lost: RecordFaults | None
    open_starts: RecordFaults | None
    stray_ends: RecordFaults | None
    damaged: RecordFaults | None  # for these four, the warps with missing or damaged records; None if there are none
    ctas_never_ran: int
    ctas_damaged: int
    ctas_without_sm: int  # number of CTAs whose SM is unknown
    waves: Waves | None  # like ``idle`` and ``ending``, None if no timer shows when CTAs ran
    idle: IdleSms | None
    ending: Ending | None
    phases: Phases | None
    memory_waits: tuple[MemoryWait, ...]  # the scopes that only wait for others to change memory
    partitions: tuple[PartitionSummary, ...]
    """The default partition comes first; empty unless the kernel is warp-specialized."""
    scopes: tuple[ScopeSummary, ...]

    def __repr__(self) -> str:
        """Return the launch and its number of scopes."""
        return f"<LaunchSummary of {self.kernel} #{self.launch}: {counted(len(self.scopes), 'scope')}>"

    @property
    def ctas_per_recorded(self) -> float:
        """Number of CTAs for each that recorded."""
        return self.ctas / self.recorded_ctas if self.recorded_ctas else 1.0

    @property
    def is_foreign(self) -> bool:
        """True if another profiler recorded it."""
        return self.clock_source == ClockSource.TIMER

    def warps_in_ctas(self, scope: ScopeSummary) -> int:
        """Return the number of warps that ran a scope, counted in each CTA; at least 1."""
        ctas = scope.cta_spread.groups if scope.cta_spread else self.recorded_ctas
        return max(ctas * len(scope.warps.ids), 1)

    def trees(self) -> Iterator[tuple[PartitionSummary | None, tuple[int, ...]]]:
        """Yield the scopes as reports show them: each partition with its scopes, or all of them under None."""
        if self.partitions:
            yield from ((partition, partition.scopes) for partition in self.partitions)
        else:
            yield None, tuple(range(len(self.scopes)))


def summarise(timeline: Timeline) -> LaunchSummary:
    """Compute the summary in one pass over the records."""
    launch, incomplete = timeline.launch, timeline.incomplete
    scope_sums, phase_sums = ScopeSums(timeline), PhaseSums(timeline)
    is_sample = bool(timeline.unrecorded.size)
    sm_cycles = SmCycles(len(timeline.table.scopes), "cta" if is_sample else "sm")
    tags = TagSums(timeline.table)
    memory_waits = MemoryWaitSums(timeline)
    for block in timeline.blocks():
        for sums in (scope_sums, phase_sums, sm_cycles, tags, memory_waits):
            sums.add(block)
    lossy = {*incomplete["warp"][incomplete["records_lost"] > 0].tolist()}
    partitions = tuple(
        PartitionSummary(
            **structs.asdict(partition),
            whole_ns=whole_ns,
            outside_ns=outside_ns if lossy.isdisjoint(partition.warps) else None,
        )
        for partition, (whole_ns, outside_ns) in zip(timeline.partitions, scope_sums.partition_times_ns(), strict=True)
    )
    cycles = cycles_of_all_ctas(sm_cycles.cycles(), timeline) if is_sample else sm_cycles.cycles()
    scopes = tuple(_scope_summaries(timeline, scope_sums.statistics(), cycles.tolist(), tags))
    waves, cost = waves_of(timeline), launch.kernel.record_cost
    return LaunchSummary(
        kernel=launch.kernel.name,
        variant=launch.kernel.variant,
        launch=launch.index,
        graph=launch.graph,
        place=launch.place,
        grid=launch.grid,
        warps=launch.kernel.num_warps,
        ctas=len(timeline.all_ctas),
        recorded_ctas=len(timeline.ctas),
        slowdown=timeline.slowdown,
        cta_name="CTA",
        warp_name=launch.kernel.warp_name,
        duration_ns=launch_duration_ns(timeline),
        clock_mhz=timeline.clock.clock_hz / 1e6,
        clock_error=timeline.clock.rate_error,
        residual_ns=timeline.clock.residual_ns,
        clock_source=timeline.clock.source,
        nominal_mhz=launch.kernel.sm_clock_hz / 1e6 if launch.kernel.sm_clock_hz else None,
        record_cost=cost,
        resolution_ns=cost.resolution_ns(timeline.clock.clock_hz) if cost else 0.0,
        subtracted_ns=sum(scope.subtracted_ns for scope in scopes),
        warp_time_ns=timeline.warp_time_ns,
        records_written=timeline.records_written,
        records_lost=timeline.records_lost,
        records_damaged=timeline.records_damaged,
        lost=RecordFaults.of(incomplete, "records_lost"),
        open_starts=RecordFaults.of(incomplete, "open_starts"),
        stray_ends=RecordFaults.of(incomplete, "stray_ends"),
        damaged=RecordFaults.of(incomplete, "records_damaged"),
        ctas_never_ran=timeline.ctas_never_ran,
        ctas_damaged=timeline.ctas_damaged,
        ctas_without_sm=int((timeline.ctas["sm"] < 0).sum()),
        waves=waves,
        idle=idle_sms_of(timeline.all_ctas, waves.slots_per_sm) if waves else None,
        ending=ending_of(timeline, waves.slots_per_sm) if waves else None,
        phases=phase_sums.phases(),
        memory_waits=memory_waits.waits(),
        partitions=partitions,
        scopes=scopes,
    )


def _scope_summaries(
    timeline: Timeline, statistics: Sequence[ScopeStatistics], sm_cycles: Sequence[int], tags: TagSums
) -> Iterator[ScopeSummary]:
    scopes, partitions = timeline.table.scopes, partition_names(timeline.table)
    names, titles = distinct_names(scopes), distinct_names(scopes, with_source=True)
    without_partner = (timeline.open_starts + timeline.stray_ends).tolist()
    loops = {
        scope.parent
        for scope, figures in zip(scopes, statistics, strict=True)
        if scope.kind == ScopeKind.ITERATION and figures.count and not scope.ended_by_next
    }
    depth: list[int] = []
    for index, (scope, figures) in enumerate(zip(scopes, statistics, strict=True)):
        depth.append(depth[scope.parent] + 1 if scope.parent >= 0 else 0)
        partition, is_body = partitions.get(index), scope.kind == ScopeKind.FUNCTION and scope.parent < 0
        yield ScopeSummary(
            **structs.asdict(figures),
            index=index,
            record=scope.record,
            scope=scope.name,
            distinct_name=names[index],
            title=f"{titles[index]} ({partition})" if partition and is_body else titles[index],
            kind=scope.kind,
            depth=depth[index],
            source=scope.source,
            without_partner=without_partner[index],
            between_iterations_ns=figures.self_ns if index in loops and scope.kind == ScopeKind.LOOP else None,
            sm_cycles=sm_cycles[index],
            partition=partition,
            tags=tags.of(index),
        )
