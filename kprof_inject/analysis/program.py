"""The launches to report on, by kernel: how much of the program's GPU time each takes, and how much could be won.

Shares are of the whole program even if only some kernels or launches of the capture were chosen: the number of launches
of a kernel, and usually their duration, is known without decoding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from math import log, prod
from pathlib import Path
from statistics import median

from msgspec import Struct, structs

from kprof_inject.analysis.advice import UNKNOWN_GAIN, Gain, gain_in
from kprof_inject.analysis.findings.evidence import launch_times
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import Experiment, ReportLaunch
from kprof_inject.capture.buffer_layouts import LaunchHeaders
from kprof_inject.capture.capture_files import read_optional
from kprof_inject.capture.measurements import GpuWork, GpuWorkRecord
from kprof_inject.capture.model import Kernel, Launch, several_ranks
from kprof_inject.capture.schema import Grid
from kprof_inject.errors import KprofError
from kprof_inject.timeline.captures import headers_of
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import median_time_ns

_MAX_RANKED = 24  # kernels whose gain is determined: it takes up to some seconds for each
MAX_JUDGED = 11  # launches of a kernel that are judged to see how often a finding holds: the median and the slowest
SHORT_NS = 12_000
_MIN_SHARE = 0.02  # less of the time of all launches is not worth a line
# Between two launches of one stream that are so close, hardly a third one ran: with its pauses, it takes longer.
_MAX_PAUSE_NS = 2_000


class KernelFinding(Finding, frozen=True, kw_only=True):
    """A finding on a kernel: what it is worth in one launch, and in how many others it holds."""

    kernel: str
    launch: int  # number of the launch that ``text`` and ``share`` are of: the median one, unless another was chosen
    launches: int  # number of launches in which it holds, of those ``judged``
    judged: int
    share_of_program: float | None
    """Upper bound of the gain, as part of the time of all the program's launches, if all of its kernel's have it."""

    @property
    def held_in(self) -> str:
        """The number of launches in which it holds, in words."""
        return f"in {self.launches} of {self.judged} launches"


class KernelOverview(Struct, frozen=True, eq=False, dict=True):
    """A kernel in all its compiled variants."""

    name: str
    variants: int
    reports: tuple[ReportLaunch, ...]  # its launches among the chosen ones
    captured: int  # number of its launches in the capture, chosen or not
    launches: int | None  # number of its launches in the program
    time_ns: float  # median duration of its launches, by the device's timer
    whole_ns: float  # time of all its launches in the program; if their number is unknown, of those in the capture
    share: float | None
    """Its part of the time of all the program's launches and what else the GPU did; None if any kernel's launches are
    not counted."""
    middles: tuple[ReportLaunch, ...]
    """The launch of median duration of each variant and process, those of the variant that takes most time first."""
    not_chosen: tuple[Launch, ...]  # its launches in the capture that are not among the chosen ones
    gain: Gain  # what could be won in the ``middle`` launch; unknown if other kernels take more time

    @property
    def middle(self) -> ReportLaunch:
        """The launch of median duration, of the variant that takes most time."""
        return self.middles[0]

    @property
    def to_win_ns(self) -> float | None:
        """Time of all its launches that could be won at most."""
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

    @cached_property
    def slowest_first(self) -> list[ReportLaunch]:
        """The chosen launches, the slowest first."""
        return sorted(self.reports, key=lambda report: -report.duration_ns)

    def is_typical(self, shown: ReportLaunch) -> bool:
        """Return True if a launch is of median duration among all that were captured."""
        return shown in self.middles and not self.not_chosen

    @cached_property
    def _judged(self) -> dict[str, list[ReportLaunch]]:
        by_variant: dict[str, list[ReportLaunch]] = {}
        headers = zip(self.not_chosen, headers_of(self.not_chosen), strict=True)
        known = ((one, found) for one, found in headers if isinstance(found, LaunchHeaders) and found.duration_ns)
        for report in (*self.reports, *(ReportLaunch(one, found) for one, found in known)):
            by_variant.setdefault(report.launch.kernel.variant, []).append(report)
        return {variant: _median_and_slowest(found) for variant, found in by_variant.items()}

    def _judged_with(self, shown: ReportLaunch) -> list[ReportLaunch]:
        judged = self._judged.get(shown.launch.kernel.variant, [])
        return judged if shown in judged else [shown, *judged[: MAX_JUDGED - 1]]

    def findings_of(self, shown: ReportLaunch) -> list[KernelFinding]:
        """Return the findings of a launch, sorted by the gain to expect, with the number of launches that have them."""
        judged = self._judged_with(shown)
        return [self._counted(one, shown, judged) for one in shown.analysis.findings]

    def variation_from(self, shown: ReportLaunch) -> list[KernelFinding]:
        """Return the findings that only other launches have, each as the launch that it costs most."""
        judged = self._judged_with(shown)
        known = {one.cause for one in shown.analysis.findings}
        found = [(one, report) for report in judged for one in report.analysis.findings if one.cause not in known]
        most: dict[object, KernelFinding] = {}
        for one, report in sorted(found, key=lambda pair: -pair[0].expected):
            most.setdefault(one.cause, self._counted(one, report, judged))
        return list(most.values())

    def _counted(self, finding: Finding, of: ReportLaunch, judged: Sequence[ReportLaunch]) -> KernelFinding:
        return KernelFinding(
            **structs.asdict(finding),
            kernel=self.name,
            launch=of.launch.index,
            launches=sum(any(finding.cause == one.cause for one in report.analysis.findings) for report in judged),
            judged=len(judged),
            share_of_program=None if self.share is None else self.share * finding.share,
        )


def _median_and_slowest(reports: Sequence[ReportLaunch]) -> list[ReportLaunch]:
    """Return up to ``MAX_JUDGED`` launches that can be read: that of median duration, and the slowest."""
    found: list[ReportLaunch] = []
    ordered = list(dict.fromkeys((middle_of(reports), *sorted(reports, key=lambda one: -one.duration_ns))))
    ReportLaunch.decode(ordered[:MAX_JUDGED])
    for report in ordered:
        with suppress(KprofError):
            _ = report.analysis
            found.append(report)
        if len(found) == MAX_JUDGED:
            break
    return found


class ShortLaunches(Struct, frozen=True):
    """The ``launches`` of at most 12 µs, of the program's ``of_launches``; they take ``whole_ns`` with launching.

    The kernels in ``row`` follow each other, and take ``row_ns`` from the begin of the first to the end of the last.
    """

    launches: int
    of_launches: int
    whole_ns: float
    launching_ns: float
    row: tuple[str, ...]
    row_ns: int


class Program(Struct, frozen=True):
    """The kernels of a program, those with most to win first, and what else its GPU did, the longest first."""

    kernels: tuple[KernelOverview, ...]
    others: tuple[GpuWork, ...]  # kernels that were not recorded, copies and fills, if they were traced
    whole_ns: float | None  # time of all that shares are parts of; None if any kernel's launches are not counted
    short: ShortLaunches | None  # None for a single kernel, too


class Report:
    """The chosen launches of a capture, in order, and all its launches."""

    def __init__(self, launches: Sequence[ReportLaunch], captured: Sequence[Launch] = ()) -> None:
        """Keep the launches; ``captured`` is empty if they are all that is known."""
        self.launches = tuple(launches)
        self.captured = tuple(captured)

    @classmethod
    def of(
        cls, timelines: Iterable[Timeline], experiments: Sequence[Experiment] = (), captured: Sequence[Launch] = ()
    ) -> Report:
        """Return the report on launches that are already decoded."""
        return cls([ReportLaunch.of(timeline, experiments) for timeline in timelines], captured)

    @cached_property
    def program(self) -> Program:
        """The kernels of the launches; raises ``KprofError`` if the file of other work is damaged."""
        # A process has one folder for each variant, however often it launches it.
        by_folder: dict[Path, _Variant] = {}
        for report in self.launches:
            kernel = report.launch.kernel
            by_folder.setdefault(kernel.folder, _Variant(kernel)).reports.append(report)
        chosen = {(report.launch.kernel.folder, report.launch.index) for report in self.launches}
        for launch in self.captured:
            if (launch.kernel.folder, launch.index) not in chosen:
                by_folder.setdefault(launch.kernel.folder, _Variant(launch.kernel)).others.append(launch)
        by_name: dict[str, list[_Variant]] = {}
        for variant in by_folder.values():
            by_name.setdefault(variant.kernel.name, []).append(variant)
        folder = self.launches[0].launch.process.capture_folder if self.launches else None
        record = read_optional(folder, GpuWorkRecord) if folder else None
        others = tuple(work for work in record.work if work.name not in by_name) if record else ()
        whole_ns: float | None = None
        # Without counts there are no shares, so the other kernels are not needed.
        if all(variant.kernel.launches is not None for variant in by_folder.values()):
            times_ns = [variant.whole_ns for variant in by_folder.values()]
            if None not in times_ns:
                whole_ns = sum(filter(None, times_ns)) + sum(work.total_ns for work in others) or None
        names = dict.fromkeys(report.launch.kernel.name for report in self.launches)
        kernels = [_overview(name, by_name[name], whole_ns) for name in names]
        # The gain is only determined for the kernels that take most time; if it is unknown, all of their time counts.
        kernels.sort(key=lambda kernel: -kernel.whole_ns)
        ReportLaunch.decode([kernel.middle for kernel in kernels[:_MAX_RANKED]])
        ranked = [structs.replace(kernel, gain=gain_in(kernel.middle.analysis)) for kernel in kernels[:_MAX_RANKED]]
        ranked.sort(key=lambda one: -(one.whole_ns if one.to_win_ns is None else one.to_win_ns))
        short, counts = None, [kernel.launches for kernel in kernels]
        if len(kernels) > 1 and None not in counts:
            short = _short_launches([one for kernel in kernels for one in kernel.middles], sum(filter(None, counts)))
        return Program((*ranked, *kernels[_MAX_RANKED:]), others, whole_ns, short)

    def kernel_of(self, launch: ReportLaunch) -> KernelOverview:
        """Return the kernel of a launch."""
        return next(kernel for kernel in self.program.kernels if kernel.name == launch.launch.kernel.name)

    def findings(self) -> list[KernelFinding]:
        """Return the findings on each kernel's median launch, sorted by the possible gain in the program's time."""
        # The sort is stable: findings with equal gains stay in the order of the kernels and rules.
        whole_ns = {kernel.name: kernel.whole_ns for kernel in self.program.kernels}
        found = (one for kernel in self.program.kernels for one in kernel.findings_of(kernel.middle))
        return sorted(found, key=lambda one: -whole_ns[one.kernel] * one.expected)


def _short_launches(middles: Sequence[ReportLaunch], of_launches: int) -> ShortLaunches | None:
    """Sum up the short launches, by each variant's median one; None if launching them takes too little to matter."""
    timed = [(one, one.launch.kernel.launches or 0, launch_times(one.launch.kernel.clean)) for one in middles]
    known = [(one, launches, *times_ns) for one, launches, times_ns in timed if times_ns is not None]
    short = [row for row in known if row[2] <= SHORT_NS]
    launching_ns = sum(launches * min(empty_ns, launch_ns) for _, launches, launch_ns, empty_ns in short)
    if not launching_ns or launching_ns < _MIN_SHARE * sum(launches * launch_ns for _, launches, launch_ns, _ in known):
        return None
    rows = (row for row in _rows([one for one, *_ in short]) if len({one.launch.kernel.name for one in row}) > 1)
    row = max(rows, key=len, default=[])
    return ShortLaunches(
        launches=sum(launches for _, launches, *_ in short),
        of_launches=of_launches,
        whole_ns=sum(launches * launch_ns for _, launches, launch_ns, _ in short),
        launching_ns=launching_ns,
        row=tuple(dict.fromkeys(one.launch.kernel.name for one in row)),
        row_ns=row[-1].analysis.timeline.last_ns - row[0].analysis.timeline.first_ns if row else 0,
    )


def _rows(launches: Sequence[ReportLaunch]) -> list[list[ReportLaunch]]:
    """Return the launches whose clock is known, in rows of those that follow each other."""
    sources = (ClockSource.FITTED, ClockSource.ASSUMED)
    timed = [one for one in launches if one.known_analysis and one.analysis.timeline.clock.source in sources]
    timed.sort(key=lambda one: (str(one.launch.place), one.launch.stream, one.analysis.timeline.first_ns))
    rows: list[list[ReportLaunch]] = []
    for one in timed:
        former = rows[-1][-1] if rows else one
        pause_ns = one.analysis.timeline.first_ns - former.analysis.timeline.last_ns
        is_same = (one.launch.place, one.launch.stream) == (former.launch.place, former.launch.stream)
        if rows and is_same and 0 <= pause_ns <= _MAX_PAUSE_NS:
            rows[-1].append(one)
        else:
            rows.append([one])
    return rows


def _overview(name: str, variants: Sequence[_Variant], program_ns: float | None) -> KernelOverview:
    reports = [report for variant in variants for report in variant.reports]
    counts = [variant.kernel.launches for variant in variants]
    whole_ns = sum(variant.whole_ns or 0.0 for variant in variants)
    shown = sorted((one for one in variants if one.reports), key=lambda one: -(one.whole_ns or 0.0))
    return KernelOverview(
        name=name,
        variants=len({report.launch.kernel.variant for report in reports}),
        reports=tuple(reports),
        captured=sum(len(variant.reports) + len(variant.others) for variant in variants),
        launches=sum(count for count in counts if count is not None) if None not in counts else None,
        time_ns=median(report.duration_ns for report in reports),
        whole_ns=whole_ns,
        share=None if program_ns is None else whole_ns / program_ns,
        middles=tuple(middle_of(variant.reports) for variant in shown),
        not_chosen=tuple(launch for variant in variants for launch in variant.others),
        gain=UNKNOWN_GAIN,
    )


class _Variant(Struct, dict=True):
    """A compiled variant in one process: its chosen launches, and the others of the capture."""

    kernel: Kernel
    reports: list[ReportLaunch] = []
    others: list[Launch] = []

    @cached_property
    def whole_ns(self) -> float | None:
        """Time of all its launches in the program, without records if known; else of the chosen ones."""
        known_ns = [report.duration_ns for report in self.reports]
        count, time_ns = len(known_ns), None
        if self.kernel.launches is not None and self.kernel.grids:
            return time_of_grids_ns(self.kernel)
        if self.kernel.launches is not None:
            count, time_ns = self.kernel.launches, median_time_ns(self.kernel.clean.without_launching())
            if time_ns is None:
                others = [one for one in headers_of(self.others) if isinstance(one, LaunchHeaders)]
                known_ns += [one.duration_ns for one in others if one.duration_ns]
        if time_ns is None:
            time_ns = median(known_ns) if known_ns else None
        return None if time_ns is None else count * time_ns


def time_of_grids_ns(kernel: Kernel) -> float | None:
    """Return the time of a kernel's launches in ns, without records and what launching takes."""
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
    whole_ns = 0.0
    for one in kernel.grids:
        # A grid of which no launch was timed is estimated from the one with the nearest number of CTAs.
        ctas = prod(one.grid)
        nearest = one.grid if one.grid in times_ns else min(times_ns, key=lambda known: abs(log(prod(known) / ctas)))
        # More CTAs take longer in proportion at most; fewer may take as long, because one CTA does.
        whole_ns += one.launches * times_ns[nearest] * max(ctas / prod(nearest), 1.0)
    return whole_ns


def middle_of(reports: Iterable[ReportLaunch]) -> ReportLaunch:
    """Return the launch of median duration, of two the shorter."""
    ordered = sorted(reports, key=lambda report: report.duration_ns)
    return ordered[(len(ordered) - 1) // 2]


def glob_of(kernel: KernelOverview, report: Report) -> str:
    """Return the glob that selects a kernel of a report among the program's; empty if it is the only known one."""
    launches = [*(one.launch for one in report.launches), *report.captured]
    if any(one.kernel.name != kernel.name for one in launches):
        return kernel.name
    recording = kernel.middle.launch.process.recording  # its glob chose the kernels of the capture
    return "" if recording is None or recording.kernel == "*" else recording.kernel
