"""``report --ncu``: counters from a report of Nsight Compute."""

from __future__ import annotations

import json
import shutil
import sys

import ncu_reports
import numpy as np
import pytest
from command_line import CommandLine
from foreign_buffers import Scope, sm_profiler
from ncu_reports import complete, save_report
from programs.child import REPO
from snapshots import check

from kprof_inject.capture import counters


@pytest.fixture(autouse=True)
def _module(monkeypatch: pytest.MonkeyPatch, kprof: CommandLine) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", ncu_reports)
    shutil.copytree(REPO / "tests/captures/matmul", kprof.folder / "capture")


def test_the_limit_is_by_the_reports_counters(kprof: CommandLine) -> None:
    name, metrics = complete("matmul_kernel", (256, 1, 1), 128, 20.0)
    metrics[counters.SM_CYCLES] = 26_000.0
    launches = [(name, metrics), (name, {**metrics, counters.L2: 91.0, "profiler__replayer_passes": 7})]
    save_report(kprof.folder / "a.ncu-rep", launches)
    ended = kprof("report", "capture", "--ncu", "a.ncu-rep")
    assert ended.exit_code == 0
    assert "LIMIT  the L2 (91.0 % of peak)" in ended.stdout
    check("cli/report_ncu", "\n".join(ended.stderr.splitlines()[1:2]), "match")
    (launch,) = json.loads(kprof("report", "capture", "--ncu", "a.ncu-rep", "--json").stdout)
    assert launch["counters"]["metrics"][counters.L2] == 91 and launch["counters"]["passes"] == 7
    detailed = kprof("report", "capture", "--ncu", "a.ncu-rep", "-v", "--launch", "29").stdout
    assert f"measured without records: {len(counters.DEFAULT_METRICS)} metrics in 7 passes" in detailed


def test_a_report_of_another_program_is_an_error(kprof: CommandLine) -> None:
    save_report(kprof.folder / "a.ncu-rep", [complete("add", (256, 1, 1), 128)])
    ended = kprof("report", "capture", "--ncu", "a.ncu-rep")
    assert (ended.exit_code, ended.stdout) == (1, "")
    message = ended.stderr.replace(",".join(counters.DEFAULT_METRICS), "ALL")
    check("cli/report_ncu", "\n".join(message.splitlines()[1:]), "other kernels")


def test_a_file_that_is_no_report_is_an_error(kprof: CommandLine) -> None:
    ended = kprof("report", "capture", "--ncu", "capture/record_costs.json")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/report_ncu", ended.stderr, "no report")


def test_without_nvidias_module_the_error_says_where_to_get_it(
    kprof: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    ended = kprof("report", "capture", "--ncu", "a.ncu-rep")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/report_ncu", ended.stderr, "no module")


def test_a_kernel_that_another_profiler_recorded_has_a_limit(kprof: CommandLine) -> None:
    ran = {(block, 0): [Scope(0, 10_000, 11_280)] for block in range(4)}
    np.save(kprof.folder / "a.npy", sm_profiler(4, 1, 1, ran, [0, 1, 2, 3], {}))
    (kprof.folder / "a.npy.json").write_text('{"format": "sm-profiler", "names": ["all"], "kernel": "decode"}')
    name, metrics = complete("decode", (2, 2, 1), 640)
    save_report(kprof.folder / "a.ncu-rep", [(name, {**metrics, counters.DRAM: 85.0})])
    ended = kprof("report", "a.npy", "--ncu", "a.ncu-rep")
    assert ended.exit_code == 0
    assert "LIMIT  DRAM" in ended.stdout and "85.0 % of peak" in ended.stdout
