"""All rules, and what they find in a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kprof_inject.report.findings.finding import Finding
from kprof_inject.report.findings.imbalanced_warps import imbalanced_warps
from kprof_inject.report.findings.iterations import first_iterations, last_iteration
from kprof_inject.report.findings.low_fill import low_fill
from kprof_inject.report.findings.phases import epilogue, prologue
from kprof_inject.report.findings.tail import tail
from kprof_inject.report.findings.uneven_ctas import uneven_ctas
from kprof_inject.report.findings.waiting import waiting
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline

Rule = Callable[[Timeline, LaunchSummary], Iterator[Finding]]

RULES: tuple[Rule, ...] = (
    low_fill,
    tail,
    uneven_ctas,
    imbalanced_warps,
    prologue,
    epilogue,
    first_iterations,
    last_iteration,
    waiting,
)


def find(timeline: Timeline, summary: LaunchSummary) -> tuple[Finding, ...]:
    """What limits the launch, that which explains most of its time first; nothing if no rule applies."""
    found = [finding for rule in RULES for finding in rule(timeline, summary)]
    # Those that explain as much stay in the order of the rules.
    return tuple(sorted(found, key=lambda finding: -finding.share))
