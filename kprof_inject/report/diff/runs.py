"""Launches to compare, one variant of a kernel with one grid on one side, and their settings that differ.

If both sides have several ranks, the launches are those of one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Kernel, Launch
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.kernel_names import CONFIG, distinct_names
from kprof_inject.timeline.choice import EVERYTHING, Choice, NumberSet
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.comparison import MIN_LAUNCHES
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.scope_statistics import ScopeStatistics, TagStatistics, scope_statistics, tag_statistics
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import usable_times
from kprof_inject.timeline.waves import IdleSms, Waves, idle_of, launch_duration_ns, waves_of


class KernelRuns(Struct, frozen=True, eq=False):
    """Launches of one variant of a kernel with one grid, on one side."""

    name: str
    """Name of the kernel, or its name on the other side; empty if unknown (a Proton buffer)."""
    timelines: tuple[Timeline, ...]
    """At least one, in the order of the launches."""
    rank: int | None = None
    """Rank of the process, if ranks are compared one by one."""

    @property
    def title(self) -> str:
        """Name of the kernel, with the rank if ranks are compared one by one."""
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

    def clean_times_ns(self, *, with_launching: bool = True) -> list[NDArray[np.float64]]:
        """Return the times without records, an array for each process that has some.

        Captures that share the times of one process count once.
        """
        return self._samples(clean.times_ns for clean in self._clean(with_launching))

    def replayed_times_ns(self, *, with_launching: bool = True) -> list[NDArray[np.float64]]:
        """Return the times of replays without records, an array for each process that has some."""
        return self._samples(clean.replayed_ns for clean in self._clean(with_launching))

    @property
    def has_empty_times(self) -> bool:
        """True if the launch overhead in these times was measured."""
        return all(clean.has_empty_times for clean in self._clean(True))

    def _clean(self, with_launching: bool) -> Iterator[KernelResources]:
        for timeline in self.timelines:
            clean = timeline.launch.kernel.clean
            yield clean if with_launching else clean.without_launching()

    def _samples(self, times_ns: Iterable[tuple[float, ...] | None]) -> list[NDArray[np.float64]]:
        samples = [usable_times(times) for times in dict.fromkeys(times or () for times in times_ns)]
        return [sample for sample in samples if sample.size]


def has_launching(a: KernelRuns, b: KernelRuns) -> bool:
    """Return whether ``comparable_clean_times_ns`` include the launch overhead."""
    return not (a.has_empty_times and b.has_empty_times)


def comparable_clean_times_ns(
    a: KernelRuns, b: KernelRuns
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """Return the times without records of both sides, measured the same way.

    They are times of the program's own launches, or of replays if a side has too few of those. The launch overhead is
    subtracted if it is known on both sides.
    """
    with_launching = has_launching(a, b)
    own = a.clean_times_ns(with_launching=with_launching), b.clean_times_ns(with_launching=with_launching)
    replayed = tuple(side.replayed_times_ns(with_launching=with_launching) for side in (a, b))
    too_few = any(sum(map(len, side)) < MIN_LAUNCHES for side in own)
    return (replayed[0], replayed[1]) if too_few and all(replayed) else own


def runs_of(timelines: Iterable[Timeline], renamed: Mapping[str, str], *, by_rank: bool = False) -> list[KernelRuns]:
    """Group one side's launches by kernel, variant and grid, in the order of each group's first launch.

    ``renamed`` maps names of kernels or variants to their names on the other side. With ``by_rank``, each rank has
    groups of its own.
    """
    found: dict[Hashable, list[Timeline]] = {}
    for timeline in timelines:
        launch = timeline.launch
        rank = launch.place.rank if by_rank else None
        found.setdefault((rank, launch.kernel.variant, launch.grid, timeline.table), []).append(timeline)
    return [
        KernelRuns(_name(runs[0].launch, renamed), tuple(runs), runs[0].launch.place.rank if by_rank else None)
        for runs in found.values()
    ]


def _name(launch: Launch, renamed: Mapping[str, str]) -> str:
    kernel = launch.kernel
    # Without files, the kernel is only named after its Proton buffer.
    own = kernel.name if kernel.folder.is_dir() else ""
    return renamed.get(kernel.variant, renamed.get(kernel.name, own))


class Difference(Struct, frozen=True):
    """Property ``what`` with its differing values in A and in B."""

    what: str
    a: str
    b: str

    def __str__(self) -> str:
        """Return the difference as ``num_warps 4 → 8``."""
        return f"{self.what} {self.a} → {self.b}"


def config_of(kernel: Kernel) -> tuple[object, ...]:
    """Return a kernel's values of the options in ``CONFIG``."""
    return tuple(kernel.metadata.get(name) for name in CONFIG)


def distinct_runs(side: Sequence[KernelRuns]) -> list[str]:
    """Return a name for each that distinguishes it from the others."""
    return distinct_names([(runs.kernel, _facts(runs)) for runs in side])


def _facts(runs: KernelRuns) -> dict[str, str]:
    rank = {} if runs.rank is None else {"rank": str(runs.rank)}
    return {name: text for name in (*CONFIG, "grid") if (text := SETTINGS[name](runs))} | rank


def grid_text(grid: tuple[int, int, int]) -> str:
    """Return a grid as ``16x4x1``."""
    return "x".join(map(str, grid))


def differences(a: KernelRuns, b: KernelRuns) -> tuple[Difference, ...]:
    """Return the settings that differ, in the user's terms, and other options that both sides' Tritons have.

    A setting that is unknown on either side does not differ.
    """
    names = (a.kernel.metadata.keys() & b.kernel.metadata.keys()) - _NO_OPTIONS - SETTINGS.keys()
    texts = SETTINGS | {name: _metadata(name) for name in sorted(names)}
    rows = [(what, text(a), text(b)) for what, text in texts.items()]
    return tuple(Difference(*row) for row in rows if row[1] != row[2] and "" not in row[1:])


# Triton metadata that are facts of a build, or options that recording sets.
_NO_OPTIONS = frozenset(
    {"arch", "backend_name", "hash", "name", "shared", "tmem_size", "warp_size"}
    | {"global_scratch_align", "global_scratch_size", "profile_scratch_align", "profile_scratch_size"}
    | {"extern_libs", "instrumentation_mode", "ir_override"}
)


def _metadata(name: str) -> Callable[[KernelRuns], str]:
    def text(runs: KernelRuns) -> str:
        value = runs.kernel.metadata.get(name)
        return "" if value is None else str(value)

    return text


def _warp_size(runs: KernelRuns) -> str:
    target = runs.kernel.metadata.get("target")
    return str(target.get("warp_size", "")) if isinstance(target, dict) else ""


def _cost(name: str) -> Callable[[KernelRuns], str]:
    """Return a function for a resource without records, where known on its side."""

    def text(runs: KernelRuns) -> str:
        value = getattr(runs.kernel.clean, name)
        return "" if value is None else str(value)

    return text


def _mode(mode: Mode) -> str:
    size = f"{mode.buffer_bytes} bytes" if mode.buffer_bytes else "auto"
    stores = ", stores moved" if mode.sched_stores else ""
    barriers = ", scheduling barriers" if mode.sched_barriers else ""
    return f"{mode.buffer} {size}, clock {mode.clock_bits}{stores}{barriers}"


SETTINGS: dict[str, Callable[[KernelRuns], str]] = {
    "kernel": lambda runs: runs.kernel.name if runs.name else "",
    **{name: _metadata(name) for name in CONFIG},
    "grid": lambda runs: grid_text(runs.grid),
    "registers": _cost("registers"),
    "spills": _cost("spills"),
    "shared bytes": _cost("shared_bytes"),
    "CTAs per SM": _cost("ctas_per_sm"),
    "device": lambda runs: runs.timelines[0].launch.device_name,
    "triton_version": _metadata("triton_version"),
    "target": lambda runs: runs.kernel.target,
    "warp size": _warp_size,
    "records": lambda runs: _mode(runs.kernel.mode),
    "recorded warps": lambda runs: ",".join(map(str, recorded_warps(runs.timelines[0].launch))),
}


class ScopeFigures(Struct, frozen=True):
    """Figures of one scope in one launch; times are None if no start of the scope has its end."""

    count: int
    total_ns: int | None
    total_cycles: float
    mean_ns: float | None
    mean_cycles: float | None
    p50_ns: float | None
    share: float | None
    warps: tuple[int, ...]
    """Warps of a CTA in which it ran."""
    whole: bool
    """True if none of its records can be missing."""
    cta_ns: float | None = None
    """Average time in a CTA of a warp in which it ran."""
    tags: tuple[TagStatistics, ...] = ()

    def median_ns(self, tag: str, value: int) -> float | None:
        """Return the median duration with this value of a tag; None if unknown."""
        for statistics in self.tags:
            for row in statistics.values:
                if statistics.name == tag and row.value == value:
                    return row.p50_ns
        return None


class LaunchFigures(Struct, frozen=True):
    """Figures of a launch that are compared."""

    process: Hashable
    """Equal for launches of one process and capture on one device."""
    first: bool
    """True for the first launch of this variant in its process."""
    duration_ns: int
    clock_hz: float | None
    """None if it was not measured."""
    timed: bool
    """True if any timer was read."""
    timer_step_ns: int
    ctas: int
    cta_ns: int
    """Time of all its CTAs together, without the copying of their records."""
    net_cta_ns: float
    """Average time of a recorded warp in a CTA, without the cost of records."""
    waves: Waves | None
    idle: IdleSms | None
    records_missing: int
    record_cost_known: bool
    resolution_ns: float
    """Shorter durations are within the cost of a record; 0 if that is unknown."""
    scopes: tuple[ScopeFigures, ...]


def comparable_figures(
    a: KernelRuns, b: KernelRuns
) -> tuple[tuple[LaunchFigures, ...], tuple[LaunchFigures, ...], tuple[int, ...] | None]:
    """Return the figures of both sides' launches, and the warps that they cover; None for all recorded warps.

    If a side recorded only some warps, the figures cover the warps that both sides recorded.
    """
    warps_a, warps_b = a.timelines[0].warps, b.timelines[0].warps
    if (len(warps_a) == a.kernel.num_warps and len(warps_b) == b.kernel.num_warps) or warps_a == warps_b:
        both, choice = None, EVERYTHING
    else:
        both = tuple(sorted({*warps_a} & {*warps_b}))
        choice = Choice(warps=NumberSet.of(both))
    figures_a, figures_b = (tuple(_figures_of(timeline, choice) for timeline in runs.timelines) for runs in (a, b))
    return figures_a, figures_b, both


def _figures_of(whole: Timeline, choice: Choice) -> LaunchFigures:
    timeline = whole if choice == EVERYTHING else whole.chosen(choice)
    launch, clock, cost = timeline.launch, timeline.clock, timeline.launch.kernel.record_cost
    missing = timeline.records_lost + timeline.records_damaged
    without_partner = (timeline.open_starts + timeline.stray_ends).tolist()
    ctas: NDArray[np.void] = timeline.all_ctas
    ctas_ns: NDArray[np.int64] = ctas["pre_final_ns"] - ctas["init_ns"]
    waves, ran = waves_of(timeline), scope_statistics(timeline)
    net_ns = timeline.warp_time_ns - sum(statistics.subtracted_ns for statistics in ran)
    return LaunchFigures(
        process=(launch.kernel.folder, launch.device),
        first=launch.index == 0,
        duration_ns=launch_duration_ns(timeline),
        clock_hz=clock.measured_hz,
        timed=clock.source != ClockSource.NOMINAL,
        timer_step_ns=clock.timer_step_ns,
        ctas=len(ctas),
        cta_ns=int(np.maximum(ctas_ns, 0).sum()),
        net_cta_ns=net_ns / max(len(timeline.ctas) * len(timeline.warps), 1),
        waves=waves,
        idle=idle_of(timeline, waves),
        records_missing=missing,
        record_cost_known=cost is not None,
        resolution_ns=cost.resolution_ns(clock.clock_hz) if cost else 0.0,
        scopes=tuple(
            _scope(statistics, tags, timeline, whole=not missing and not alone and not timeline.ctas_damaged)
            for statistics, tags, alone in zip(ran, tag_statistics(timeline), without_partner, strict=True)
        ),
    )


def _scope(
    statistics: ScopeStatistics, tags: tuple[TagStatistics, ...], timeline: Timeline, *, whole: bool
) -> ScopeFigures:
    ctas, times = len(timeline.ctas), timeline.ctas_per_recorded
    return ScopeFigures(
        count=round(statistics.count * times),
        total_ns=None if statistics.total_ns is None else round(statistics.total_ns * times),
        total_cycles=(statistics.mean_cycles or 0.0) * statistics.count * times,
        mean_ns=statistics.mean_ns,
        mean_cycles=statistics.mean_cycles,
        p50_ns=statistics.p50_ns,
        share=statistics.share,
        warps=tuple(statistics.warps.ids.tolist()),
        whole=whole,
        cta_ns=(statistics.total_ns or 0) / max(ctas * len(statistics.warps.ids), 1),
        tags=tags,
    )
