"""What is compared: launches of one variant of a kernel with one grid, of one side, and in what two sides differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.model import Kernel, Launch
from kprof_inject.capture.resources import KernelResources
from kprof_inject.report.kernel_names import CONFIG, distinct_names
from kprof_inject.timeline.choice import EVERYTHING, Choice, NumberSet
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.comparison import MIN_LAUNCHES
from kprof_inject.timeline.idle import IdleSms, idle_of
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.scope_statistics import ScopeStatistics, scope_statistics
from kprof_inject.timeline.tag_statistics import TagStatistics, tag_statistics
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import usable_times
from kprof_inject.timeline.waves import Waves, launch_duration_ns, waves_of


@dataclass(frozen=True, slots=True, eq=False)
class KernelRuns:
    """The launches of one variant of a kernel with one grid, of one side."""

    name: str
    """The kernel's, or what it is called on the other side; empty if nothing tells (a Proton buffer)."""
    timelines: tuple[Timeline, ...]
    """At least one, in the order of the launches."""

    @property
    def kernel(self) -> Kernel:
        return self.timelines[0].launch.kernel

    @property
    def is_of_buffer(self) -> bool:
        """Whether it is what a buffer alone tells, a launch in each: there are no files of its kernel."""
        return not self.kernel.folder.is_dir()

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.timelines[0].launch.grid

    @property
    def launches_in_program(self) -> float:
        """How often a process launched it, on average; if that is not known, how many of these were captured."""
        processes = {timeline.launch.kernel.folder: timeline.launch.kernel.launches for timeline in self.timelines}
        counts = [count for count in processes.values() if count is not None]
        return sum(counts) / len(counts) if counts else len(self.timelines)

    def clean_times_ns(self, *, with_launching: bool = True) -> list[NDArray[np.float64]]:
        """The times without records, an array for each process that took some. Several captures may have been made with
        those of one."""
        return self._samples(clean.times_ns for clean in self._clean(with_launching))

    def replayed_times_ns(self, *, with_launching: bool = True) -> list[NDArray[np.float64]]:
        """The same of the kernel launched again, once more for each process."""
        return self._samples(clean.replayed_ns for clean in self._clean(with_launching))

    @property
    def has_empty_times(self) -> bool:
        """True if what launching takes of these times was measured."""
        return all(clean.has_empty_times for clean in self._clean(True))

    def _clean(self, with_launching: bool) -> Iterator[KernelResources]:
        for timeline in self.timelines:
            clean = timeline.launch.kernel.clean
            yield clean if with_launching else clean.without_launching()

    def _samples(self, times_ns: Iterable[tuple[float, ...] | None]) -> list[NDArray[np.float64]]:
        samples = [usable_times(times) for times in dict.fromkeys(times or () for times in times_ns)]
        return [sample for sample in samples if sample.size]


def has_launching(a: KernelRuns, b: KernelRuns) -> bool:
    """Return whether ``comparable_clean_times_ns`` hold what launching takes."""
    return not (a.has_empty_times and b.has_empty_times)


def comparable_clean_times_ns(
    a: KernelRuns, b: KernelRuns
) -> tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]:
    """The times without records of both sides, taken alike: of the program's own launches, or of replays where these
    are too few on a side. What launching takes is subtracted where it is known of both."""
    with_launching = has_launching(a, b)
    own = a.clean_times_ns(with_launching=with_launching), b.clean_times_ns(with_launching=with_launching)
    replayed = tuple(side.replayed_times_ns(with_launching=with_launching) for side in (a, b))
    too_few = any(sum(map(len, side)) < MIN_LAUNCHES for side in own)
    return (replayed[0], replayed[1]) if too_few and all(replayed) else own


def runs_of(timelines: Iterable[Timeline], renamed: Mapping[str, str]) -> list[KernelRuns]:
    """The launches of one side by kernel, variant and grid, in the order of the first of each. ``renamed`` are names of
    kernels, or of variants, with what they are called on the other side."""
    found: dict[Hashable, list[Timeline]] = {}
    for timeline in timelines:
        launch = timeline.launch
        found.setdefault((launch.kernel.variant, launch.grid, timeline.table), []).append(timeline)
    return [KernelRuns(_name(runs[0].launch, renamed), tuple(runs)) for runs in found.values()]


def _name(launch: Launch, renamed: Mapping[str, str]) -> str:
    kernel = launch.kernel
    # A kernel of which there are no files is called what its Proton buffer is.
    own = kernel.name if kernel.folder.is_dir() else ""
    return renamed.get(kernel.variant, renamed.get(kernel.name, own))


@dataclass(frozen=True, slots=True)
class Difference:
    """``what`` is one thing in A and another in B; "-" where it is not known."""

    what: str
    a: str
    b: str

    def __str__(self) -> str:
        return f"{self.what} {self.a} → {self.b}"


def config_of(kernel: Kernel) -> tuple[object, ...]:
    return tuple(kernel.metadata.get(name) for name in CONFIG)


def distinct_runs(side: Sequence[KernelRuns]) -> list[str]:
    """What each is called so that it can be told from the others."""
    return distinct_names([(runs.kernel, _facts(runs)) for runs in side])


def _facts(runs: KernelRuns) -> dict[str, str]:
    return {name: text for name in (*CONFIG, "grid") if (text := SETTINGS[name](runs))}


def grid_text(grid: tuple[int, int, int]) -> str:
    return "x".join(map(str, grid))


def differences(a: KernelRuns, b: KernelRuns) -> tuple[Difference, ...]:
    """What is not the same on both sides, as the reader knows it: settings, and other options of one Triton. What is
    unknown on either side differs in nothing."""
    texts = [(what, text(a), text(b)) for what, text in SETTINGS.items()]
    if _metadata("triton_version")(a) == _metadata("triton_version")(b):
        names = (a.kernel.metadata.keys() & b.kernel.metadata.keys()) - _NO_OPTIONS - SETTINGS.keys()
        texts += [(name, _metadata(name)(a), _metadata(name)(b)) for name in sorted(names)]
    return tuple(Difference(*row) for row in texts if row[1] != row[2] and "" not in row[1:])


# Of Triton's metadata: facts of a build, and options that recording sets.
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
    """Without records, where that is known on this side."""

    def text(runs: KernelRuns) -> str:
        value = getattr(runs.kernel.clean, name)
        return "" if value is None else str(value)

    return text


def _mode(mode: Mode) -> str:
    size = f"{mode.buffer_bytes} bytes" if mode.buffer_bytes else "auto"
    stores = ", stores moved" if mode.sched_stores else ""
    barriers = ", scheduling barriers" if mode.sched_barriers else ""
    return f"{mode.buffer} {size}, clock {mode.clock_bits}{stores}{barriers}"


def _warps(runs: KernelRuns) -> str:
    return ",".join(map(str, recorded_warps(runs.timelines[0].launch)))


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
    "recorded warps": _warps,
}


@dataclass(frozen=True, slots=True)
class ScopeFigures:
    """One scope of one launch. Times of a scope of which no start has its end are None."""

    count: int
    total_ns: int | None
    total_cycles: float
    mean_ns: float | None
    mean_cycles: float | None
    p50_ns: float | None
    share: float | None
    warps: tuple[int, ...]
    """Those of a CTA in which it ran."""
    whole: bool
    """No record of it can be missing."""
    cta_ns: float | None = None
    """What a warp in which it ran spends in it, in a CTA, on average."""
    tags: tuple[TagStatistics, ...] = ()

    def median_ns(self, tag: str, value: int) -> float | None:
        """Of all that ran with a value of a tag; None if that is not known."""
        rows = (row for one in self.tags if one.name == tag for row in one.values if row.value == value)
        return next((row.p50_ns for row in rows), None)


@dataclass(frozen=True, slots=True)
class LaunchFigures:
    """What is taken from a launch to compare it."""

    process: Hashable
    """Launches for which this is equal were made by the same process of the same capture, on one device."""
    first: bool
    """The first launch that its process made of this variant."""
    duration_ns: int
    clock_hz: float | None
    """None if it was not measured."""
    timed: bool
    """Whether any timer was read."""
    timer_step_ns: int
    ctas: int
    cta_ns: int
    """What its CTAs took, all together, without the copying of their records."""
    net_cta_ns: float
    """What a recorded warp of a CTA took on average, without what records cost."""
    waves: Waves | None
    idle: IdleSms | None
    records_missing: int
    record_cost_known: bool
    resolution_ns: float
    """Durations below it are within what a record costs; 0 if that is unknown."""
    scopes: tuple[ScopeFigures, ...]


def comparable_figures(
    a: KernelRuns, b: KernelRuns
) -> tuple[tuple[LaunchFigures, ...], tuple[LaunchFigures, ...], tuple[int, ...] | None]:
    """The launches of both sides; and of which warps, None if of all that recorded. Where one side recorded some warps
    alone, it is those that both did."""
    warps_a, warps_b = a.timelines[0].warps, b.timelines[0].warps
    if (len(warps_a) == a.kernel.num_warps and len(warps_b) == b.kernel.num_warps) or warps_a == warps_b:
        both, choice = None, EVERYTHING
    else:
        both = tuple(sorted({*warps_a} & {*warps_b}))
        choice = Choice(warps=NumberSet.of(both))
    figures_a, figures_b = (tuple(_figures_of(one, choice) for one in runs.timelines) for runs in (a, b))
    return figures_a, figures_b, both


def _figures_of(whole: Timeline, choice: Choice) -> LaunchFigures:
    timeline = whole if choice == EVERYTHING else whole.chosen(choice)
    launch, clock, cost = timeline.launch, timeline.clock, timeline.launch.kernel.record_cost
    missing = timeline.records_lost + timeline.records_damaged
    without_partner = (timeline.open_starts + timeline.stray_ends).tolist()
    ctas_ns: NDArray[np.int64] = timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"]
    waves, ran = waves_of(timeline), scope_statistics(timeline)
    net_ns = timeline.warp_time_ns - sum(statistics.subtracted_ns for statistics in ran)
    return LaunchFigures(
        process=(launch.kernel.folder, launch.device),
        first=launch.index == 0,
        duration_ns=launch_duration_ns(timeline),
        clock_hz=clock.clock_hz if clock.source == ClockSource.FITTED else None,
        timed=clock.source != ClockSource.NOMINAL,
        timer_step_ns=clock.timer_step_ns,
        ctas=len(timeline.ctas),
        cta_ns=int(np.maximum(ctas_ns, 0).sum()),
        net_cta_ns=net_ns / max(len(timeline.ctas) * len(timeline.warps), 1),
        waves=waves,
        idle=idle_of(timeline, waves),
        records_missing=missing,
        record_cost_known=cost is not None,
        resolution_ns=cost.resolution_ns(clock.clock_hz) if cost else 0.0,
        scopes=tuple(
            _scope(statistics, tags, len(timeline.ctas), whole=not missing and not alone and not timeline.ctas_damaged)
            for statistics, tags, alone in zip(ran, tag_statistics(timeline), without_partner, strict=True)
        ),
    )


def _scope(statistics: ScopeStatistics, tags: tuple[TagStatistics, ...], ctas: int, *, whole: bool) -> ScopeFigures:
    return ScopeFigures(
        count=statistics.count,
        total_ns=statistics.total_ns,
        total_cycles=(statistics.mean_cycles or 0.0) * statistics.count,
        mean_ns=statistics.mean_ns,
        mean_cycles=statistics.mean_cycles,
        p50_ns=statistics.p50_ns,
        share=statistics.share,
        warps=tuple(statistics.warps.ids.tolist()),
        whole=whole,
        cta_ns=(statistics.total_ns or 0) / max(ctas * len(statistics.warps.ids), 1),
        tags=tags,
    )
