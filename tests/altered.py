"""Analyses of launches with some parts replaced, and their answers, for tests of printed text."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from kprof_inject.analysis.launch import LaunchAnalysis, ReportLaunch
from kprof_inject.analysis.program import Report
from kprof_inject.report.facts import Answer, Answers


def altered(analysis: LaunchAnalysis, **parts: Any) -> LaunchAnalysis:
    """Return a copy with these parts; findings are those of its judgements, and utilizations those of its limit."""
    made = replace(analysis, **({"parts": parts["limit"].parts} if "limit" in parts else {}), **parts)
    if "judgements" not in parts:
        return made
    found = [finding for judgement in made.judgements for finding in judgement.findings]
    return replace(made, findings=tuple(sorted(found, key=lambda finding: -finding.expected)))


def report_of(*analyses: LaunchAnalysis) -> Report:
    """The report on launches that are analysed already."""
    launches = []
    for analysis in analyses:
        one = ReportLaunch.of(analysis.timeline)
        one.headers = replace(one.headers, duration_ns=analysis.summary.duration_ns)
        one.__dict__["analysis"] = analysis
        launches.append(one)
    return Report(launches)


def answer_of(analysis: LaunchAnalysis, **changes: Any) -> Answer:
    """The answer on one launch."""
    return replace(Answers(report_of(analysis)).first, **changes)
