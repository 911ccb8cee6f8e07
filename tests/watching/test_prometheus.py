"""The metrics, as Prometheus' own parser reads them."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from watching.test_history import ROW, SCOPE

from kprof_inject.watching.metrics import MetricsFile, WatchState
from kprof_inject.watching.slowdowns import KernelPast, Sample


def test_prometheus_reads_them(tmp_path: Path) -> None:
    past = KernelPast(0.05)
    for number in range(20):
        past.add(Sample(number, 1000.0, None))
    state = WatchState({ROW.key: [ROW, SCOPE]}, {ROW.key: past}, 20, 1, 0.0004)
    path = tmp_path / "new" / "metrics.prom"
    file = MetricsFile(path)
    file.write(state)
    file.write(state)
    values = {
        (sample.name, sample.labels.get("scope", "")): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }
    assert values == {
        ("kprof_kernel_duration_seconds", ""): pytest.approx(2e-6),
        ("kprof_kernel_usual_duration_seconds", ""): pytest.approx(1e-6),
        ("kprof_kernel_is_slower", ""): 0,
        ("kprof_scope_duration_seconds", "loop[0]"): pytest.approx(1e-6),
        ("kprof_watch_captures", ""): 20,
        ("kprof_watch_alarms", ""): 1,
        ("kprof_watch_slowdown_ratio", ""): 0.0004,
    }
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.prom"]
