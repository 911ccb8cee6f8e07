"""What is to be known of a launch at a glance: its facts, how far to trust it, what was found, and its scopes."""

from __future__ import annotations

from typing import Any

from kprof_inject.printable import printable
from kprof_inject.report.html.sections.header import build_rows, facts
from kprof_inject.report.launch_notes import launch_notes
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.timeline.timeline import Timeline


def launch_overview(timeline: Timeline, report: LaunchReport) -> dict[str, Any]:
    """``facts`` are groups of label and value, ``builds`` the rows of a table of the kernel without records and with
    them, both as texts; ``findings`` bear the index of their scope, or None; ``doubts`` say what could not be
    judged, and why."""
    summary, verdict = report.summary, report.verdict
    index_of = {scope.scope: index for index, scope in reversed(list(enumerate(summary.scopes)))}
    return {
        "facts": facts(timeline, summary),
        "builds": build_rows(report.launch.kernel),
        "verdict": {"level": verdict.level.value, "text": printable(verdict.text)},
        "findings": [
            {
                "rule": finding.rule,
                "share": finding.share,
                "text": printable(finding.text),
                "advice": printable(finding.advice),
                "scope": None if finding.scope is None else index_of.get(finding.scope),
            }
            for finding in report.findings
        ],
        "doubts": list(report.doubts),
        "notes": [printable(note) for note in launch_notes(summary)],
        "warp_time_ns": summary.warp_time_ns,
    }
