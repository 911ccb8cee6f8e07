"""What stands over a launch's table: which launch it is, what its kernel takes, and how far to trust the figures."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.capture.reader import Kernel
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.occupancy_limits import limited_by
from kprof_inject.report.quantities import counted, time_text
from kprof_inject.timeline.trust import Verdict

# By the clock's source.
_CLOCK_TITLES = {"fitted": "SM clock", "assumed": "assumed SM clock", "nominal": "assumed SM clock"}


def header_lines(report: LaunchReport, place_name: str) -> Iterator[str]:
    """``place_name`` is where the launch ran, empty if there is but one place."""
    yield _title(report, place_name)
    build = list(_build(report.launch.kernel))
    if build:
        yield f"  kernel: {', '.join(build)}"
    yield f"  trust: {_trust(report.verdict)}"


def _title(report: LaunchReport, place_name: str) -> str:
    summary = report.summary
    place = f"{place_name}: " if place_name else ""
    replay = " (last replay of a CUDA graph)" if summary.graph else ""
    grid = "x".join(map(str, summary.grid))
    return (
        f"{place}{summary.kernel}, launch {summary.launch}{replay}: grid {grid}, {counted(summary.warps, 'warp')}, "
        f"{time_text(summary.duration_ns)}, {_CLOCK_TITLES[summary.clock_source]} {summary.clock_mhz:.0f} MHz"
    )


def _build(kernel: Kernel) -> Iterator[str]:
    """By itself, as far as that is known; else with records."""
    clean, recorded = kernel.clean, kernel.with_records
    registers = recorded.registers if clean.registers is None else clean.registers
    spills = recorded.spills if clean.spills is None else clean.spills
    shared_bytes = recorded.shared_bytes if clean.shared_bytes is None else clean.shared_bytes
    if registers is not None:
        yield counted(registers, "register")
    if spills is not None:
        yield counted(spills, "spill") if spills else "no spills"
    if shared_bytes is not None:
        yield f"{shared_bytes} bytes of shared memory"
    if recorded.ctas_per_sm is not None:
        limit = limited_by(kernel, recorded)
        yield f"room for {counted(recorded.ctas_per_sm, 'CTA')} on an SM{f' (by {limit})' if limit else ''}"


def _trust(verdict: Verdict) -> str:
    return f"{verdict.level.value} ({verdict.overhead})" if verdict.overhead else verdict.level.value
