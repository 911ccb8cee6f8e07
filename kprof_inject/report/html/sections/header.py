"""The facts of a launch and its kernel, as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.reader import Kernel
from kprof_inject.printable import printable
from kprof_inject.report.occupancy_limits import limited_by
from kprof_inject.report.quantities import counted, percent, short_time, time_text
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import median_time_ns

_CLOCK_SOURCES = {
    "fitted": "fitted to the timer",
    "assumed": "assumed: the timer readings cannot tell",
    "nominal": "assumed: no timer was read",
}
_VERSIONS = {"tool": "kprof-inject", "triton": "Triton", "torch": "PyTorch", "python": "Python"}

Row = tuple[str, str]


def facts(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    """Groups of rows, in the order in which they are read."""
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
    return [
        [label, *(shown(kernel, cost) or "-" for cost in (kernel.clean, kernel.with_records))]
        for label, shown in _BUILD.items()
    ]


_BUILD: dict[str, Callable[[Kernel, KernelCost], str]] = {
    "time (median)": lambda _, cost: time_text(median_time_ns(cost)),
    "registers per thread": lambda _, cost: _number(cost.registers),
    "spills": lambda _, cost: _number(cost.spills),
    "shared memory": lambda _, cost: "" if cost.shared_bytes is None else f"{_thousands(cost.shared_bytes)} bytes",
    "CTAs per SM": lambda _, cost: _number(cost.ctas_per_sm),
    "limited by": limited_by,
}


def _launch(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    metadata = timeline.launch.kernel.metadata
    yield "kernel", summary.kernel
    yield "grid", f"{' x '.join(map(str, summary.grid))}, {counted(summary.ctas, 'CTA')} ran"
    yield "warps", f"{summary.warps} in each CTA{_recorded(timeline, summary)}"
    yield "stages", _number(metadata.get("num_stages"))
    yield "CTAs in a cluster", _number(metadata.get("num_ctas") if metadata.get("num_ctas") != 1 else None)
    yield "duration", time_text(summary.duration_ns)
    if waves := summary.waves:
        yield "waves", f"{waves.fill:.2f} on {counted(waves.sms, 'SM')}, {waves.slots_per_sm} at once on each"
        yield "tail", f"{short_time(waves.tail.duration_ns)}, {percent(waves.tail.share)}"
    yield "launch", f"number {summary.launch}{', last replay of a CUDA graph' if summary.graph else ''}"


def _recorded(timeline: Timeline, summary: LaunchSummary) -> str:
    recorded = timeline.warps
    return "" if len(recorded) == summary.warps else f", of which {', '.join(map(str, recorded))} recorded"


def _device(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    launch, clock = timeline.launch, timeline.clock
    target = launch.kernel.metadata.get("target")
    yield "device", launch.device_name or f"number {launch.device}"
    if isinstance(target, dict):
        yield "target", f"{target.get('backend', '')}:{target.get('arch', '')}"
    measured = f" ± {100 * clock.rate_error:.2f} %" if clock.source == "fitted" else ""
    yield "clock", f"{summary.clock_mhz:.0f} MHz{measured}, {_CLOCK_SOURCES[clock.source]}"
    yield "nominal clock", "" if summary.nominal_mhz is None else f"{summary.nominal_mhz:.0f} MHz"
    if clock.source == "fitted":
        yield "timer readings", f"{clock.readings}, within {clock.residual_ns:.0f} ns of the fit (rms)"


def _records(timeline: Timeline, summary: LaunchSummary) -> Iterator[Row]:
    mode = timeline.launch.kernel.mode
    yield "scopes", _thousands(timeline.scope_count)
    yield "records", f"{_thousands(summary.records_written)} written, {_thousands(summary.records_lost)} lost"
    cost = summary.record_cost
    yield "cost of one", f"{cost.cycles:.0f} ± {cost.error_cycles:.0f} cycles, {cost.source}" if cost else "unknown"
    if summary.subtracted_ns and summary.warp_time_ns:
        taken = summary.subtracted_ns / summary.warp_time_ns
        yield "subtracted", f"{percent(taken)} of the warps' time"
    size = f", {_thousands(mode.buffer_bytes)} bytes for each CTA" if mode.buffer_bytes else ""
    yield "buffer", f"{mode.buffer} memory{size}"
    yield "clock bits", f"{mode.clock_bits}{', stores moved' if mode.sched_stores else ''}"


def _program(timeline: Timeline) -> Iterator[Row]:
    process = timeline.launch.process or {}
    argv = process.get("argv")
    if isinstance(argv, list):
        yield "command", " ".join(map(str, argv))
    for key, name in _VERSIONS.items():
        if process.get(key):
            yield name, str(process[key])


def _thousands(count: int) -> str:
    """As the page sets them apart."""
    return f"{count:,}".replace(",", "\u202f")


def _number(value: Any) -> str:
    return "" if value is None else f"{value}"
