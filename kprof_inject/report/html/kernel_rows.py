"""The kernels of a capture side by side, for the page's first tab: a row each, and one for each of their launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kprof_inject.analysis.advice import trust_in
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program_overview import overview
from kprof_inject.errors import printable


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
