"""The metrics of a watched program, in a file in Prometheus' text format. Needs prometheus-client.

The file is one for the "textfile collector" of Prometheus' node exporter, which reads ``*.prom`` in a folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from kprof_inject.export.arrow import optional_module
from kprof_inject.watching.history import HistoryRow
from kprof_inject.watching.slowdowns import KernelPast

_KERNEL_LABELS = ("kernel", "variant", "grid", "device", "rank")
_S_PER_NS = 1e-9


class WatchState(Struct, frozen=True):
    """The state that the metrics show.

    ``latest`` has the rows of each kernel's last launch, by its key: its own first, then those of its scopes. ``pasts``
    has the same keys. ``slowdown`` is the part of the program's time that the captures took; None if it is unknown.
    """

    latest: Mapping[tuple[str, ...], list[HistoryRow]]
    pasts: Mapping[tuple[str, ...], KernelPast]
    captures: int
    alarms: int
    slowdown: float | None


class MetricsFile:
    """The file with the metrics. Raises ``KprofError`` without prometheus-client."""

    def __init__(self, path: Path) -> None:
        """Write to ``path``, whose folder need not exist."""
        self._path = path
        self._prometheus = optional_module("prometheus_client", "prometheus-client")

    def write(self, state: WatchState) -> None:
        """Replace the file; readers see either the old state or the new one."""
        registry = self._prometheus.CollectorRegistry()

        def gauge(name: str, help_text: str, *labels: str) -> Any:
            return self._prometheus.Gauge(f"kprof_{name}", help_text, labels, registry=registry)

        duration = gauge("kernel_duration_seconds", "Duration of the last recorded launch", *_KERNEL_LABELS)
        usual = gauge("kernel_usual_duration_seconds", "Median duration of the launches before", *_KERNEL_LABELS)
        is_slower = gauge("kernel_is_slower", "1 if it is slower than its own past", *_KERNEL_LABELS)
        scope = gauge("scope_duration_seconds", "Median duration of a scope in it", *_KERNEL_LABELS, "scope")
        for key, (of_launch, *of_scopes) in state.latest.items():
            past = state.pasts[key]
            duration.labels(*key).set(of_launch.duration_ns * _S_PER_NS)
            is_slower.labels(*key).set(past.slowdown is not None)
            if past.usual_ns is not None:
                usual.labels(*key).set(past.usual_ns * _S_PER_NS)
            for row in of_scopes:
                scope.labels(*key, row.scope).set(row.p50_ns * _S_PER_NS)
        gauge("watch_captures", "Captures read since the watch began").set(state.captures)
        gauge("watch_alarms", "Alarms raised since the watch began").set(state.alarms)
        if state.slowdown is not None:
            gauge("watch_slowdown_ratio", "Part of the program's time that watching takes").set(state.slowdown)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._prometheus.write_to_textfile(str(self._path), registry)
