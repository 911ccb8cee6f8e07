"""The answer about a kernel: one record, which the terminal, JSON, the page, ``diff`` and Python show.

Those that show it compute nothing: each figure and sentence that two of them show is a field here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct, structs

from kprof_inject.analysis.advice import Advice, Trust, advice_on, trust_in
from kprof_inject.analysis.async_work.flights import Flights, flights_of
from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.analysis.findings.rules import RuleOutcome
from kprof_inject.analysis.launch import LaunchAnalysis, ReportLaunch
from kprof_inject.analysis.limits.coalescing import Requests
from kprof_inject.analysis.limits.limit import Limit
from kprof_inject.analysis.limits.speed_of_light import SpeedOfLight
from kprof_inject.analysis.limits.stalls import Stalls
from kprof_inject.analysis.limits.unit_evidence import UnitEvidence
from kprof_inject.analysis.program import KernelFinding, Report
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.edits import EditsRecord
from kprof_inject.capture.measurements import CountersRecord
from kprof_inject.capture.model import Kernel, Place, place_names
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.capture.schema import Grid
from kprof_inject.kernel_names import kernel_names
from kprof_inject.machine_code.lines import Moved
from kprof_inject.quantities import resolved_time, short_time
from kprof_inject.report.notes import all_notes
from kprof_inject.timeline.trust import Level


class RunTimes(Struct, frozen=True):
    """Median run times of the kernel; its launch's span is ``LaunchSummary.duration_ns``."""

    without_records_ns: float | None
    with_records_ns: float | None
    has_launching: bool  # true if they include the cost of launching, which was not measured


class Build(Struct, frozen=True):
    """A build of the kernel, and how many of its launches were timed."""

    registers: int | None
    spills: int | None
    shared_bytes: int | None
    ctas_per_sm: int | None
    limited_by: str  # the resource that limits ``ctas_per_sm``; empty if unknown
    launches_timed: int
    replays_timed: int


class InProgram(Struct, frozen=True):
    """A kernel's part in the program."""

    share: float | None  # part of the GPU's time in the program
    launches: int | None
    launches_captured: int
    to_win: float | None  # upper bound of the gain, as part of the kernel's time
    to_win_ns: float | None
    to_win_by: str


class LaunchRow(Struct, frozen=True):
    """A launch in a list; what takes an analysis is null if the launch was not analysed."""

    variant: str
    launch: int
    graph: bool
    place: Place
    grid: Grid
    host_ns: int
    duration_ns: int
    records_lost: int
    ctas_damaged: int
    clock_mhz: float | None = None
    limit: Limit | None = None
    level: Level | None = None
    findings: tuple[str, ...] | None = None  # names of the rules that found something


class Answer(LaunchSummary, frozen=True, kw_only=True):
    """The answer about a kernel: the summary of its median launch, or of another that was chosen, and what it shows."""

    title: str  # the kernel's name, by which it differs from other variants
    place_name: str  # where the launch ran; empty if all launches of the report ran there
    device_name: str
    program: InProgram
    run_times: RunTimes
    clean: Build
    with_records: Build
    limit: Limit
    units: tuple[UnitEvidence, ...]
    advice: tuple[Advice, ...]  # what to try
    trust: Trust
    findings: tuple[KernelFinding, ...]
    variation: tuple[KernelFinding, ...]  # findings on other launches of the kernel that this launch does not have
    rules: tuple[RuleOutcome, ...]
    doubts: tuple[str, ...]  # why a kernel without findings may still have a problem
    edits: EditsRecord | None
    stalls: Stalls | None
    causal: dict[str, Any] | None  # the result of ``causal``, as that prints it
    in_flight: Flights | None
    speed_of_light: SpeedOfLight
    machine_code: Mapping[int, Mapping[str, float]] | None
    """Lower bounds of the units' utilization in each scope, by its index."""
    moves: Mapping[str, tuple[Moved, ...] | None]
    """What the compiler moved across the records of each scope, by the name of its record."""
    disagreements: tuple[str, ...]
    counters: CountersRecord | None
    requests: tuple[Requests, ...]
    notes: tuple[str, ...]
    other_launches: tuple[LaunchRow, ...] = ()  # the launches of the same build in the same process that are not shown

    def __repr__(self) -> str:
        return f"<Answer on {self.title} #{self.launch}: {self.limit.sentence}; {self.trust.level.value}>"

    @property
    def run_times_text(self) -> str:
        """The kernel's run times without and with records; empty if it was not timed."""
        clean_ns, with_records_ns = self.run_times.without_records_ns, self.run_times.with_records_ns
        if clean_ns is None or with_records_ns is None:
            return ""
        by_events = " (CUDA events)" if self.run_times.has_launching else ""
        return f"median {short_time(clean_ns)} without records, {short_time(with_records_ns)} with{by_events}"


class Answers:
    """The answers that a report gives."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.titles = kernel_names(one.launch.kernel for one in report.launches)  # distinct names by variant
        self.places = place_names(one.launch.place for one in report.launches)

    @cached_property
    def first(self) -> Answer:
        """The answer about the kernel with most to win."""
        return self.on(self.report.program.kernels[0].middle)

    def on(self, shown: ReportLaunch, others: Sequence[LaunchRow] = ()) -> Answer:
        """Return the answer about the kernel of a launch, as this one shows it, with rows of ``others``."""
        kernel, analysis = self.report.kernel_of(shown), shown.analysis
        launch, summary, verdict = analysis.launch, analysis.summary, analysis.verdict
        in_flight = recorded_in_flight(analysis.timeline)
        flights = flights_of(analysis.timeline, in_flight, analysis.speed_of_light.roofs) if in_flight else None
        findings, gain = kernel.findings_of(shown), kernel.gain
        # For a launch that the user chose, say how many launches share its findings.
        held_in = {} if kernel.is_typical(shown) else {one.cause: one.held_in for one in findings}
        return Answer(
            **structs.asdict(summary),
            title=self.titles[summary.variant],
            place_name=self.places[summary.place],
            device_name=launch.device_name,
            program=InProgram(kernel.share, kernel.launches, kernel.captured, gain.share, kernel.to_win_ns, gain.by),
            run_times=RunTimes(verdict.clean_ns, verdict.with_records_ns, verdict.has_launching),
            clean=_build(launch.kernel, launch.kernel.clean),
            with_records=_build(launch.kernel, launch.kernel.with_records),
            limit=analysis.limit,
            units=analysis.units,
            advice=advice_on(analysis, held_in),
            trust=trust_in(analysis),
            findings=tuple(findings),
            variation=tuple(kernel.variation_from(shown)),
            rules=tuple(one.conclusion for one in analysis.judgements),
            doubts=analysis.doubts,
            edits=analysis.edits,
            stalls=analysis.stalls,
            causal=analysis.slopes.to_json() if analysis.slopes else None,
            in_flight=flights,
            speed_of_light=analysis.speed_of_light,
            machine_code=analysis.code_evidence.scopes if analysis.code_evidence else None,
            moves=launch.kernel.moves,
            disagreements=tuple(analysis.disagreements),
            counters=analysis.measured.counted if analysis.measured else None,
            requests=analysis.requests,
            notes=tuple(all_notes(analysis, flights)),
            other_launches=tuple(others),
        )


def launch_row(one: ReportLaunch, analysis: LaunchAnalysis | None) -> LaunchRow:
    """Return the row of a launch, with what its analysis shows."""
    launch, values = one.launch, structs.asdict(one.headers)
    if analysis is not None:
        values |= {
            "clock_mhz": analysis.summary.clock_mhz,
            "limit": analysis.limit,
            "level": trust_in(analysis).level,
            "findings": tuple(finding.rule for finding in analysis.findings),
        }
    where = launch.index, launch.graph, launch.place, launch.grid, launch.host_ns
    return LaunchRow(launch.kernel.variant, *where, **values)


def _build(kernel: Kernel, cost: KernelResources) -> Build:
    return Build(
        cost.registers,
        cost.spills,
        cost.shared_bytes,
        cost.ctas_per_sm,
        limited_by(kernel.target, kernel.num_warps, cost),
        launches_timed=len(cost.times_ns or ()),
        replays_timed=len(cost.replayed_ns or ()),
    )


def per_cta_text(scope: ScopeSummary, summary: LaunchSummary) -> str:
    """Return the time of one of a CTA's warps in a scope: ``16 x 591 ns``; empty if it never ran."""
    if not scope.count:
        return ""
    executions = scope.count / summary.warps_in_ctas(scope)
    often = f"{executions:.0f}" if round(executions, 1).is_integer() else f"{executions:.1f}"
    if scope.mean_ns is None:
        return f"{often} x"
    mean = resolved_time(scope.mean_ns, summary.resolution_ns)
    return mean if often == "1" else f"{often} x {mean}"
