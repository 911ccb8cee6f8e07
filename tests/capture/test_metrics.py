"""Which metrics ``--counters`` names."""

from __future__ import annotations

import pytest

from kprof_inject.capture.counters import DEFAULT_METRICS, DRAM, TIME_NS, parse_metrics
from kprof_inject.errors import KprofError


def test_none_and_default() -> None:
    assert parse_metrics("none") == ()
    assert parse_metrics("default") == DEFAULT_METRICS
    assert {TIME_NS, DRAM} < set(DEFAULT_METRICS)
    assert len(set(DEFAULT_METRICS)) == len(DEFAULT_METRICS)


def test_metrics_are_added_once() -> None:
    found = parse_metrics(f"sm__inst_executed_pipe_adu.sum, {TIME_NS}")
    assert found == (*DEFAULT_METRICS, "sm__inst_executed_pipe_adu.sum")


@pytest.mark.parametrize("text", ["", "all", "sm__inst", "a.b c.d", "default,none"])
def test_what_is_no_metric(text: str) -> None:
    with pytest.raises(KprofError, match="is no name of a metric") as error:
        parse_metrics(text)
    assert error.value.exit_code == 2
