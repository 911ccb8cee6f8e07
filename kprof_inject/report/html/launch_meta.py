"""What the page knows of a launch before its scopes are read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from kprof_inject.capture.reader import Kernel
from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.printable import printable
from kprof_inject.report.html.payload.limits import Shown
from kprof_inject.report.kernel_files import sources_of
from kprof_inject.report.summary import LaunchSummary, PartitionSummary
from kprof_inject.timeline.partitions import by_warp
from kprof_inject.timeline.timeline import Timeline


def launch_meta(
    timeline: Timeline, summary: LaunchSummary, kernel_name: str, place_name: str, shown: Shown
) -> dict[str, Any]:
    """``first_ns`` is a text, for JavaScript's numbers do not hold it exactly; all other times of the page are
    nanoseconds since then. ``scopes`` has the scope table; a scope's ``text`` is its line of the source,
    ``self_name`` what its self time is called. ``partitions``
    are empty unless the kernel is warp specialised; ``partition_of_warp`` says of each of ``warps`` what it runs,
    ``function_of_warp`` what the code calls that."""
    partitions = by_warp(timeline.partitions)
    return {
        "kernel": kernel_name,
        "variant": summary.variant,
        "launch": summary.launch,
        "graph": summary.graph,
        "place": place_name,
        "device": timeline.launch.device_name,
        "grid": list(summary.grid),
        "warps_per_cta": summary.warps,
        "warps": list(timeline.warps),
        "ctas": summary.ctas,
        "first_ns": str(timeline.first_ns),
        "span_ns": timeline.last_ns - timeline.first_ns,
        "duration_ns": summary.duration_ns if summary.ctas else None,
        "clock_ghz": timeline.clock.clock_hz / 1e9,
        "clock_source": summary.clock_source,
        "scope_count": timeline.scope_count,
        "shown_scopes": shown.scopes,
        "shown_ctas": shown.cta_count(timeline),
        "partitions": [_partition(partition) for partition in summary.partitions],
        "partition_of_warp": [_listed(one.name for one in partitions.get(warp, ())) for warp in timeline.warps],
        "function_of_warp": [_listed(one.function for one in partitions.get(warp, ())) for warp in timeline.warps],
        "scopes": _scopes(timeline, summary),
    }


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(filter(None, names)))


def _partition(partition: PartitionSummary) -> dict[str, Any]:
    return {
        "title": printable(partition.title),
        "scopes": list(partition.scopes),
        "whole_ns": partition.whole_ns,
        "outside_ns": partition.outside_ns,
    }


def _scopes(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    lines = _Lines(timeline.launch.kernel)
    return [
        {
            "name": scope.name,
            "kind": scope.kind,
            "source": _short(scope.source),
            "path": scope.source,
            "text": lines.of(scope),
            "called_from": [_short(place) for place in scope.called_from],
            "parent": scope.parent,
            "lane": lane,
            "self_name": "self" if mine.between_iterations_ns is None else "between iterations",
        }
        for scope, mine, lane in zip(timeline.table.scopes, summary.scopes, timeline.lanes.tolist(), strict=True)
    ]


def _short(place: str) -> str:
    """``file.py:12`` without the folders."""
    return PurePath(place).name if place else ""


class _Lines:
    """The lines of the kernel's source files, as far as the capture has them."""

    def __init__(self, kernel: Kernel) -> None:
        self._sources = sources_of(kernel)
        self._lines: dict[str, list[str]] = {}

    def of(self, scope: ScopeInfo) -> str:
        path, _, number = scope.source.rpartition(":")
        if path not in self._sources or not number.isdecimal():
            return ""
        if path not in self._lines:
            # As editors count lines: form feeds and the like end none.
            self._lines[path] = self._sources[path].replace("\r\n", "\n").split("\n")
        lines = self._lines[path]
        return lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""
