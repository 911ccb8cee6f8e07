"""Launches to compare: one variant of a kernel with one grid on one side, their settings and their figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.findings.loops import LoopFigures, loop_figures
from kprof_inject.analysis.launch import LaunchAnalysis, ReportLaunch
from kprof_inject.analysis.limits.stalls import Stalls
from kprof_inject.analysis.program import middle_of
from kprof_inject.capture.model import Kernel
from kprof_inject.kernel_names import CONFIG, distinct_names
from kprof_inject.timeline.choice import EVERYTHING, Choice, NumberSet
from kprof_inject.timeline.columns import Reals
from kprof_inject.timeline.comparison import MIN_LAUNCHES, Change, change_between, typical
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.scope_statistics import ScopeStatistics, ScopeSums
from kprof_inject.timeline.tags import TagSums
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import usable_times
from kprof_inject.timeline.waves import IdleSms, Waves, idle_sms_of, launch_duration_ns, waves_of


class Both(Struct, frozen=True):
    """A figure of A and of B, each ``typical`` of its side's launches; None where a side has none."""

    a: float | None
    b: float | None

    @property
    def change(self) -> float | None:
        """Increase from A to B; None if a side has none."""
        return None if self.a is None or self.b is None else self.b - self.a


class KernelRuns(Struct, frozen=True, eq=False):
    """Launches of one variant of a kernel with one grid, on one side."""

    name: str  # name of the kernel, or its name on the other side; empty if unknown (a Proton buffer)
    timelines: tuple[Timeline, ...]  # at least one, in the order of the launches
    rank: int | None = None  # rank of the process, if ranks are compared one by one

    @property
    def title(self) -> str:
        """Name of the kernel, with the rank if there is one."""
        return self.kernel.name if self.rank is None else f"{self.kernel.name} of rank {self.rank}"

    @property
    def kernel(self) -> Kernel:
        """Kernel of these launches."""
        return self.timelines[0].launch.kernel

    @property
    def is_of_buffer(self) -> bool:
        """True if each launch is only a buffer, without files of its kernel."""
        return not self.kernel.folder.is_dir()

    @property
    def grid(self) -> tuple[int, int, int]:
        """Grid of these launches."""
        return self.timelines[0].launch.grid

    @property
    def launches_in_program(self) -> float:
        """Launches per process on average; if unknown, the number of captured launches."""
        processes = {timeline.launch.kernel.folder: timeline.launch.kernel.launches for timeline in self.timelines}
        counts = [count for count in processes.values() if count is not None]
        return sum(counts) / len(counts) if counts else len(self.timelines)

    def times_ns(self, name: str = "times_ns", *, with_launching: bool = True) -> list[Reals]:
        """Return the times without records of launches or replays (``replayed_ns``), an array for each process.

        Captures that share the times of one process count once.
        """
        clean = [timeline.launch.kernel.clean for timeline in self.timelines]
        times_ns = [getattr(one if with_launching else one.without_launching(), name) or () for one in clean]
        samples = [usable_times(times) for times in dict.fromkeys(times_ns)]
        return [sample for sample in samples if sample.size]

    # The other analyses of a launch are reached here alone.

    @property
    def middle(self) -> LaunchAnalysis:
        """Analysis of the launch of median duration."""
        return middle_of(map(ReportLaunch.of, self.timelines)).analysis

    @property
    def stalls(self) -> Stalls | None:
        """Samples of the kernel's stalls, of one of its processes that has some."""
        of_processes = {timeline.launch.kernel.folder: timeline for timeline in self.timelines}
        found = (LaunchAnalysis.of(timeline).stalls for timeline in of_processes.values())
        return next((stalls for stalls in found if stalls and stalls.samples), None)

    def loop(self, index: int) -> LoopFigures:
        """Return the metrics of a loop in a median launch, by the loop's index in the scope table."""
        ordered = sorted(self.timelines, key=lambda timeline: timeline.last_ns - timeline.first_ns)
        return loop_figures(LaunchAnalysis.of(ordered[len(ordered) // 2]), index)


def has_launching(a: KernelRuns, b: KernelRuns) -> bool:
    """Return True if ``comparable_clean_times_ns`` include the launch overhead."""
    return not all(timeline.launch.kernel.clean.has_empty_times for side in (a, b) for timeline in side.timelines)


def comparable_clean_times_ns(a: KernelRuns, b: KernelRuns) -> tuple[list[Reals], list[Reals]]:
    """Return the times without records of the program's launches on both sides, or of replays if a side has too few.

    The launch overhead is subtracted if it is known on both sides.
    """
    launching = has_launching(a, b)
    own_a, own_b = (side.times_ns("times_ns", with_launching=launching) for side in (a, b))
    replayed_a, replayed_b = (side.times_ns("replayed_ns", with_launching=launching) for side in (a, b))
    too_few = any(sum(map(len, side)) < MIN_LAUNCHES for side in (own_a, own_b))
    return (replayed_a, replayed_b) if too_few and replayed_a and replayed_b else (own_a, own_b)


def runs_of(timelines: Iterable[Timeline], renamed: Mapping[str, str], *, by_rank: bool = False) -> list[KernelRuns]:
    """Group one side's launches by variant, grid and perhaps rank, in the order of each group's first launch.

    ``renamed`` maps names of kernels or variants to their names on the other side.
    """
    found: defaultdict[tuple[int | None, str, Hashable, Hashable], list[Timeline]] = defaultdict(list)
    for timeline in timelines:
        launch = timeline.launch
        rank = launch.place.rank if by_rank else None
        found[rank, launch.kernel.variant, launch.grid, timeline.table].append(timeline)
    groups = []
    for (rank, variant, *_), timelines_inside in found.items():
        runs = KernelRuns("", tuple(timelines_inside), rank)
        # Without files, the kernel is only named after its Proton buffer.
        own = "" if runs.is_of_buffer else runs.kernel.name
        groups.append(replace(runs, name=renamed.get(variant, renamed.get(runs.kernel.name, own))))
    return groups


def grid_text(grid: tuple[int, int, int]) -> str:
    """Return a grid as ``16x4x1``."""
    return "x".join(map(str, grid))


def config_of(kernel: Kernel) -> tuple[object, ...]:
    """Return a kernel's values of the options in ``CONFIG``."""
    return tuple(kernel.metadata.get(name) for name in CONFIG)


def distinct_runs(side: Sequence[KernelRuns]) -> list[str]:
    """Return a name for each that distinguishes it from the others."""
    named = []
    for runs in side:
        config = dict(zip(CONFIG, config_of(runs.kernel), strict=True))
        facts = config | {"grid": grid_text(runs.grid), "rank": runs.rank}
        named.append((runs.kernel, {name: str(fact) for name, fact in facts.items() if fact not in (None, "")}))
    return distinct_names(named)


class Difference(Struct, frozen=True):
    """Property ``what`` with its differing values in A and in B; ``is_option`` if only Triton's metadata names it."""

    what: str
    a: str
    b: str
    is_option: bool

    def __str__(self) -> str:
        """Return the difference as ``num_warps 4 → 8``."""
        return f"{self.what} {self.a} → {self.b}"


def differences(a: KernelRuns, b: KernelRuns) -> tuple[Difference, ...]:
    """Return the known settings that differ, in the user's terms, and other options that both sides' Tritons have."""
    settings_a, settings_b = _settings_of(a), _settings_of(b)
    options = (a.kernel.metadata.keys() & b.kernel.metadata.keys()) - _NO_OPTIONS - settings_a.keys()
    all_a, all_b = a.kernel.metadata | settings_a, b.kernel.metadata | settings_b
    found = []
    for name in (*settings_a, *sorted(options)):
        value_a, value_b = ("" if side[name] is None else str(side[name]) for side in (all_a, all_b))
        if value_a and value_b and value_a != value_b:
            found.append(Difference(name, value_a, value_b, name in options))
    return tuple(found)


# Triton metadata that are facts of a build, or options that recording sets.
_NO_OPTIONS = frozenset(
    {"arch", "backend_name", "hash", "name", "shared", "tmem_size", "warp_size"}
    | {"global_scratch_align", "global_scratch_size", "profile_scratch_align", "profile_scratch_size"}
    | {"extern_libs", "instrumentation_mode", "ir_override"}
)


def _settings_of(runs: KernelRuns) -> dict[str, object]:
    kernel, launch, mode, clean = runs.kernel, runs.timelines[0].launch, runs.kernel.mode, runs.kernel.clean
    size = f"{mode.buffer_bytes} bytes" if mode.buffer_bytes else "auto"
    stores = ", stores moved" if mode.sched_stores else ""
    barriers = ", scheduling barriers" if mode.sched_barriers else ""
    return {
        "kernel": kernel.name if runs.name else "",
        **dict(zip(CONFIG, config_of(kernel), strict=True)),
        "grid": grid_text(runs.grid),
        "registers": clean.registers,
        "spills": clean.spills,
        "shared bytes": clean.shared_bytes,
        "CTAs per SM": clean.ctas_per_sm,
        "device": launch.device_name,
        "triton_version": kernel.metadata.get("triton_version"),
        "target": kernel.target,
        "records": f"{mode.buffer} {size}, clock {mode.clock_bits}{stores}{barriers}",
        "recorded warps": ",".join(map(str, recorded_warps(launch))),
    }


class ScopeFigures(Struct, frozen=True, eq=False):
    """Figures of one scope in one launch.

    Counts and totals cover all CTAs. ``warp_ns`` and ``warp_cycles`` are totals per warp that ran the scope, 0 if it
    never ran, and ``cta_ns`` is the average time in a CTA of such a warp. ``is_whole``: no records can be missing.
    """

    process: Hashable
    statistics: ScopeStatistics
    tags: Mapping[str, Mapping[int, float | None]]  # median duration by a tag's name and value
    is_whole: bool
    count: int
    total_ns: int | None
    warp_ns: float
    warp_cycles: float
    cta_ns: float


class LaunchFigures(Struct, frozen=True, eq=False):
    """A launch in the warps that are compared, with the statistics of its scopes.

    ``cta_ns`` is the time of all its CTAs together, without the copying of their records, ``net_cta_ns`` the average
    time of a recorded warp in a CTA, without the cost of records. Durations below ``resolution_ns`` are within the cost
    of a record; it is 0 if that is unknown.
    """

    process: Hashable
    timeline: Timeline
    scopes: tuple[ScopeFigures, ...]
    waves: Waves | None
    idle: IdleSms | None
    duration_ns: int
    duration_cycles: float | None
    resolution_ns: float
    cta_ns: int
    net_cta_ns: float


def _figures_of(whole: Timeline, choice: Choice) -> LaunchFigures:
    timeline = whole.chosen(choice)
    launch, ctas, waves = timeline.launch, timeline.all_ctas, waves_of(timeline)
    process = launch.kernel.folder, launch.device
    sums, tags = ScopeSums(timeline), TagSums(timeline.table)
    for block in timeline.blocks():
        sums.add(block)
        tags.add(block)
    ran = sums.statistics()
    is_whole = not (timeline.records_lost or timeline.records_damaged or timeline.ctas_damaged)
    has_partners = (timeline.open_starts + timeline.stray_ends == 0).tolist()
    times, warp_ctas = timeline.ctas_per_recorded, len(timeline.ctas)
    scopes = []
    for index, one in enumerate(ran):
        warps = max(len(one.warps.ids), 1)
        total_ns = None if one.total_ns is None else round(one.total_ns * times)
        scopes.append(
            ScopeFigures(
                process,
                one,
                {tag.name: {row.value: row.p50_ns for row in tag.values} for tag in tags.of(index)},
                is_whole=is_whole and has_partners[index],
                count=round(one.count * times),
                total_ns=total_ns,
                warp_ns=(total_ns or 0) / warps,
                warp_cycles=(one.mean_cycles or 0.0) * one.count * times / warps,
                cta_ns=(one.total_ns or 0) / max(warp_ctas * len(one.warps.ids), 1),
            )
        )
    duration_ns, clock_hz, cost = launch_duration_ns(timeline), timeline.clock.measured_hz, launch.kernel.record_cost
    net_ns = timeline.warp_time_ns - sum(one.subtracted_ns for one in ran)
    return LaunchFigures(
        process=process,
        timeline=timeline,
        scopes=tuple(scopes),
        waves=waves,
        idle=idle_sms_of(ctas, waves.slots_per_sm) if waves else None,
        duration_ns=duration_ns,
        duration_cycles=None if clock_hz is None else duration_ns * clock_hz / 1e9,
        resolution_ns=cost.resolution_ns(timeline.clock.clock_hz) if cost else 0.0,
        cta_ns=int(np.maximum(ctas["pre_final_ns"] - ctas["init_ns"], 0).sum()),
        net_cta_ns=net_ns / max(warp_ctas * len(timeline.warps), 1),
    )


_Figures = TypeVar("_Figures", bound=LaunchFigures | ScopeFigures)
_Value = Callable[[_Figures], float | None]


@dataclass(frozen=True, eq=False)
class Sides(Generic[_Figures]):
    """Figures of the launches in A and in B, or of one scope in each launch."""

    a: tuple[_Figures, ...]
    b: tuple[_Figures, ...]

    @property
    def launches(self) -> tuple[_Figures, ...]:
        """The figures in A, then in B."""
        return (*self.a, *self.b)

    def both(self, value: _Value[_Figures]) -> Both:
        """Return the typical ``value`` of a launch on each side."""
        return Both(typical_value(self.a, value), typical_value(self.b, value))

    def change(self, value: _Value[_Figures], *, floor: float, comparisons: int, step: float = 0.0) -> Change | None:
        """Return the change of a ``value``, as ``change_between`` does."""
        a, b = (_by_process(side, value) for side in (self.a, self.b))
        return change_between(a, b, floor=floor, comparisons=comparisons, step=step)


class LaunchSides(Sides[LaunchFigures]):
    """Figures of a kernel's launches in A and in B."""

    def without_first(self) -> LaunchSides:
        """Return the launches without each process's first one, which fills the caches, if two others remain."""
        return LaunchSides(_without_first(self.a), _without_first(self.b))

    def of_scope(self, a: int, b: int) -> Sides[ScopeFigures]:
        """Return the figures of scope ``a`` of A and ``b`` of B."""
        return Sides(tuple(one.scopes[a] for one in self.a), tuple(one.scopes[b] for one in self.b))

    @cached_property
    def duration_ns(self) -> Both:
        """Typical duration of a launch on each side, in nanoseconds."""
        return self.both(lambda launch: launch.duration_ns)

    @cached_property
    def duration_cycles(self) -> Both:
        """Typical duration of a launch on each side, in SM cycles."""
        return self.both(lambda launch: launch.duration_cycles)


def sides_of(a: KernelRuns, b: KernelRuns) -> tuple[LaunchSides, tuple[int, ...] | None]:
    """Return the figures of both sides' launches and, if sides recorded other warps, those common to both."""
    warps_a, warps_b = a.timelines[0].warps, b.timelines[0].warps
    if (len(warps_a) == a.kernel.num_warps and len(warps_b) == b.kernel.num_warps) or warps_a == warps_b:
        both, choice = None, EVERYTHING
    else:
        both = tuple(sorted({*warps_a} & {*warps_b}))
        choice = Choice(warps=NumberSet.of(both))
    return LaunchSides(*(tuple(_figures_of(one, choice) for one in side.timelines) for side in (a, b))), both


def _without_first(launches: tuple[LaunchFigures, ...]) -> tuple[LaunchFigures, ...]:
    later = Counter(one.process for one in launches if one.timeline.launch.index)
    return tuple(one for one in launches if one.timeline.launch.index or later[one.process] < 2)


def typical_value(side: Sequence[_Figures], value: _Value[_Figures]) -> float | None:
    """Return the typical ``value`` of a side's launches."""
    return typical(_by_process([one for one in side if value(one) is not None], value))


def _by_process(side: Sequence[_Figures], value: _Value[_Figures]) -> list[Reals]:
    """Return the values of each process's launches in their order; an unknown value counts as 0."""
    found: defaultdict[Hashable, list[float]] = defaultdict(list)
    for one in side:
        found[one.process].append(value(one) or 0.0)
    return [np.array(values, dtype=np.float64) for values in found.values()]
