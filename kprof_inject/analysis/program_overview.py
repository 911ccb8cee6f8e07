"""Overview of a capture's kernels: how much of the program's GPU time each takes, and how much of it could be won.

Shares are of the whole program even if only some kernels or launches of the capture were chosen: the number of launches
of a kernel, and usually their duration, is known without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from msgspec import Struct, field, structs

from kprof_inject.analysis.advice import UNKNOWN_GAIN, Gain, gain_in
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.capture_files import read_optional
from kprof_inject.capture.gpu_work import GpuWork, GpuWorkRecord
from kprof_inject.capture.model import Kernel, Launch, several_ranks
from kprof_inject.capture.schema import Grid
from kprof_inject.timeline.trust import median_time_ns
from kprof_inject.timeline.waves import recorded_duration_ns

_EVERY_KERNEL = "*"
_MAX_JUDGED = 24
"""Kernels whose gain is determined: it takes up to some seconds for each."""


class KernelOverview(Struct, frozen=True):
    """A kernel in all its compiled variants."""

    name: str
    variants: int
    reports: tuple[LaunchAnalysis, ...]
    """Its launches among the chosen ones."""
    captured: int
    """Number of its launches in the capture, chosen or not."""
    launches: int | None
    """Number of its launches in the program; None if that is unknown for any variant."""
    time_ns: float
    """Median duration of its launches, by the device's timer."""
    whole_ns: float
    """Time of all its launches in the program; if their number is unknown, of those in the capture."""
    share: float | None
    """Its part of the time of all launches of the program, chosen or not, and of what else the GPU did if that is
    known, 0 to 1; None if the number of launches is unknown for any kernel."""
    middles: tuple[LaunchAnalysis, ...]
    """The launch of median duration of each variant and process, those of the variant that takes most time first."""
    gain: Gain
    """What could be won in that launch; unknown if other kernels take more time."""

    @property
    def middle(self) -> LaunchAnalysis:
        """The launch of median duration, of the variant that takes most time."""
        return self.middles[0]

    @property
    def to_win_ns(self) -> float | None:
        """Time of all its launches that could be won at most; None if that is unknown."""
        return None if self.gain.share is None else self.gain.share * self.whole_ns

    @property
    def known_launches(self) -> int:
        """Number of its launches in the program; if that is unknown, in the capture."""
        return self.captured if self.launches is None else self.launches

    @property
    def time_by_rank_ns(self) -> dict[int, float]:
        """Median duration of the launches of each rank; empty if the chosen ones are not of several ranks."""
        return {
            rank: median(report.duration_ns for report in self.reports if report.launch.place.rank == rank)
            for rank in several_ranks(report.launch.place for report in self.reports)
        }

    @property
    def slowest_first(self) -> list[LaunchAnalysis]:
        """The chosen launches, the slowest first."""
        return sorted(self.reports, key=lambda report: -report.duration_ns)

    def to_json(self) -> dict[str, Any]:
        """Return its part in the program as JSON values."""
        return {
            "share": self.share,
            "launches": self.launches,
            "launches_captured": self.captured,
            "to_win": self.gain.share,
            "to_win_ns": self.to_win_ns,
            "to_win_by": self.gain.by,
        }


class Program(Struct, frozen=True):
    """The kernels of a program, those with most to win first, and what else its GPU did, the longest first.

    Others are kernels that were not recorded, copies and fills; there are none if that was not traced.
    """

    kernels: tuple[KernelOverview, ...]
    others: tuple[GpuWork, ...]
    whole_ns: float | None
    """Time of all that shares are parts of; None if the number of launches is unknown for any kernel."""


class ProgramFinding(Finding, frozen=True, kw_only=True):
    """A finding with its launch and kernel, and its weight in the whole program."""

    kernel: str
    launch: int
    share_of_program: float | None
    """Upper bound of the gain, as part of the time of all launches of the program, if the finding is true of all
    launches of its kernel; None if the kernel's part is unknown."""


def findings_in(reports: Sequence[LaunchAnalysis]) -> list[ProgramFinding]:
    """Return the findings of all launches, sorted by the largest possible gain in the program's time."""
    found: list[tuple[float, ProgramFinding]] = []
    for kernel in overview(reports):
        for report in kernel.reports:
            for finding in report.findings:
                own = structs.asdict(finding)
                share = None if kernel.share is None else kernel.share * finding.share
                placed = ProgramFinding(**own, kernel=kernel.name, launch=report.launch.index, share_of_program=share)
                found.append((kernel.whole_ns * finding.share, placed))
    # The sort is stable: findings with equal gains stay in the order of their launches and rules.
    return [placed for _, placed in sorted(found, key=lambda one: -one[0])]


def overview(reports: Sequence[LaunchAnalysis]) -> tuple[KernelOverview, ...]:
    """Return the kernels of the program of these reports."""
    return program_of(reports).kernels


def program_of(reports: Sequence[LaunchAnalysis]) -> Program:
    """Return the program of the reports, with its kernels sorted by the time that could be won.

    If that is unknown, all of a kernel's time counts. It is only determined for the kernels that take most time; the
    others follow, sorted by time. Kernels with the same name count as one. Raises ``KprofError`` if the file of other
    work is damaged.
    """
    variants = _variants(reports)
    shown = dict.fromkeys(report.launch.kernel.name for report in reports)
    is_counted = all(variant.kernel.launches is not None for variant in variants)
    if not is_counted:
        # Without counts there are no shares, so the other kernels are not needed.
        variants = [variant for variant in variants if variant.name in shown]
    weights_ns = [variant.weight_ns for variant in variants]
    others = _other_work(reports)
    known_ns = [weight_ns for weight_ns in weights_ns if weight_ns is not None]
    whole_ns = sum(known_ns) + sum(work.total_ns for work in others)
    has_shares = is_counted and whole_ns > 0 and len(known_ns) == len(weights_ns)
    share_of_ns = whole_ns if has_shares else None
    by_name: dict[str, list[tuple[_Variant, float]]] = {name: [] for name in shown}
    for variant, weight_ns in zip(variants, weights_ns, strict=True):
        if variant.name in shown:
            by_name[variant.name].append((variant, weight_ns or 0.0))
    kernels = [_overview(name, group, share_of_ns) for name, group in by_name.items()]
    kernels.sort(key=lambda kernel: -kernel.whole_ns)
    judged = [structs.replace(kernel, gain=gain_in(kernel.middle)) for kernel in kernels[:_MAX_JUDGED]]
    judged.sort(key=lambda one: -(one.whole_ns if one.to_win_ns is None else one.to_win_ns))
    return Program((*judged, *kernels[_MAX_JUDGED:]), others, share_of_ns)


def _other_work(reports: Sequence[LaunchAnalysis]) -> tuple[GpuWork, ...]:
    launch = reports[0].launch if reports else None
    if launch is None or launch.capture_folder is None:
        return ()
    record = read_optional(launch.capture_folder, GpuWorkRecord)
    recorded = {one.kernel.name for one in (*(report.launch for report in reports), *reports[0].captured)}
    return tuple(work for work in record.work if work.name not in recorded) if record else ()


def glob_of(kernel: KernelOverview, reports: Sequence[LaunchAnalysis]) -> str:
    """Return the glob that selects a kernel of these reports among those of the program.

    It is the kernel's name if the capture has other kernels, chosen or not; otherwise the glob by which kernels were
    captured. Empty if the kernel is the only one, as far as is known.
    """
    launches = [report.launch for report in reports] + [launch for report in reports[:1] for launch in report.captured]
    if len({launch.kernel.name for launch in launches}) > 1:
        return kernel.name
    process = kernel.middle.launch.process
    return "" if process is None or process.kernel == _EVERY_KERNEL else process.kernel


class _Variant(Struct):
    """A compiled variant in one process: its chosen launches, and the others of the capture."""

    name: str
    kernel: Kernel
    reports: list[LaunchAnalysis] = field(default_factory=list)
    others: list[Launch] = field(default_factory=list)

    @property
    def captured(self) -> int:
        return len(self.reports) + len(self.others)

    @property
    def weight_ns(self) -> float | None:
        """Time of all its launches in the program, without records if that time is known.

        If the number of launches is unknown: time of the chosen ones in the capture. None if no duration is known.
        """
        chosen_ns = [report.duration_ns for report in self.reports]
        if self.kernel.launches is None:
            return median(chosen_ns) * len(chosen_ns) if chosen_ns else None
        if self.kernel.grids:
            return time_of_grids_ns(self.kernel)
        time_ns = median_time_ns(self.kernel.clean.without_launching())
        if time_ns is None:
            others_ns = map(recorded_duration_ns, self.others)
            known_ns = [*chosen_ns, *(one_ns for one_ns in others_ns if one_ns is not None)]
            time_ns = median(known_ns) if known_ns else None
        return None if time_ns is None else self.kernel.launches * time_ns


def time_of_grids_ns(kernel: Kernel) -> float | None:
    """Return the time of a kernel's launches in ns, without records and what launching takes; None if unknown.

    A grid of which no launch was timed is estimated from the one with the nearest number of CTAs.
    """
    times_ns: dict[Grid, float] = {}
    for one in kernel.grids:
        clean = structs.replace(kernel.clean, times_ns=one.clean_ns, replayed_ns=None)
        if (time_ns := median_time_ns(clean.without_launching())) is not None:
            times_ns[one.grid] = time_ns
    if not times_ns and (time_ns := median_time_ns(kernel.clean.without_launching())) is not None:
        # Of the main grid, which comes first.
        times_ns[kernel.grids[0].grid] = time_ns
    if not times_ns:
        return None
    return sum(one.launches * _estimate_ns(times_ns, one.grid) for one in kernel.grids)


def _estimate_ns(times_ns: Mapping[Grid, float], grid: Grid) -> float:
    if grid in times_ns:
        return times_ns[grid]
    nearest = min(times_ns, key=lambda known: abs(np.log(prod(known) / prod(grid))))
    # More CTAs take longer in proportion at most; fewer may take as long, because one CTA does.
    return times_ns[nearest] * max(prod(grid) / prod(nearest), 1.0)


def middle_of(reports: Iterable[LaunchAnalysis]) -> LaunchAnalysis:
    """Return the launch of median duration, of two the shorter."""
    ordered = sorted(reports, key=lambda report: report.duration_ns)
    return ordered[(len(ordered) - 1) // 2]


def _variants(reports: Sequence[LaunchAnalysis]) -> list[_Variant]:
    # A process has one folder for each variant, however often it launches it.
    found: dict[Path, _Variant] = {}
    for report in reports:
        kernel = report.launch.kernel
        found.setdefault(kernel.folder, _Variant(kernel.name, kernel)).reports.append(report)
    chosen = {(report.launch.kernel.folder, report.launch.index) for report in reports}
    captured = {id(report.captured): report.captured for report in reports}
    for launch in (launch for launches in captured.values() for launch in launches):
        kernel = launch.kernel
        if (kernel.folder, launch.index) not in chosen:
            found.setdefault(kernel.folder, _Variant(kernel.name, kernel)).others.append(launch)
    return list(found.values())


def _overview(name: str, variants: Sequence[tuple[_Variant, float]], whole_ns: float | None) -> KernelOverview:
    """Merge the variants of one kernel.

    Each variant comes with its part of ``whole_ns``, the time of the program, which is None if unknown.
    """
    reports = [report for variant, _ in variants for report in variant.reports]
    counts = [variant.kernel.launches for variant, _ in variants]
    kernel_ns = sum(weight_ns for _, weight_ns in variants)
    shown = sorted((one for one in variants if one[0].reports), key=lambda one: -one[1])
    return KernelOverview(
        name=name,
        variants=len({report.launch.kernel.variant for report in reports}),
        reports=tuple(reports),
        captured=sum(variant.captured for variant, _ in variants),
        launches=sum(count for count in counts if count is not None) if None not in counts else None,
        time_ns=median(report.duration_ns for report in reports),
        whole_ns=kernel_ns,
        share=None if whole_ns is None else kernel_ns / whole_ns,
        middles=tuple(middle_of(variant.reports) for variant, _ in shown),
        gain=UNKNOWN_GAIN,
    )
