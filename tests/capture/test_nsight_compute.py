"""Reports of Nsight Compute, read by a stand-in for NVIDIA's module; and by the real one, where it is installed."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import ncu_reports
import pytest
from ncu_reports import complete, save_report, shape

from kprof_inject.capture import counters
from kprof_inject.capture.counters import DEFAULT_METRICS
from kprof_inject.capture.nsight_compute import read_report
from kprof_inject.errors import KprofError

ACTIVE, ELAPSED = ".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"
ALU = "sm__inst_executed_pipe_alu"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", ncu_reports)


def metrics_of(folder: Path, metrics: ncu_reports.Metrics) -> dict[str, float]:
    (launch,) = read_report(save_report(folder / "one.ncu-rep", [("k", metrics)]))
    return dict(launch.counters.metrics)


def test_a_report_has_the_launches_of_all_ranges_in_order(fake: None, tmp_path: Path) -> None:
    name, metrics = complete("matmul", (8, 4, 2), 128)
    more = {**metrics, "launch__registers_per_thread": 210, "profiler__replayer_passes": 32}
    path = save_report(tmp_path / "a.ncu-rep", [complete("add", (1, 1, 1), 64), (name, more)], [("add", {})])
    first, second, third = read_report(path)
    assert (first.kernel, first.grid, first.block_threads, first.registers) == ("add", (1, 1, 1), 64, None)
    assert (second.kernel, second.grid, second.block_threads, second.registers) == ("matmul", (8, 4, 2), 128, 210)
    assert (first.counters.passes, second.counters.passes) == (1, 32)
    assert tuple(second.counters.metrics) == DEFAULT_METRICS
    assert (third.grid, third.block_threads, dict(third.counters.metrics)) == (None, None, {})


def test_only_numbers_of_metrics_that_we_know_are_taken(fake: None, tmp_path: Path) -> None:
    metrics = {counters.TIME_NS: 5.0, counters.L2: math.nan, counters.DRAM: math.inf, counters.ALU: None, "other": 1.0}
    assert metrics_of(tmp_path, metrics) == {counters.TIME_NS: 5.0}


def test_shares_of_the_active_time_become_shares_of_the_launchs(fake: None, tmp_path: Path) -> None:
    cycles = {counters.SM_ACTIVE_CYCLES: 600.0, counters.SM_CYCLES: 1000.0}
    found = metrics_of(tmp_path, {ALU + ACTIVE: 50.0, "l1tex__throughput" + ACTIVE: 40.0, **cycles})
    assert (found[counters.ALU], found[counters.L1]) == (pytest.approx(30), pytest.approx(24))
    found = metrics_of(tmp_path, {"l1tex__throughput" + ACTIVE: 40.0, "l1tex__cycles_active.avg": 500.0, **cycles})
    assert found[counters.L1] == pytest.approx(20)


def test_a_share_of_the_launchs_time_is_taken_as_it_is(fake: None, tmp_path: Path) -> None:
    cycles = {counters.SM_ACTIVE_CYCLES: 600.0, counters.SM_CYCLES: 1000.0}
    assert metrics_of(tmp_path, {ALU + ACTIVE: 50.0, ALU + ELAPSED: 31.0, **cycles})[counters.ALU] == 31


@pytest.mark.parametrize(
    "without", [counters.SM_ACTIVE_CYCLES, counters.SM_CYCLES, ALU + ACTIVE], ids=["active", "elapsed", "share"]
)
def test_nothing_is_converted_without_both_cycles(fake: None, tmp_path: Path, without: str) -> None:
    metrics = {ALU + ACTIVE: 50.0, counters.SM_ACTIVE_CYCLES: 600.0, counters.SM_CYCLES: 1000.0}
    assert counters.ALU not in metrics_of(tmp_path, {name: one for name, one in metrics.items() if name != without})
    assert counters.ALU not in metrics_of(tmp_path, {**metrics, without: 0.0 if "elapsed" in without else None})


def test_units_with_other_clocks_are_not_converted(fake: None, tmp_path: Path) -> None:
    cycles = {counters.SM_ACTIVE_CYCLES: 600.0, counters.SM_CYCLES: 1000.0}
    found = metrics_of(tmp_path, {"lts__throughput" + ACTIVE: 50.0, "dram__throughput" + ACTIVE: 50.0, **cycles})
    assert found.keys() == cycles.keys()


def test_what_sections_call_otherwise_is_read_too(fake: None, tmp_path: Path) -> None:
    sections = {
        "gpc__cycles_elapsed.max": 1000.0,
        counters.SM_ACTIVE_CYCLES: 500.0,
        "gpu__dram_throughput" + ELAPSED: 71.0,
        "sm__issue_active" + ELAPSED: 12.0,
        "sm__pipe_tensor_cycles_active" + ACTIVE: 80.0,
    }
    assert metrics_of(tmp_path, {**sections, **shape((1, 1, 1), 32)}) == {
        counters.SM_CYCLES: 1000,
        counters.SM_ACTIVE_CYCLES: 500,
        counters.DRAM: 71,
        counters.ISSUE: 12,
        counters.TENSOR: 40,
    }


@pytest.mark.parametrize("text", ["no report", "", "damaged", "[]", "[[]]"])
def test_a_file_that_is_no_report_is_an_error(fake: None, tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.ncu-rep"
    path.write_text(text)
    with pytest.raises(KprofError, match=r"a\.ncu-rep") as raised:
        read_report(path)
    assert "ncu -o" in raised.value.hint


@pytest.mark.parametrize("name", ["missing.ncu-rep", "."])
def test_a_place_without_a_file_is_an_error(fake: None, tmp_path: Path, name: str) -> None:
    with pytest.raises(KprofError, match="does not exist" if name != "." else "is not a file"):
        read_report(tmp_path / name)


def test_without_the_module_the_error_says_where_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    with pytest.raises(KprofError, match="ncu_report") as raised:
        read_report(save_report(tmp_path / "a.ncu-rep", [("k", {})]))
    assert "pip install ncu-report" in raised.value.hint and "extras/python" in raised.value.hint


def test_a_module_that_cannot_be_loaded_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ncu_report.py").write_text('raise ImportError("libc.so.6: version `GLIBC_2.99\' not found")')
    monkeypatch.delitem(sys.modules, "ncu_report", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KprofError, match=r"cannot be imported: libc\.so\.6"):
        read_report(tmp_path / "a.ncu-rep")


@pytest.mark.parametrize("content", [b"", b"no report", b"NVR\0" + bytes(range(256)) * 8])
def test_nvidias_module_refuses_a_file_that_is_no_report(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("ncu_report", reason="pip install ncu-report")
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(content)
    with pytest.raises(KprofError, match="is not a report of Nsight Compute"):
        read_report(path)
