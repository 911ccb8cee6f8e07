"""The speed of light: the part of its time that each scope would take if a unit of the SM did only its work.

Work comes from the module's types, the number of executions from the records, and cycles from the SM's own counter, so
that no clock rate is needed. CTAs that share an SM share its units. All work is a lower bound, and so is each part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod

from msgspec import Struct, field
from msgspec.structs import replace

from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.computed_elements import computed_shares
from kprof_inject.analysis.limits.memory import DramBound, Traffic, sms_of_ctas, traffic_of
from kprof_inject.analysis.limits.operation_work import NO_WORK, Work, exchanged_bytes, work_of, work_with_integers
from kprof_inject.analysis.limits.rates import UnitRates, rates_of
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, unpaired_records
from kprof_inject.capture.model import KERNELS_CACHED
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import cycles_with_ctas

# Roofs of kernels that keep a unit busy are up to 4.8 points above Nsight Compute's figure, which is at most 100 %
# (H200).
MAX_POSSIBLE = 1.05


class Roof(Struct, frozen=True):
    """Lower bounds of the utilization of the units by one scope of a launch, whose ``scope`` name need not be unique.

    ``sm_cycles`` are those in which any warp ran the scope, on each SM, summed over the SMs. ``parts`` has the part of
    these that each unit needs, from 0 to 1; it is 0 for ``impossible`` units, which would need more than all cycles,
    because the work or the cycles are not the scope's.
    """

    index: int  # the scope's index in the scope table
    scope: str
    executions: int  # number of executions by CTAs
    sm_cycles: int
    work: Work
    parts: Mapping[str, float]
    impossible: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, index: int, scope: str, executions: int, sm_cycles: int, work: Work, rates: UnitRates) -> Roof:
        """Compute the roof of a scope from its work and cycles."""
        needed = {unit: cycles / sm_cycles for unit, cycles in rates.cycles(work).items()}
        impossible = {unit: part for unit, part in needed.items() if part > MAX_POSSIBLE}
        parts = {unit: 0.0 if unit in impossible else min(part, 1.0) for unit, part in needed.items()}
        return cls(index, scope, executions, sm_cycles, work, parts, impossible)

    @property
    def unit(self) -> str:
        """The unit that needs most."""
        return max(self.parts, key=lambda unit: self.parts[unit])

    @property
    def part(self) -> float:
        """Part of the unit that needs most."""
        return self.parts[self.unit]

    def without_slowdown(self, slowdown: float) -> Roof:
        """Return the roof in a launch that took the time of this one divided by ``slowdown``."""
        return replace(self, parts={unit: slowdown * part for unit, part in self.parts.items()})


class SpeedOfLight(Struct, frozen=True):
    """The roofs of a launch's scopes, in the order of the scope table.

    ``missing`` is why there are none, or only that of the whole kernel. ``unknown`` operations have work that is not
    included, because the number of their executions is unknown; ``atomics`` are the module's atomic operations.
    ``dram`` has the bounds for the whole launch; None if nothing is known about the device's memory.
    """

    roofs: tuple[Roof, ...]
    unknown: int = 0
    missing: Unjudged | None = None
    dram: DramBound | None = None
    atomics: int = 0
    resident_cycles: int = 0
    """Cycles in which CTAs were on the SMs, including those in which they write out records; 0 without a timer."""
    exchanges: float = 0
    """Part of the launch's time that shared memory would be busy if all exchanges between threads used it."""
    l2_writes: float = 0
    """Part of the launch's time in which SMs could read from the L2 what stores and atomic operations pass to it."""


def speed_of_light(
    timeline: Timeline, summary: LaunchSummary, ran: ExecutedKernel | Unjudged, requests: Sequence[Requests] = ()
) -> SpeedOfLight:
    """Compute the roofs of a launch, by its evaluated kernel or the reason why there is none."""
    if summary.is_foreign:
        return SpeedOfLight((), missing=Unjudged("another profiler's buffer does not say what the kernel does", ""))
    target = timeline.launch.kernel.target or "an unknown device"
    rates = rates_of(target)
    if rates is None:
        return SpeedOfLight((), missing=Unjudged(f"no peak rates are known for {target}", ""))
    chosen, grid = len(timeline.all_ctas), prod(timeline.launch.grid)
    missing = missing_records(timeline) or unpaired_records(timeline)
    if chosen < grid:
        missing = Unjudged(f"only {chosen} of {grid} CTAs were chosen", "choose them all")
    # Executions and cycles by the scope's index. Scopes of other kinds do not have all the time of what is in them:
    # operations may only issue what ends later.
    times = {
        one.index: (round(one.executions * summary.ctas_per_recorded), one.sm_cycles)
        for one in summary.scopes
        if one.kind in (ScopeKind.FUNCTION, ScopeKind.LOOP, ScopeKind.ITERATION)
    }
    if missing:
        times = _by_timer(timeline)
    if not times:
        return SpeedOfLight((), missing=missing)
    if isinstance(ran, Unjudged):
        return SpeedOfLight((), missing=ran)
    traffic = traffic_of(ran, timeline.launch.kernel)
    kept_bytes = traffic.kept_bytes(sms_of_ctas(timeline))
    sm_cycles = max(cycles for _, cycles in times.values())
    resident_cycles = 0
    if timeline.clock.source == ClockSource.FITTED:
        resident_cycles = cycles_with_ctas(timeline.all_ctas, timeline.clock.clock_hz, end="post_final_ns")
    roofs = []
    for index, (executions, cycles) in times.items():
        work = _work_in(ran, index, traffic, kept_bytes, requests) if cycles else NO_WORK
        if work != NO_WORK:
            roofs.append(Roof.of(index, timeline.table.scopes[index].name, executions, cycles, work, rates))
    exchanged = sum(exchanged_bytes(one.operation, ran.module.aliases) * (one.times or 0) for one in ran.operations)
    return SpeedOfLight(
        tuple(roofs),
        unknown=sum(one.whole_times is None for one, _ in _working(ran)),
        missing=missing,
        dram=traffic.dram_bound(rates.l1_bytes, kept_bytes[-1]),
        atomics=sum(one.operation.traits.is_atomic for one in ran.operations),
        resident_cycles=resident_cycles,
        exchanges=exchanged / rates.shared_bytes / sm_cycles if sm_cycles else 0.0,
        l2_writes=traffic.l2_written_bytes / rates.l2_bytes / sm_cycles if sm_cycles else 0.0,
    )


def _by_timer(timeline: Timeline) -> dict[int, tuple[int, int]]:
    """Return the time of the whole kernel by the CTAs' timers, if known, for launches that lost records."""
    ctas = timeline.all_ctas
    is_lossy = timeline.records_lost and not timeline.records_damaged and len(ctas) == prod(timeline.launch.grid)
    if not is_lossy or timeline.clock.source != ClockSource.FITTED:
        return {}
    found = len(ctas), cycles_with_ctas(ctas, timeline.clock.clock_hz)
    scopes = enumerate(timeline.table.scopes)
    return {index: found for index, scope in scopes if scope.kind == ScopeKind.FUNCTION and scope.parent < 0}


@lru_cache(maxsize=KERNELS_CACHED)
def _working(ran: ExecutedKernel) -> Sequence[tuple[CountedOperation, Work]]:
    aliases, of_integers, computed = ran.module.aliases, work_with_integers(ran.module), computed_shares(ran.module)
    found = [
        (one, (work_of(one.operation, aliases) + of_integers.get(one.operation, NO_WORK)) * share)
        for one in ran.operations
        if (share := computed.get(one.operation, 1.0))
    ]
    return [(one, work) for one, work in found if work != NO_WORK]


def _work_in(
    ran: ExecutedKernel, index: int, traffic: Traffic, kept_bytes: Sequence[int], requests: Sequence[Requests]
) -> Work:
    rows_in, working = ran.scope_map.rows_in, _working(ran)
    accesses = rows_in(index, traffic.lines)
    work = Work(
        shared_bytes=traffic.l1_bytes(accesses),
        conflict_cycles=sum(requests[row].extra_wavefronts for row in rows_in(index, [one.line for one in requests])),
        l2_bytes=traffic.l2_bytes(accesses, kept_bytes),
    )
    for row in rows_in(index, [one.line for one, _ in working]):
        one, each = working[row]
        if one.whole_times:
            work += each * one.whole_times
    return work
