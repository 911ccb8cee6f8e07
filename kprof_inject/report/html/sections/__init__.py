"""What the page's views show of a launch, as JSON values of bounded size."""

from __future__ import annotations

from typing import Any

from kprof_inject.report.html.sections.heat_map import sm_heat_map
from kprof_inject.report.html.sections.overview import launch_overview
from kprof_inject.report.html.sections.scopes import scope_pictures
from kprof_inject.report.html.sections.source import source_lines
from kprof_inject.report.html.sections.ttgir import ttgir_lines
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.timeline import Timeline


def all_sections(timeline: Timeline, summary: LaunchSummary) -> dict[str, Any]:
    """One for each view, by its name. ``summary`` is that of this timeline."""
    return {
        "overview": launch_overview(timeline, summary),
        "heat_map": sm_heat_map(timeline, summary),
        "scopes": scope_pictures(timeline, summary),
        "source": source_lines(timeline, summary),
        "ttgir": ttgir_lines(timeline),
    }
