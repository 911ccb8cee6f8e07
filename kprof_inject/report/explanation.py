"""Explanation of a launch, most important facts first, and the command to run next; for programs that tune kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from shlex import quote

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.advice import fewer_records, trust_in
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.findings.loops import is_wait, lost_waits
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import KernelOverview, glob_of, program_of
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.gpu_work import GpuWork
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.capture.source_text import sources_of
from kprof_inject.errors import KprofError
from kprof_inject.quantities import percent
from kprof_inject.report.explanation_schema import (
    SCHEMA_VERSION,
    Clock,
    Explanation,
    FindingEvidence,
    LimitFact,
    Next,
    NotJudged,
    OtherKernel,
    OtherWork,
    Overlap,
    PlaceFact,
    RecordsFact,
    RoofPart,
    ScopeTime,
    StallFact,
    SubjectFact,
    TriedEdit,
    UnitFact,
    VerdictFact,
    Wait,
    figure,
    known_figure,
    short_figure,
    short_name,
    short_text,
)
from kprof_inject.report.launch_notes import MIN_ROOF_SHARE
from kprof_inject.report.tried_edits import best_for, ranked, won_text
from kprof_inject.timeline.phases import outermost
from kprof_inject.timeline.trust import Level

# A finding on many places has a figure for each.
_MAX_FIGURES = 8
# Other reasons of a scope take less of its time.
_MAX_STALLS = 2


def explanation(reports: Sequence[LaunchAnalysis], workspace: str = "") -> Explanation:
    """Explain the launch for which ``report`` gives its answer; there must be at least one.

    ``workspace`` is the folder for the next command, empty for the default one.
    """
    program = program_of(reports)
    first, *other_kernels = program.kernels
    report = first.middle
    process = report.launch.process
    # Launches that another command chose for its own purposes were not the user's choice.
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
        findings=tuple(_finding(finding, report) for finding in report.findings),
        tried=tuple(_tried(report)),
        waits=tuple(_waits(report)),
        places=tuple(_places(report)),
        scopes=tuple(_scopes(report.summary)),
        roofs=tuple(_roofs(report)),
        units=tuple(_units(report)),
        stalls=tuple(_stalls(report)),
        overlap=tuple(_overlap(report)),
        not_judged=tuple(_not_judged(report)),
        other_kernels=tuple(map(_other_kernel, other_kernels)),
        other_work=tuple(map(_other_work, program.others)),
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
        to_win_ns=known_figure(kernel.to_win_ns),
        to_win_by=short_name(kernel.gain.by),
        time_ns=summary.duration_ns,
        grid=summary.grid,
        ctas=summary.ctas,
        warps=summary.warps,
        device=short_name(report.launch.device_name),
        source_sha256=_source_sha256(report.launch.kernel),
    )


def _source_sha256(kernel: Kernel) -> str | None:
    """Return the hash of the kernel's source; None if the capture has no source, or a damaged one."""
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
        least_shares={unit: figure(part) for unit, part in limit.parts.items() if part >= MIN_ROOF_SHARE},
        evidence=limit.evidence,
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


def _finding(finding: Finding, report: LaunchAnalysis) -> FindingEvidence:
    name = finding.scope if finding.index is None else report.summary.scopes[finding.index].distinct_name
    tried = best_for(report.edits, finding.rule)
    gain = tried.final_gain if tried else None
    return FindingEvidence(
        rule=finding.rule,
        scope=None if name is None else short_name(name),
        share=figure(finding.share),
        won_share=figure(gain.won) if gain else None,
        text=short_text(finding.sentence),
        advice=short_text(finding.advice),
        figures={
            short_name(name): short_figure(value) for name, value in islice(finding.figures.items(), _MAX_FIGURES)
        },
    )


def _tried(report: LaunchAnalysis) -> Iterator[TriedEdit]:
    record = report.edits
    if record is None:
        return
    for one in ranked(record):
        gain = one.final_gain
        yield TriedEdit(
            edits=short_name(one.text),
            outcome=one.outcome,
            is_best=one is record.winner,
            won_share=figure(gain.won) if gain else None,
            won_share_low=figure(gain.low) if gain else None,
            won_share_high=figure(gain.high) if gain else None,
            predicted_share=known_figure(one.predicted),
            finding=one.reason if one.predicted is not None else None,
            results=one.results,
            refusal=short_text(one.refusal),
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
    notable = [roof for roof in report.speed_of_light.roofs if roof.part >= MIN_ROOF_SHARE]
    for roof in sorted(notable, key=lambda roof: -roof.sm_cycles):
        name = short_name(report.summary.scopes[roof.index].distinct_name)
        yield RoofPart(scope=name, unit=roof.unit, least_share=figure(roof.part))


def _units(report: LaunchAnalysis) -> Iterator[UnitFact]:
    """Yield the units of which more than TTGIR is known, the busiest first: ``roofs`` has the others."""
    notable = [one for one in report.units if one.best >= MIN_ROOF_SHARE and (one.code, one.measured) != (None, None)]
    for one in sorted(notable, key=lambda one: -one.best):
        yield UnitFact(one.unit, known_figure(one.computed), known_figure(one.code), known_figure(one.measured))


def _stalls(report: LaunchAnalysis) -> Iterator[StallFact]:
    """Yield the first reason of each scope, of the scope with most samples first."""
    stalls = report.stalls
    if stalls is None:
        return
    for index in sorted(stalls.scopes, key=lambda index: -sum(stalls.scopes[index].values())):
        for reason, share in stalls.waiting_in(index)[:_MAX_STALLS]:
            place, awaited = stalls.sources_of(reason, index)
            yield StallFact(
                scope=short_name(report.summary.scopes[index].distinct_name),
                reason=reason,
                share=figure(share.value),
                error=figure(share.error),
                source=short_name(place),
                awaited_source=short_name(awaited),
            )


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
        to_win_ns=known_figure(kernel.to_win_ns),
        to_win_by=short_name(kernel.gain.by),
        limit=short_name(kernel.middle.limit.name),
        level=trust_in(kernel.middle).level,
    )


def _other_work(work: GpuWork) -> OtherWork:
    return OtherWork(name=short_name(work.name), kind=work.kind, count=work.count, total_ns=figure(work.total_ns))


_PROGRAM = " -- PROG"
_DEFAULT_LAUNCHES = "last"
# More launches than `diff` needs to separate a change from noise.
_LAUNCHES = " --launches 0:20"
_REPLAYS = " --replay 50"


class Options(Struct, frozen=True):
    """Options for each command; each is empty, or begins with a blank.

    They name the workspace if it is not the default one, the kernel if there are several, and the launches if they are
    not the default.
    """

    workspace: str = ""
    kernel: str = ""
    launches: str = ""

    @classmethod
    def of(cls, workspace: str, kernel: str, launches: str = "") -> Options:
        """Return the options for a workspace, empty for the default one, and a kernel, empty for the only one.

        ``launches`` is as for ``run``. A workspace with too long a name becomes a placeholder for the reader to fill
        in.
        """
        at = workspace if short_name(workspace) == workspace else "WORKSPACE"
        return cls(
            f" -o {quote(at)}" if workspace else "",
            f" --kernel {quote(_glob_of(kernel))}" if kernel else "",
            f" --launches {quote(launches)}" if launches not in ("", _DEFAULT_LAUNCHES) else "",
        )

    def profile(self, options: str) -> str:
        """Return the command that profiles the same launches again."""
        return f"kprof-inject profile{self.workspace}{self.kernel}{self.launches}{options}{_PROGRAM}"

    def to_compare(self) -> str:
        """Return the command that profiles enough launches to compare: the same range, if they were a range."""
        is_range = self.launches.endswith(" all") or ":" in self.launches
        return self.profile("") if is_range else replace(self, launches=_LAUNCHES).profile("")

    def causal(self) -> str:
        """Return the command that delays the places of the kernel."""
        return f"kprof-inject causal{self.workspace}{self.kernel}{_PROGRAM}"


def _glob_of(name: str) -> str:
    """Return a glob for a kernel's name, however long that is."""
    begin, cut, _ = short_name(name).partition("…")
    return f"{begin}*" if cut else begin


def next_step(report: LaunchAnalysis, options: Options) -> Next:
    """Return the command to run next: the first step that applies."""
    for step in _STEPS:
        found = step(report, options)
        if found is not None:
            return Next(found.command, short_text(found.why))
    return Next(options.to_compare(), "after a change; then kprof-inject diff says whether it helped")


def _save_again(report: LaunchAnalysis, options: Options) -> Next | None:
    """Advise a comparison for another profiler's buffer, which none of our commands can record again."""
    if not report.summary.is_foreign:
        return None
    first = "records were lost: use a larger buffer; " if report.summary.records_lost else ""
    why = "save the buffer of the changed kernel, too; diff says whether the change helped"
    return Next("kprof-inject diff BEFORE AFTER", f"{first}{why}")


def _keep_all_records(report: LaunchAnalysis, options: Options) -> Next | None:
    lost, written = report.summary.records_lost, report.summary.records_written
    if not lost:
        return None
    return Next(options.profile(" --fit"), f"{percent(lost / written)} of the records were lost; --fit keeps them all")


def _record_less(report: LaunchAnalysis, options: Options) -> Next | None:
    if report.verdict.level is not Level.UNRELIABLE:
        return None
    if fewer := fewer_records(report):
        return Next(options.profile(f" {fewer}"), f"the records disturb the kernel; use fewer: {report.verdict.text}")
    if report.slopes is None:
        return Next(options.causal(), f"the records disturb the kernel, and causal needs none: {report.verdict.text}")
    why = "the records disturb the kernel: after a change, diff compares its times without them"
    return Next(options.to_compare(), why)


def _time_it(report: LaunchAnalysis, options: Options) -> Next | None:
    is_unknown = report.verdict.level in (Level.CANNOT_TELL, Level.UNKNOWN)
    kernel = report.launch.kernel
    if not is_unknown or kernel.clean.replayed_ns or kernel.not_replayed:
        return None
    return Next(options.profile(_REPLAYS), f"the cost of the records is unknown: {report.verdict.text}")


def _apply_it(report: LaunchAnalysis, options: Options) -> Next | None:
    winner = report.edits.winner if report.edits else None
    if winner is None:
        return None
    how = f"after the best edit: {won_text(winner)}"
    return Next(options.to_compare(), f"{how}; then kprof-inject diff says whether the program gains as much")


def _change_it(report: LaunchAnalysis, options: Options) -> Next | None:
    if not report.findings:
        return None
    why = "after the change that the first finding advises; then kprof-inject diff says whether it helped"
    return Next(options.to_compare(), why)


def _judge_the_rest(report: LaunchAnalysis, options: Options) -> Next | None:
    for why, rules in report.unjudged.items():
        if why.options:
            command = options.profile(f"{''.join(_selected(report))} {why.options}")
            return Next(command, f"{', '.join(rules)} could not be judged: {why.reason}")
    return None


_SELECTORS = {
    ScopeKind.FUNCTION: "func",
    ScopeKind.LOOP: "loop",
    ScopeKind.ITERATION: "iter",
    ScopeKind.SPIN: "spin",
    ScopeKind.PART: "parts",
    ScopeKind.MARKER: "marker",
}


def _selected(report: LaunchAnalysis) -> Iterator[str]:
    """Yield a selector for each kind of recorded scope; options that add a selector replace the default ones."""
    kinds = {scope.kind for scope in report.timeline.table.scopes}
    return (f" --at {selector}" for kind, selector in _SELECTORS.items() if kind in kinds)


def _delay_it(report: LaunchAnalysis, options: Options) -> Next | None:
    if report.slopes is not None:
        return None
    return Next(options.causal(), "no rule found anything to change; this shows which part is critical")


_STEPS = (
    _save_again,
    _apply_it,
    _keep_all_records,
    _record_less,
    _time_it,
    _change_it,
    _judge_the_rest,
    _delay_it,
)
