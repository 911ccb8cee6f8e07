"""The page's first tab: the kernels of a capture side by side, and a launch at a glance.

That is its facts, how far to trust it, what was found, and its scopes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kprof_inject.analysis.advice import advice_on, trust_in
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import overview
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources, limited_by
from kprof_inject.errors import printable
from kprof_inject.quantities import counted, percent, short_time, time_text
from kprof_inject.report.launch_notes import LEAST_ROOF, all_notes
from kprof_inject.report.slope_text import MEANING, slope_rows
from kprof_inject.timeline.clock import ClockSource
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import judge

_CLOCK_SOURCES = {
    ClockSource.FITTED: "fitted to the timer",
    ClockSource.ASSUMED: "assumed: the timer readings do not say",
    ClockSource.NOMINAL: "assumed: no timer was read",
    ClockSource.TIMER: "the globaltimer itself, in nanoseconds",
}
_VERSIONS = {"tool": "kprof-inject", "triton": "Triton", "torch": "PyTorch", "python": "Python"}

Row = tuple[str, str]


def facts(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    """The facts of a launch and its kernel, as texts: groups of rows, in the order in which they are read."""
    groups = {
        "Launch": _launch(timeline, summary),
        "Device and clock": _device(timeline, summary),
        "Records": _records(timeline, summary),
        "Program": _program(timeline),
    }
    known = {title: [[label, printable(value)] for label, value in rows if value] for title, rows in groups.items()}
    return [{"title": title, "rows": rows} for title, rows in known.items() if rows]


def build_rows(kernel: Kernel) -> list[list[str]]:
    """What the kernel takes: label, by itself, with records; "-" where that is unknown."""
    verdict = judge(kernel)
    times = ["run time (median)", time_text(verdict.clean_ns), time_text(verdict.with_records_ns)]
    builds = [
        [label, *(shown(kernel, cost) or "-" for cost in (kernel.clean, kernel.with_records))]
        for label, shown in _BUILD.items()
    ]
    return [times, *builds]


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
    yield f"{summary.warp_name}s", f"{summary.warps} in each {summary.cta_name}{_recorded(timeline, summary)}"
    yield "stages", _number(metadata.get("num_stages"))
    yield "CTAs in a cluster", _number(metadata.get("num_ctas") if metadata.get("num_ctas") != 1 else None)
    yield "span", time_text(summary.duration_ns if summary.ctas else None)
    if waves := summary.waves:
        yield "waves", f"{waves.fill:.2f} on {counted(waves.sms, 'SM')}, {waves.slots_per_sm} at once on each"
        if summary.ending and waves.tail.duration_ns:
            lost = percent(summary.ending.idle_share)
            yield "tail", f"{lost} of the launch lost, in its last {short_time(waves.tail.duration_ns)}"
    yield "launch", f"number {summary.launch}{', last replay of a CUDA graph' if summary.graph else ''}"


def _recorded(timeline: Timeline, summary: LaunchSummary) -> str:
    recorded = timeline.warps
    return "" if len(recorded) == summary.warps else f", of which {', '.join(map(str, recorded))} recorded"


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
    yield "cost of one", f"{cost.cycles:.0f} ± {cost.error_cycles:.0f} cycles, {cost.source}" if cost else "unknown"
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
    """As the page sets them apart."""
    return f"{count:,}".replace(",", "\u202f")


def _number(value: Any) -> str:
    return "" if value is None else f"{value}"


def launch_overview(report: LaunchAnalysis) -> dict[str, Any]:
    """``facts`` are groups of label and value, ``builds`` the rows of a table of the kernel without records and with
    them, both as texts. ``limit`` says what limits it, ``advice`` what to try, as ``advice_on`` orders it;
    ``roofs`` are what part of its cycles each scope, by its index, needs at least for its busiest unit. ``findings``
    bear the index of their scope and the CTA that they are about, or None; ``doubts`` say what could not be judged, and
    why. ``slopes`` are the places of the kernel that were delayed, those that matter most first."""
    summary, trust = report.summary, trust_in(report)
    return {
        "facts": facts(report.timeline, summary),
        "builds": build_rows(report.launch.kernel),
        "verdict": {"level": trust.level.value, "text": printable(trust.text)},
        "limit": printable(report.limit.answer),
        "advice": [
            {
                "text": printable(one.text),
                "reason": printable(one.reason),
                "share": one.share,
                "doubtful": one.is_doubtful,
            }
            for one in advice_on(report)
        ],
        "roofs": [
            {"scope": roof.index, "unit": roof.unit, "part": roof.part}
            for roof in report.speed_of_light.roofs
            if roof.part >= LEAST_ROOF
        ],
        "findings": [
            {
                "rule": finding.rule,
                "share": finding.share,
                "text": printable(finding.sentence),
                "advice": printable(finding.advice),
                "scope": finding.index,
                "cta": finding.figures.get("last_cta"),
            }
            for finding in report.findings
        ],
        "doubts": list(report.doubts),
        "slopes": slope_rows(report.slopes) if report.slopes else [],
        "slopes_say": MEANING,
        "notes": [printable(note) for note in all_notes(report)],
        "warp_time_ns": summary.warp_time_ns,
    }


def kernel_rows(reports: Sequence[LaunchAnalysis]) -> list[dict[str, Any]]:
    """The kernel that takes most of the time first. ``launch`` is the index of the launch to look at first, and
    ``others`` of all in the order of their times, the slowest first."""
    index_of = {id(report): index for index, report in enumerate(reports)}
    return [
        {
            **_row(kernel.middle, index_of),
            "name": printable(kernel.name),
            "variants": kernel.variants,
            "launches": kernel.known_launches,
            "time_ns": kernel.time_ns,
            "share": kernel.share,
            "others": [_row(report, index_of) for report in kernel.slowest_first],
        }
        for kernel in overview(reports)
    ]


def _row(report: LaunchAnalysis, index_of: dict[int, int]) -> dict[str, Any]:
    return {
        "launch": index_of[id(report)],
        "number": report.summary.launch,
        "time_ns": report.summary.duration_ns,
        "limit": printable(report.limit.name),
        "level": trust_in(report).level.value,
        "findings": [finding.rule for finding in report.findings],
    }
