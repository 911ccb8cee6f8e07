"""What the page's views show of a launch, as JSON values of bounded size."""

from __future__ import annotations

from typing import Any

from kprof_inject.report.html.sections.heat_map import sm_heat_map
from kprof_inject.report.html.sections.overview import launch_overview
from kprof_inject.report.html.sections.scopes import scope_pictures
from kprof_inject.report.html.sections.source import source_lines
from kprof_inject.report.html.sections.ttgir import ttgir_lines
from kprof_inject.report.launch_report import LaunchReport
from kprof_inject.timeline.timeline import Timeline


def all_sections(timeline: Timeline, report: LaunchReport) -> dict[str, Any]:
    """One for each view, by its name. ``report`` is that of this timeline."""
    summary = report.summary
    return {
        "overview": launch_overview(timeline, report),
        "heat_map": sm_heat_map(timeline, summary),
        "scopes": scope_pictures(timeline, summary),
        "source": source_lines(timeline, summary),
        "ttgir": ttgir_lines(timeline),
    }
