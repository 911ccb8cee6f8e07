"""The speed of light: what part of its time each scope would take if a unit of the SM did nothing but its work.

Work comes from the module's types, how often it is done from the records, and the cycles from the SM's own counter: so
no clock's rate is in it. CTAs that share an SM share its units. All work is a least, and so is each part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import Any

from kprof_inject.analysis.interpreter.executions import CountedOperation, ExecutedKernel, by_ctas
from kprof_inject.analysis.roofs.computed_elements import computed_shares
from kprof_inject.analysis.roofs.integer_work import work_with_integers
from kprof_inject.analysis.roofs.memory import DramBound, Traffic
from kprof_inject.analysis.roofs.operation_work import NO_WORK, Work, exchanged_bytes, work_of, work_of_histograms
from kprof_inject.analysis.roofs.unit_rates import UnitRates, rates_of
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, unpaired_records
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.sm_cycles import cycles_with_ctas
from kprof_inject.timeline.timeline import Timeline

# Roofs of kernels that keep a unit busy are up to 4.8 points above the share that Nsight Compute tells (H200), which is
# 100 % at most.
MOST_POSSIBLE = 1.05


@dataclass(frozen=True, slots=True)
class Roof:
    """One scope of a launch. ``sm_cycles`` is the time in which any warp ran it, on each SM, summed over the SMs;
    ``parts`` what each unit needs of that at least, from 0 to 1, by the unit's name. ``impossible`` has the units that
    would need more than all of it, of which ``parts`` therefore says nothing, 0: the work or the cycles are not the
    scope's."""

    index: int
    """The scope's, in the scope table."""
    scope: str
    """Its name, which others may have."""
    executions: int
    """By CTAs."""
    sm_cycles: int
    work: Work
    parts: Mapping[str, float]
    impossible: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, index: int, scope: str, executions: int, sm_cycles: int, work: Work, rates: UnitRates) -> Roof:
        needed = {unit: cycles / sm_cycles for unit, cycles in rates.cycles(work).items()}
        impossible = {unit: part for unit, part in needed.items() if part > MOST_POSSIBLE}
        parts = {unit: 0.0 if unit in impossible else min(part, 1.0) for unit, part in needed.items()}
        return cls(index, scope, executions, sm_cycles, work, parts, impossible)

    @property
    def unit(self) -> str:
        """The unit that needs most."""
        return max(self.parts, key=lambda unit: self.parts[unit])

    @property
    def part(self) -> float:
        return self.parts[self.unit]

    def slowed(self, longer: float) -> Roof:
        """The same in a launch of which this one takes ``longer`` times the time."""
        return replace(self, parts={unit: longer * part for unit, part in self.parts.items()})

    def without(self, unit: str) -> Roof:
        """As if the unit had nothing to do."""
        return replace(self, parts={**self.parts, unit: 0.0})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unit": self.unit}


@dataclass(frozen=True, slots=True)
class SpeedOfLight:
    """The roofs of a launch's scopes, in the order of the table. ``missing`` says why there are none, or only that of
    the whole kernel. ``unknown`` operations do work that is not in them: nobody knows how often they were executed.
    ``dram`` is the whole launch's, None where nothing is known of the device's memory."""

    roofs: tuple[Roof, ...]
    unknown: int = 0
    missing: Unjudged | None = None
    dram: DramBound | None = None
    atomics: int = 0
    """How many operations of the module are atomic."""
    resident_cycles: int = 0
    """In how many cycles CTAs were on the SMs, with those in which they write out records; 0 where no timer tells."""
    exchanges: float = 0
    """What part of the launch shared memory would be busy for if all that threads exchange went through it."""

    @property
    def has_unknown(self) -> bool:
        """Whether there is work of which nobody knows how much it is."""
        return bool(self.unknown or (self.dram and self.dram.streamed_bytes is None))

    def to_json(self) -> dict[str, Any]:
        return {
            "scopes": [roof.to_json() for roof in self.roofs],
            "unknown_operations": self.unknown,
            "dram": {**asdict(self.dram), "least_ns": self.dram.least_ns} if self.dram else None,
            "exchanges": self.exchanges,
            "missing": str(self.missing) if self.missing else None,
        }


def speed_of_light(timeline: Timeline, summary: LaunchSummary, ran: ExecutedKernel | Unjudged) -> SpeedOfLight:
    """Of one launch. ``ran`` is what it executed, or why nobody knows."""
    if summary.is_foreign:
        return SpeedOfLight((), missing=Unjudged("another profiler's buffer does not say what the kernel does", ""))
    target = timeline.launch.kernel.target or "an unknown device"
    rates = rates_of(target)
    if rates is None:
        return SpeedOfLight((), missing=Unjudged(f"there are no unit rates for {target}", ""))
    missing = _missing(timeline)
    times = _by_timer(timeline) if missing else _by_records(timeline, summary)
    if not times:
        return SpeedOfLight((), missing=missing)
    if isinstance(ran, Unjudged):
        return SpeedOfLight((), missing=ran)
    traffic = Traffic(ran.operations, timeline, ran.module.aliases)
    working = list(_working(ran, timeline.launch.kernel))
    return SpeedOfLight(
        tuple(_roofs(timeline, ScopeMap(ran.module, timeline.table), times, rates, working, traffic)),
        sum(one.whole_times is None for one, _ in working),
        missing,
        traffic.dram_bound(rates.l1_bytes),
        sum(one.operation.traits.is_atomic for one in ran.operations),
        _resident_cycles(timeline),
        _exchanges(ran, rates, max((one.sm_cycles for one in times.values()), default=0)),
    )


@dataclass(frozen=True, slots=True)
class _Time:
    """Of a scope, as ``Roof`` has it."""

    executions: int
    sm_cycles: int


def _by_records(timeline: Timeline, summary: LaunchSummary) -> dict[int, _Time]:
    """By the scope's number: of those that ran."""
    return {
        index: _Time(by_ctas(summary, index), summary.scopes[index].sm_cycles)
        for index, scope in enumerate(timeline.table.scopes)
        if _is_whole(scope)
    }


def _by_timer(timeline: Timeline) -> dict[int, _Time]:
    """Where records were lost, the CTAs' timers still tell the time of the whole kernel; empty if they do not, or if
    something else is missing."""
    is_told = (
        timeline.records_lost and not timeline.records_damaged and len(timeline.ctas) == prod(timeline.launch.grid)
    )
    if not is_told or timeline.clock.source != ClockSource.FITTED:
        return {}
    found = _Time(len(timeline.ctas), cycles_with_ctas(timeline.ctas, timeline.clock.clock_hz))
    scopes = enumerate(timeline.table.scopes)
    return {index: found for index, scope in scopes if scope.kind == ScopeKind.FUNCTION and scope.parent < 0}


def _resident_cycles(timeline: Timeline) -> int:
    if timeline.clock.source != ClockSource.FITTED:
        return 0
    return cycles_with_ctas(timeline.ctas, timeline.clock.clock_hz, end="post_final_ns")


def _working(ran: ExecutedKernel, kernel: Kernel) -> Iterator[tuple[CountedOperation, Work]]:
    of_integers = work_with_integers(ran.module)
    of_histograms = work_of_histograms(ran.module, kernel.target, str(kernel.metadata.get("triton_version", "")))
    computed = computed_shares(ran.module)
    for one in ran.operations:
        work = work_of(one.operation, ran.module.aliases) + of_integers.get(one.operation, NO_WORK)
        work = work * computed.get(one.operation, 1.0) + of_histograms.get(one.operation, NO_WORK)
        if work != NO_WORK:
            yield one, work


def _exchanges(ran: ExecutedKernel, rates: UnitRates, sm_cycles: int) -> float:
    aliases = ran.module.aliases
    moved = sum(exchanged_bytes(one.operation, aliases) * (one.times or 0) for one in ran.operations)
    return moved / rates.shared_bytes / sm_cycles if sm_cycles else 0.0


def _missing(timeline: Timeline) -> Unjudged | None:
    chosen, grid = len(timeline.ctas), prod(timeline.launch.grid)
    if chosen < grid:
        return Unjudged(f"only {chosen} of {grid} CTAs were chosen", "choose them all")
    return missing_records(timeline) or unpaired_records(timeline)


def _roofs(
    timeline: Timeline,
    scope_map: ScopeMap,
    times: Mapping[int, _Time],
    rates: UnitRates,
    working: Sequence[tuple[CountedOperation, Work]],
    traffic: Traffic,
) -> Iterator[Roof]:
    lines = [one.line for one, _ in working]
    for index, time in times.items():
        if not time.sm_cycles:
            continue
        accesses = scope_map.rows_in(index, traffic.lines)
        work = Work(shared_bytes=traffic.l1_bytes(accesses), l2_bytes=traffic.l2_bytes(accesses))
        for row in scope_map.rows_in(index, lines):
            one, each = working[row]
            if one.whole_times:
                work += each * one.whole_times
        if work != NO_WORK:
            name = timeline.table.scopes[index].name
            yield Roof.of(index, name, time.executions, time.sm_cycles, work, rates)


def _is_whole(scope: ScopeInfo) -> bool:
    """Whether the scope has all the time of what is in it: other operations only issue what ends later."""
    return scope.kind in (ScopeKind.FUNCTION, ScopeKind.LOOP, ScopeKind.ITERATION)
