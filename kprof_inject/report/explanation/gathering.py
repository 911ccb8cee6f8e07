"""What is known of a launch, gathered for a program that tunes its kernel: all of it, the most important first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.loops import is_wait, lost_waits
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview, glob_of, overview
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.source_text import sources_of
from kprof_inject.errors import KprofError
from kprof_inject.report.explanation.budget import figure, known_figure, short_figure, short_name, short_text
from kprof_inject.report.explanation.explanation_schema import (
    SCHEMA_VERSION,
    Clock,
    Explanation,
    FindingEvidence,
    LimitFact,
    NotJudged,
    OtherKernel,
    Overlap,
    PlaceFact,
    RecordsFact,
    RoofPart,
    ScopeTime,
    SubjectFact,
    VerdictFact,
    Wait,
)
from kprof_inject.report.explanation.next_step import Options, next_step
from kprof_inject.report.launch_notes import LEAST_ROOF
from kprof_inject.timeline.phases import outermost

# A finding on many places has one of each.
_MOST_FIGURES = 8


def explanation(reports: Sequence[LaunchAnalysis], workspace: str = "") -> Explanation:
    """Of the launch that ``report`` answers for: of at least one. ``workspace`` is where to go on, if that is not the
    default one."""
    first, *others = overview(reports)
    report = first.middle
    process = report.launch.process
    # What another command captured for its own ends, the user did not ask for.
    launches = process.launches if process and not process.made_by else ""
    options = Options.of(workspace, glob_of(first, reports), launches)
    return Explanation(
        schema=SCHEMA_VERSION,
        kernel=_subject(first),
        limit=_limit(report),
        verdict=_verdict(report),
        records=_records(report.summary),
        clock=_clock(report),
        next=next_step(report, options),
        findings=tuple(_finding(finding, report.summary) for finding in report.findings),
        waits=tuple(_waits(report)),
        places=tuple(_places(report)),
        scopes=tuple(_scopes(report.summary)),
        roofs=tuple(_roofs(report)),
        overlap=tuple(_overlap(report)),
        not_judged=tuple(_not_judged(report)),
        other_kernels=tuple(map(_other_kernel, others)),
        left_out={},
    )


def _verdict(report: LaunchAnalysis) -> VerdictFact:
    """Return how far to trust the launch, including lost records and an inexact clock."""
    trust, overhead = trust_in(report), report.verdict.overhead
    return VerdictFact(
        level=trust.level,
        text=short_text(trust.text),
        overhead_percent=known_figure(overhead.percent if overhead else None),
        overhead_error_percent=known_figure(overhead.error_percent if overhead else None),
    )


def _subject(kernel: KernelOverview) -> SubjectFact:
    report = kernel.middle
    summary = report.summary
    return SubjectFact(
        name=short_name(kernel.name),
        variant=short_name(summary.variant),
        launch=summary.launch,
        launches_captured=kernel.captured,
        launches_in_program=kernel.launches,
        share_of_program=known_figure(kernel.share),
        time_ns=summary.duration_ns,
        grid=summary.grid,
        ctas=summary.ctas,
        warps=summary.warps,
        device=short_name(report.launch.device_name),
        source_sha256=_source_sha256(report.launch.kernel),
    )


def _source_sha256(kernel: Kernel) -> str | None:
    """None if the capture has no source, or that is damaged."""
    try:
        sources = sources_of(kernel)
    except KprofError:
        return None
    if not sources:
        return None
    return hashlib.sha256("".join(sources[path] for path in sorted(sources)).encode(errors="replace")).hexdigest()


def _limit(report: LaunchAnalysis) -> LimitFact:
    limit = report.limit
    return LimitFact(
        name=short_name(limit.name),
        units=limit.units,
        is_known=limit.is_known,
        text=short_text(limit.text),
        least_shares={unit: figure(part) for unit, part in limit.parts.items() if part >= LEAST_ROOF},
    )


def _records(summary: LaunchSummary) -> RecordsFact:
    return RecordsFact(
        written=summary.records_written,
        lost=summary.records_lost,
        damaged=summary.records_damaged,
        unpaired=sum(scope.without_partner for scope in summary.scopes),
    )


def _clock(report: LaunchAnalysis) -> Clock:
    summary = report.summary
    return Clock(
        source=summary.clock_source,
        mhz=None if summary.is_foreign else figure(summary.clock_mhz),
        nominal_mhz=known_figure(summary.nominal_mhz),
        error_percent=None if summary.duration_error is None else figure(100 * summary.duration_error),
        timer_step_ns=report.timeline.clock.timer_step_ns or None,
    )


def _finding(finding: Finding, summary: LaunchSummary) -> FindingEvidence:
    name = finding.scope if finding.index is None else summary.scopes[finding.index].distinct_name
    return FindingEvidence(
        rule=finding.rule,
        scope=None if name is None else short_name(name),
        share=figure(finding.share),
        text=short_text(finding.sentence),
        advice=short_text(finding.advice),
        figures={
            short_name(name): short_figure(value) for name, value in islice(finding.figures.items(), _MOST_FIGURES)
        },
    )


def _waits(report: LaunchAnalysis) -> Iterator[Wait]:
    table, summary = report.timeline.table, report.summary
    around = outermost(table, is_wait).tolist()
    lost = lost_waits(table, report.launch.kernel)
    waits = [index for index, wait in enumerate(around) if wait == index and summary.scopes[index].share is not None]
    for index in sorted(waits, key=lambda index: -(summary.scopes[index].share or 0.0)):
        scope = summary.scopes[index]
        yield Wait(
            scope=short_name(scope.title),
            source=short_name(scope.source),
            share=figure(scope.share or 0.0),
            p50_ns=known_figure(scope.p50_ns),
            executions=scope.count,
            is_lost=index in lost,
        )


def _places(report: LaunchAnalysis) -> Iterator[PlaceFact]:
    for place in report.slopes.ranked if report.slopes else ():
        slope = place.response.slope if place.response else None
        yield PlaceFact(
            scope=short_name(place.name),
            slope=known_figure(slope.value if slope else None),
            slope_error=known_figure(slope.error if slope else None),
            spare_cycles=known_figure(place.spare_cycles),
            reason=short_text(place.reason),
        )


def _scopes(summary: LaunchSummary) -> Iterator[ScopeTime]:
    timed = [scope for scope in summary.scopes if scope.share is not None]
    for scope in sorted(timed, key=lambda scope: -scope.self_share):
        yield ScopeTime(
            scope=short_name(scope.title),
            source=short_name(scope.source),
            share=figure(scope.share or 0.0),
            self_share=figure(scope.self_share),
            p50_ns=known_figure(scope.p50_ns),
            executions=scope.count,
        )


def _roofs(report: LaunchAnalysis) -> Iterator[RoofPart]:
    told = [roof for roof in report.speed_of_light.roofs if roof.part >= LEAST_ROOF]
    for roof in sorted(told, key=lambda roof: -roof.sm_cycles):
        name = short_name(report.summary.scopes[roof.index].distinct_name)
        yield RoofPart(scope=name, unit=roof.unit, least_share=figure(roof.part))


def _overlap(report: LaunchAnalysis) -> Iterator[Overlap]:
    flights = report.flights.flights if report.flights else ()
    for flight in sorted(flights, key=lambda flight: -flight.blocked_ns):
        yield Overlap(
            scope=short_name(report.summary.scopes[flight.index].distinct_name),
            work=flight.work,
            depth=flight.depth,
            groups=flight.groups,
            blocked_share=figure(flight.blocked_share),
            latency_ns=known_figure(flight.latency_ns),
        )


def _not_judged(report: LaunchAnalysis) -> Iterator[NotJudged]:
    for why, rules in report.unjudged.items():
        yield NotJudged(rules=rules, reason=short_text(why.reason), remedy=short_text(why.remedy))


def _other_kernel(kernel: KernelOverview) -> OtherKernel:
    return OtherKernel(
        name=short_name(kernel.name),
        launches=kernel.known_launches,
        time_ns=figure(kernel.time_ns),
        share_of_program=known_figure(kernel.share),
        limit=short_name(kernel.middle.limit.name),
        level=trust_in(kernel.middle).level,
    )
