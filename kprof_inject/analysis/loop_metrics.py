"""What a loop needs of the SM, copies ahead and waits for: figures that tell why one build of it is slower."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kprof_inject.analysis.async_work.copied_ahead import copied_ahead
from kprof_inject.analysis.findings.loops import is_wait
from kprof_inject.analysis.interpreter.executions import ExecutedKernel, executed_kernel
from kprof_inject.analysis.roofs.speed_of_light import speed_of_light
from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind, ScopeTable
from kprof_inject.errors import KprofError
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.copy_groups import pipeline_of
from kprof_inject.ttgir.nodes import Operation


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


class LaunchLoops:
    """The loops of one launch."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._summary = summarise(timeline)
        self._ran = _ran(timeline, self._summary)
        light = speed_of_light(timeline, self._summary, self._ran) if self._ran else None
        self._roofs = {roof.index: roof for roof in light.roofs} if light else {}

    def figures(self, index: int) -> LoopFigures:
        """``index`` is the loop's in the scope table."""
        table = self._timeline.table
        roof = self._roofs.get(index)
        return LoopFigures(roof.parts if roof else {}, self._ahead(index), _wait_ns(table, self._summary, index))

    def _ahead(self, index: int) -> int | None:
        ran, loop = self._ran, self._loop(self._timeline.table.scopes[index])
        if ran is None or loop is None:
            return None
        if (pipeline := pipeline_of(loop)) is not None:
            return copied_ahead(ran, self._timeline.launch.kernel, pipeline).bytes_per_sm()
        forms = [one.access.form for one in ran.of_loop(loop) if one.access is not None]
        only_loads = any(form.reads for form in forms) and all(form.by_registers for form in forms)
        return 0 if only_loads else None

    def _loop(self, scope: ScopeInfo) -> Operation | None:
        """The loop that a scope stands around, or whose iterations it stands for."""
        if self._ran is None or scope.lines is None:
            return None
        module, (begin, end) = self._ran.module, scope.lines
        for loop in (one for one in module.walk() if one.traits.is_loop):
            first, last = module.line_numbers([loop.start, loop.end - 1])
            if first <= begin <= first + 1 and last - 1 <= end <= last:
                return loop
        return None


def _ran(timeline: Timeline, summary: LaunchSummary) -> ExecutedKernel | None:
    try:
        return executed_kernel(timeline.launch, summary)
    except KprofError:
        return None


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
