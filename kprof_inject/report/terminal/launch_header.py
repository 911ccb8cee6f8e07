"""What stands over a launch's table: which launch it is, what its kernel takes, and how far to trust the figures."""

from __future__ import annotations

from collections.abc import Iterator

from kprof_inject.capture.costs import KernelCost
from kprof_inject.capture.reader import Kernel
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.report.occupancy_limits import limited_by
from kprof_inject.report.quantities import counted, time_text

# By the clock's source.
_CLOCK_TITLES = {"fitted": "SM clock", "assumed": "assumed SM clock", "nominal": "assumed SM clock"}


def header_lines(report: LaunchReport, kernel_name: str, place_name: str) -> Iterator[str]:
    """``place_name`` is where the launch ran, empty if there is but one place."""
    yield _title(report, kernel_name, place_name)
    yield from _build(report.launch.kernel)
    yield f"  trust: {report.verdict.headline}"


def _title(report: LaunchReport, kernel_name: str, place_name: str) -> str:
    summary = report.summary
    place = f"{place_name}: " if place_name else ""
    replay = " (last replay of a CUDA graph)" if summary.graph else ""
    grid = "x".join(map(str, summary.grid))
    span = time_text(summary.duration_ns if summary.ctas else None)
    return (
        f"{place}{kernel_name}, launch {summary.launch}{replay}: grid {grid}, {counted(summary.warps, 'warp')}, "
        f"span {span}, {_CLOCK_TITLES[summary.clock_source]} {summary.clock_mhz:.0f} MHz"
    )


def _build(kernel: Kernel) -> Iterator[str]:
    """By itself, if that is known; else with records."""
    which, cost = "by itself", kernel.clean
    if cost.registers is None:
        which, cost = "with records", kernel.with_records
    if facts := list(_facts(kernel, cost)):
        yield f"  kernel {which}: {', '.join(facts)}"


def _facts(kernel: Kernel, cost: KernelCost) -> Iterator[str]:
    if cost.registers is not None:
        yield counted(cost.registers, "register")
    if cost.spills is not None:
        yield counted(cost.spills, "spill") if cost.spills else "no spills"
    if cost.shared_bytes is not None:
        yield f"{cost.shared_bytes} bytes of shared memory"
    if cost.ctas_per_sm is not None:
        limit = limited_by(kernel, cost)
        yield f"room for {counted(cost.ctas_per_sm, 'CTA')} on an SM{f' (by {limit})' if limit else ''}"
