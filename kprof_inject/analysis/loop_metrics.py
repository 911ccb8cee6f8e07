"""What a loop needs of the SM, copies ahead and waits for: figures that tell why one build of it is slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kprof_inject.analysis.async_work.flight_metrics import copied_ahead
from kprof_inject.analysis.findings.loops import is_wait
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.scope_map import ScopeMap
from kprof_inject.analysis.summary import LaunchSummary
from kprof_inject.analysis.unjudged import Unjudged
from kprof_inject.capture.scopes import ScopeKind, ScopeTable
from kprof_inject.ttgir.copy_groups import pipeline_of


@dataclass(frozen=True, slots=True)
class LoopFigures:
    """``parts`` are what each unit needs of the loop's time at least, from 0 to 1; empty if that is unknown.
    ``ahead_bytes_per_sm`` is 0 in a loop that only loads into registers, and None if nobody knows: copies by TMA, or by
    another partition. ``wait_ns`` is what a warp waits in an iteration; None if no wait was recorded."""

    parts: Mapping[str, float]
    ahead_bytes_per_sm: int | None
    wait_ns: float | None

    @property
    def unit(self) -> str | None:
        """The busiest."""
        return max(self.parts, key=lambda unit: self.parts[unit]) if self.parts else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "unit": self.unit}


def loop_figures(analysis: LaunchAnalysis, index: int) -> LoopFigures:
    """Return the metrics of a loop, by its index in the launch's scope table."""
    roof = next((roof for roof in analysis.speed_of_light.roofs if roof.index == index), None)
    table = analysis.timeline.table
    return LoopFigures(roof.parts if roof else {}, _ahead(analysis, index), _wait_ns(table, analysis.summary, index))


def _ahead(analysis: LaunchAnalysis, index: int) -> int | None:
    ran = analysis.executed
    if isinstance(ran, Unjudged):
        return None
    loop = ScopeMap(ran.module, analysis.timeline.table).loop_of(index)
    if loop is None:
        return None
    if (pipeline := pipeline_of(loop)) is not None:
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
