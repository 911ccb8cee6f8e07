"""Figures that the terminal's first screen and the page both show, as text."""

from __future__ import annotations

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.quantities import resolved_time, short_time


def run_times_text(report: LaunchAnalysis) -> str:
    """Return the kernel's median run time without records and with them; empty if it was not timed."""
    verdict = report.verdict
    if verdict.clean_ns is None or verdict.with_records_ns is None:
        return ""
    by_events = " (CUDA events)" if verdict.has_launching else ""
    clean, with_records = short_time(verdict.clean_ns), short_time(verdict.with_records_ns)
    return f"median {clean} without records, {with_records} with{by_events}"


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
