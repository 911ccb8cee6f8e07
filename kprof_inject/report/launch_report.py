"""All that a report says of one launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kprof_inject.capture.reader import Launch
from kprof_inject.report.findings.doubts import doubts_about
from kprof_inject.report.findings.finding import Finding
from kprof_inject.report.findings.rules import find
from kprof_inject.report.summary import LaunchSummary, summarise
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.trust import Verdict, judge


@dataclass(frozen=True, slots=True)
class LaunchReport:
    """A launch, its figures, what limits it, and how far to trust that: ``doubts`` are what could not be judged."""

    launch: Launch
    summary: LaunchSummary
    findings: tuple[Finding, ...]
    doubts: tuple[str, ...]
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """The summary's values, with ``findings``, ``doubts`` and ``trust``."""
        return {
            **self.summary.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "doubts": list(self.doubts),
            "trust": self.verdict.to_json(),
        }


def report_on(timeline: Timeline) -> LaunchReport:
    summary, verdict = summarise(timeline), judge(timeline.launch.kernel)
    doubts = tuple(doubts_about(timeline, summary, verdict))
    return LaunchReport(timeline.launch, summary, find(timeline, summary), doubts, verdict)
