"""Loops and waits among a kernel's scopes, the time of a warp, and metrics of loops.

During a wait, a warp does nothing else. Whether a wait is lost time depends on what runs meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.async_work.flights import copied_ahead
from kprof_inject.analysis.findings.evidence import Evidence
from kprof_inject.analysis.summary import ScopeSummary
from kprof_inject.analysis.unjudged import Unjudged, missing_records, unpaired_records
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import Scope, ScopeKind, ScopeTable
from kprof_inject.capture.source_text import ttgir_of
from kprof_inject.timeline.phases import LOOPS
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir import dialect
from kprof_inject.ttgir.dialect import traits_of
from kprof_inject.ttgir.loops import pipeline_of

_NUMBERED = re.compile(r"(?:loop|iter)\[(\d+(?:\.\d+)*)\]")


def has_no_loop(timeline: Timeline) -> bool:
    """Return True if the kernel's text proves that it has no loop, so that rules on loops do not apply."""
    text = "" if _recorded(timeline.table, *LOOPS) else ttgir_of(timeline.launch.kernel)
    return bool(text) and not any(operation in text for operation in dialect.LOOPS)


def unrecorded_loops(table: ScopeTable) -> Unjudged | None:
    """Return that no loop of a kernel with loops was recorded; None if one was."""
    return None if _recorded(table, *LOOPS) else Unjudged("no loop was recorded", "add --at loop --at iter")


def unrecorded_iterations(table: ScopeTable) -> Unjudged | None:
    """Return that no iteration of a kernel with loops was recorded; None if one was."""
    return None if _recorded(table, ScopeKind.ITERATION) else Unjudged("no iteration was recorded", "add --at iter")


def _recorded(table: ScopeTable, *kinds: str) -> bool:
    return any(scope.kind in kinds for scope in table.scopes)


def missing_in_loops(timeline: Timeline, name: str, unrecorded: Unjudged | None) -> Iterator[Unjudged]:
    """Yield why findings of this name on loops may be missing, such as ``unrecorded``: nothing in a kernel without."""
    needed = (unrecorded_loops(timeline.table), unrecorded, missing_records(timeline), unpaired_records(timeline))
    missing = None if has_no_loop(timeline) else next(filter(None, needed), None)
    if missing:
        yield replace(missing, finding=name)


def loops_around(table: ScopeTable) -> frozenset[int]:
    """Return the loops and iterations that contain another one."""
    inner = [index for index, scope in enumerate(table.scopes) if scope.kind in LOOPS]
    outer = (around for index in inner for around in table.around(index))
    return frozenset(index for index in outer if table.scopes[index].kind in LOOPS)


def unrecorded_before(table: ScopeTable, index: int) -> str | None:
    """Return a loop, such as ``loop[0]``, that precedes the one with this index and was not recorded."""
    recorded = {_path(scope) for scope in table.scopes}
    path = _path(table.scopes[index])
    for depth, number in enumerate(path):
        for earlier in range(number):
            if (*path[:depth], earlier) not in recorded:
                return f"loop[{'.'.join(map(str, (*path[:depth], earlier)))}]"
    return None


def _path(scope: Scope) -> tuple[int, ...]:
    """Return the numbers of a loop and of those around it, the outermost first; empty if they are unknown."""
    numbers = _NUMBERED.fullmatch(scope.label or scope.name)
    return tuple(map(int, numbers[1].split("."))) if numbers else ()


# Scopes around operations or lines, which the user may have named.
_NAMED_KINDS = (ScopeKind.OPERATION, ScopeKind.MARKER, ScopeKind.LINES)
_NAMES_OF_WAITS = frozenset({"wait", "waits", "waiting", "barrier", "barriers"})
_WORD = re.compile(r"[a-z]+")
_OPERATION_NAME = re.compile(r"[a-z]+\.[a-z]")


def is_wait(scope: Scope) -> bool:
    """Return True if a scope is a wait, by its operation or by the name that the user gave it."""
    if scope.kind not in _NAMED_KINDS:
        return scope.kind == ScopeKind.SPIN
    return traits_of(_operation(scope)).is_wait or (
        not _OPERATION_NAME.match(scope.name) and not _NAMES_OF_WAITS.isdisjoint(_WORD.findall(scope.name.lower()))
    )


def _operation(scope: Scope) -> str:
    return (scope.label or scope.name) if scope.kind == ScopeKind.OPERATION else ""


def time_of_a_warp_ns(evidence: Evidence) -> float:
    """Return the time of all warps with the same number, from begin to end of their CTAs, summed; at least 1."""
    return max(evidence.summary.warp_time_ns / max(len(evidence.timeline.warps), 1), 1.0)


def warps_share(evidence: Evidence, scope: ScopeSummary, time_ns: float) -> float:
    """Return ``time_ns`` as a part of the time of those warps that ran the scope."""
    return min(time_ns / (max(len(scope.warps.ids), 1) * time_of_a_warp_ns(evidence)), 1.0)


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


def loop_figures(evidence: Evidence, index: int) -> LoopFigures:
    """Return the metrics of a loop, by its index in the launch's scope table."""
    roof = next((roof for roof in evidence.speed_of_light.roofs if roof.index == index), None)
    return LoopFigures(roof.parts if roof else {}, _ahead(evidence, index), _wait_ns(evidence, index))


def _ahead(evidence: Evidence, index: int) -> int | None:
    ran = evidence.executed
    loop = ran.scope_map.loop_of(index) if ran else None
    if ran is None or loop is None:
        return None
    if (pipeline := pipeline_of(ran.module, loop)) is not None:
        return copied_ahead(ran, evidence.kernel, pipeline).bytes_per_sm()
    forms = [one.access.form for one in ran.of_loop(loop) if one.access is not None]
    only_loads = any(form.reads for form in forms) and all(form.by_registers for form in forms)
    return 0 if only_loads else None


def _wait_ns(evidence: Evidence, loop: int) -> float | None:
    table, scopes = evidence.timeline.table, evidence.summary.scopes
    inside = [index for index in range(len(scopes)) if loop in table.around(index)]
    waits = [index for index in inside if is_wait(table.scopes[index]) and scopes[index].count]
    if not waits:
        return None
    iterations = [
        index
        for index in (loop, *inside)
        if table.scopes[index].kind == ScopeKind.ITERATION and loop in (index, table.scopes[index].parent)
    ]
    # Without records of iterations, the wait that is reached most often counts them.
    count = max(scopes[index].count for index in iterations or waits)
    return sum(scopes[index].total_ns or 0 for index in waits) / count if count else None
