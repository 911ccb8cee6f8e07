"""Metrics of a loop that show why one build of it is slower: load of the units, bytes copied ahead, waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from kprof_inject.analysis.async_work.flights import copied_ahead
from kprof_inject.analysis.findings.loops import is_wait
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.ttgir.loops import pipeline_of


class LoopFigures(Struct, frozen=True):
    """Metrics of one loop."""

    parts: Mapping[str, float]
    """Lower bound of the part of the loop's time that each unit needs, from 0 to 1; empty if unknown."""
    ahead_bytes_per_sm: int | None
    """Bytes in flight by copies issued ahead. 0 in a loop that only loads into registers; None if unknown: copies by
    TMA, or by another partition."""
    wait_ns: float | None
    """Mean wait of a warp in an iteration; None if no wait was recorded."""

    @property
    def unit(self) -> str | None:
        """The busiest unit."""
        return max(self.parts, key=lambda unit: self.parts[unit]) if self.parts else None

    def to_json(self) -> dict[str, Any]:
        """Return the metrics as JSON values."""
        return {**json_values(self), "unit": self.unit}


def loop_figures(analysis: LaunchAnalysis, index: int) -> LoopFigures:
    """Return the metrics of a loop, by its index in the launch's scope table."""
    roof = next((roof for roof in analysis.speed_of_light.roofs if roof.index == index), None)
    table = analysis.timeline.table
    return LoopFigures(roof.parts if roof else {}, _ahead(analysis, index), _wait_ns(table, analysis.summary, index))


def _ahead(analysis: LaunchAnalysis, index: int) -> int | None:
    ran = analysis.executed
    if ran is None:
        return None
    loop = ran.scope_map.loop_of(index)
    if loop is None:
        return None
    if (pipeline := pipeline_of(ran.module, loop)) is not None:
        return copied_ahead(ran, analysis.launch.kernel, pipeline).bytes_per_sm()
    forms = [one.access.form for one in ran.of_loop(loop) if one.access is not None]
    only_loads = any(form.reads for form in forms) and all(form.by_registers for form in forms)
    return 0 if only_loads else None


def _wait_ns(table: ScopeTable, summary: LaunchSummary, loop: int) -> float | None:
    inside = [index for index in range(len(table.scopes)) if loop in table.around(index)]
    waits = [index for index in inside if is_wait(table.scopes[index]) and summary.scopes[index].count]
    if not waits:
        return None
    iterations = [index for index in (loop, *inside) if _counts_iterations(table, index, loop)]
    # Without records of iterations, the wait that is reached most often counts them.
    count = max(summary.scopes[index].count for index in iterations or waits)
    return sum(summary.scopes[index].total_ns or 0 for index in waits) / count if count else None


def _counts_iterations(table: ScopeTable, index: int, loop: int) -> bool:
    scope = table.scopes[index]
    return scope.kind == ScopeKind.ITERATION and (index == loop or scope.parent == loop)
