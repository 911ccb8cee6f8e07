"""The page's first tab: the kernels of a capture side by side, and a launch at a glance.

It shows the launch's facts, how far to trust them, its findings and its scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import structs

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.causal.slopes import PlaceSlope
from kprof_inject.analysis.evidence.units import UnitEvidence
from kprof_inject.analysis.findings.finding import Finding
from kprof_inject.analysis.launch import LaunchAnalysis, ReportLaunch
from kprof_inject.analysis.program import Program, Report
from kprof_inject.analysis.roofs.limits import LIMITING, Limit
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.capture.source_text import without_folders
from kprof_inject.errors import printable
from kprof_inject.kernel_names import without_inner_types
from kprof_inject.quantities import counted, percent, short_time
from kprof_inject.report.facts import Answer
from kprof_inject.report.html.page_schema import (
    AdviceText,
    FactGroup,
    FindingText,
    KernelRow,
    LaunchRow,
    Overview,
    ScopeRoof,
    SlopeRow,
    UnitBar,
    VerdictText,
    WorkRow,
)
from kprof_inject.report.notes import MIN_ROOF_SHARE
from kprof_inject.report.slopes import SLOPE_MEANING, slack_text, slope_text
from kprof_inject.report.tried_edits import headline
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge

# A smaller share would be shown as 0 %.
_MIN_UNIT_SHARE = 0.0005

_CLOCK_SOURCES = {
    ClockSource.FITTED: "fitted to the timer",
    ClockSource.ASSUMED: "assumed: the timer readings do not determine it",
    ClockSource.NOMINAL: "assumed: no timer was read",
    ClockSource.TIMER: "the globaltimer itself, in nanoseconds",
}
_VERSIONS = {"tool": "kprof-inject", "triton": "Triton", "torch": "PyTorch", "python": "Python"}

Row = tuple[str, str]


def _facts(timeline: Timeline, summary: LaunchSummary) -> Iterator[FactGroup]:
    groups = {
        "Launch": _launch(timeline, summary),
        "Device and clock": _device(timeline, summary),
        "Records": _records(timeline, summary),
        "Program": _program(timeline),
    }
    for title, rows in groups.items():
        if known := tuple((label, printable(value)) for label, value in rows if value):
            yield FactGroup(title, known)


def _build_rows(kernel: Kernel) -> Iterator[tuple[str, str, str]]:
    verdict = judge(kernel)
    yield "run time (median)", short_time(verdict.clean_ns), short_time(verdict.with_records_ns)
    for label, shown in _BUILD.items():
        yield label, shown(kernel, kernel.clean) or "-", shown(kernel, kernel.with_records) or "-"


_BUILD: dict[str, Callable[[Kernel, KernelResources], str]] = {
    "registers per thread": lambda _, cost: _number(cost.registers),
    "spills": lambda _, cost: _number(cost.spills),
    "shared memory": lambda _, cost: "" if cost.shared_bytes is None else f"{_thousands(cost.shared_bytes)} bytes",
    "CTAs per SM": lambda _, cost: _number(cost.ctas_per_sm),
    "limited by": lambda kernel, cost: limited_by(kernel.target, kernel.num_warps, cost),
}


def _launch(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    metadata = timeline.launch.kernel.metadata
    yield "kernel", summary.kernel
    yield "grid", f"{' x '.join(map(str, summary.grid))}, {counted(summary.ctas, summary.cta_name)} ran"
    recorded = f", of which {', '.join(map(str, timeline.warps))} recorded"
    some = recorded if len(timeline.warps) != summary.warps else ""
    yield f"{summary.warp_name}s", f"{summary.warps} in each {summary.cta_name}{some}"
    yield "stages", _number(metadata.get("num_stages"))
    yield "CTAs in a cluster", _number(metadata.get("num_ctas") if metadata.get("num_ctas") != 1 else None)
    yield "span", short_time(summary.duration_ns if summary.ctas else None)
    if waves := summary.waves:
        yield "waves", f"{waves.fill:.2f} on {counted(waves.sms, 'SM')}, {waves.slots_per_sm} at once on each"
        if summary.ending and waves.tail.duration_ns:
            lost = percent(summary.ending.idle_share)
            yield "tail", f"{lost} of the launch lost, in its last {short_time(waves.tail.duration_ns)}"
    yield "launch", f"number {summary.launch}{', last replay of a CUDA graph' if summary.graph else ''}"


def _device(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    launch, clock = timeline.launch, timeline.clock
    yield "device", launch.device_name or f"number {launch.device}"
    if launch.kernel.target:
        yield "target", launch.kernel.target
    measured = f" ± {100 * clock.rate_error:.2f} %" if clock.source == ClockSource.FITTED else ""
    rate = "" if summary.is_foreign else f"{summary.clock_mhz:.0f} MHz{measured}, "
    yield "clock", f"{rate}{_CLOCK_SOURCES[clock.source]}"
    yield "nominal clock", "" if summary.nominal_mhz is None else f"{summary.nominal_mhz:.0f} MHz"
    if clock.source == ClockSource.FITTED:
        yield "timer readings", f"{clock.readings}, within {clock.residual_ns:.0f} ns of the fit (rms)"


def _records(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    mode = timeline.launch.kernel.mode
    yield "scopes", _thousands(timeline.scope_count)
    lost = f" ({percent(summary.records_lost / summary.records_written)})" if summary.records_lost else ""
    yield "records", f"{_thousands(summary.records_written)} written, {_thousands(summary.records_lost)} lost{lost}"
    cost = summary.record_cost
    yield (
        "cost of a record",
        f"{cost.cycles:.0f} ± {cost.error_cycles:.0f} cycles" if cost else "unknown",
    )
    if summary.subtracted_ns and summary.warp_time_ns:
        taken = summary.subtracted_ns / summary.warp_time_ns
        yield "subtracted", f"{percent(taken)} of the warps' time"
    if summary.is_foreign:
        return
    size = f", {_thousands(mode.buffer_bytes)} bytes for each CTA" if mode.buffer_bytes else ""
    yield "buffer", f"{mode.buffer} memory{size}"
    stores = ", stores moved" if mode.sched_stores else ""
    yield "clock bits", f"{mode.clock_bits}{stores}{', scheduling barriers' if mode.sched_barriers else ''}"


def _program(timeline: Timeline) -> Iterator[Row]:
    process = timeline.launch.process
    if process is not None:
        yield "command", " ".join(process.argv)
        yield from ((name, getattr(process, key)) for key, name in _VERSIONS.items())


def _thousands(count: int) -> str:
    """Separate thousands by the space that the page uses."""
    return f"{count:,}".replace(",", "\u202f")


def _number(value: Any) -> str:
    return "" if value is None else f"{value}"


def launch_overview(report: LaunchAnalysis, answer: Answer) -> Overview:
    """Return a launch at a glance."""
    trust = answer.trust
    tried = [] if report.edits is None else [headline(report.edits)]
    return Overview(
        facts=tuple(_facts(report.timeline, report.summary)),
        builds=tuple(_build_rows(report.launch.kernel)),
        verdict=VerdictText(trust.level.value, printable(trust.text)),
        limit=printable(report.limit.answer),
        limit_evidence=_evidence_of(report.limit),
        units=tuple(_unit(unit) for unit in report.units if unit.best >= _MIN_UNIT_SHARE),
        well_utilized=LIMITING,
        advice=tuple(
            AdviceText(printable(advice.text), printable(advice.reason), advice.share, "doubtful" in advice.worth)
            for advice in answer.advice
        ),
        roofs=tuple(
            ScopeRoof(roof.index, roof.unit, roof.part)
            for roof in report.speed_of_light.roofs
            if roof.part >= MIN_ROOF_SHARE
        ),
        findings=tuple(map(_finding, report.findings)),
        doubts=report.doubts,
        slopes=tuple(map(_slope, report.slopes.ranked)) if report.slopes else (),
        slopes_say=SLOPE_MEANING,
        notes=tuple(map(printable, [*tried, *answer.notes])),
        warp_time_ns=report.summary.warp_time_ns,
    )


def _evidence_of(limit: Limit) -> str:
    return limit.evidence if limit.is_known else ""


def _unit(unit: UnitEvidence) -> UnitBar:
    known = {
        "at least {}, computed from TTGIR": unit.computed,
        "at least {}, from the machine code": unit.code,
        "{}, measured by hardware counters": unit.measured,
    }
    figures = [text.format(percent(share)) for text, share in known.items() if share is not None]
    has_bound = unit.computed is not None or unit.code is not None
    return UnitBar(
        unit=unit.unit,
        lower_bound=unit.lower_bound if has_bound else None,
        measured=unit.measured,
        text="\n".join([unit.unit, *figures]),
    )


def _finding(finding: Finding) -> FindingText:
    return FindingText(
        rule=finding.rule,
        share=finding.share,
        text=printable(finding.sentence),
        advice=printable(finding.advice),
        scope=finding.index,
        cta=finding.figures.get("last_cta"),
    )


def _slope(place: PlaceSlope) -> SlopeRow:
    slope = place.response.slope if place.response else None
    return SlopeRow(
        name=printable(place.name),
        scope=place.index,
        source=without_folders(place.scope.source),
        lines=place.scope.lines,
        slope=slope.value if slope else None,
        low=slope.low if slope else None,
        high=slope.high if slope else None,
        text=slope_text(place),
        slack=printable(slack_text(place)),
        time=place.time_share,
        path=place.blame.share if place.blame else None,
    )


_MAX_WORK = 50


def kernel_rows(program: Program, report: Report) -> list[KernelRow]:
    """Return a row for each kernel; ``report`` has the launches of the page, in its order."""
    index_of = {id(one): index for index, one in enumerate(report.launches)}
    return [
        KernelRow(
            **{**structs.asdict(_row(kernel.middle, index_of)), "time_ns": kernel.time_ns},
            name=printable(kernel.name),
            variants=kernel.variants,
            launches=kernel.known_launches,
            share=kernel.share,
            to_win_ns=kernel.to_win_ns,
            to_win_by=printable(kernel.gain.by),
            others=tuple(_row(report, index_of) for report in kernel.slowest_first),
        )
        for kernel in program.kernels
    ]


def work_rows(program: Program) -> list[WorkRow]:
    """Return a row for each of the largest parts of what else the GPU did."""
    return [
        WorkRow(
            name=printable(without_inner_types(work.name)),
            kind=work.kind,
            count=work.count,
            total_ns=work.total_ns,
            share=work.total_ns / program.whole_ns if program.whole_ns else None,
        )
        for work in program.others[:_MAX_WORK]
    ]


def _row(one: ReportLaunch, index_of: dict[int, int]) -> LaunchRow:
    report = one.analysis
    return LaunchRow(
        launch=index_of[id(one)],
        number=report.summary.launch,
        time_ns=report.summary.duration_ns,
        limit=printable(report.limit.name),
        limit_evidence=_evidence_of(report.limit),
        level=trust_in(report).level.value,
        findings=tuple(finding.rule for finding in report.findings),
    )
