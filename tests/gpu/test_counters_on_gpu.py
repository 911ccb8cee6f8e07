"""Hardware counters and stall reasons of real launches: plausible, at the right scopes, and unseen by the program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_support import EXAMPLES, Kprof
from program_runs import PROGRAMS

from kprof_inject.analysis.interpreter.executions import ExecutedKernel
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.limits.executed_instructions import block_executions
from kprof_inject.analysis.limits.unit_evidence import launch_work
from kprof_inject.capture import counters
from kprof_inject.capture.reader import read_capture
from kprof_inject.runtime.counters.cupti import is_permitted
from kprof_inject.timeline.timeline import decode_launch

pytestmark = [pytest.mark.alone, pytest.mark.skipif(not is_permitted(), reason="this user may not read the counters")]


def profiled(kprof: Kprof, tmp_path: Path, program: Path, *options: str) -> list[LaunchAnalysis]:
    kprof("profile", "-o", "measured", *options, "--", sys.executable, program)
    (capture,) = (tmp_path / "measured" / "captures").iterdir()
    return [LaunchAnalysis.of(decode_launch(launch)) for launch in read_capture(capture).launches]


@pytest.mark.parametrize("example", ["softmax.py", "matmul.py", "layer_norm.py"])
def test_machine_code_and_counters_agree(kprof: Kprof, tmp_path: Path, example: str) -> None:
    for report in profiled(kprof, tmp_path, EXAMPLES / example):
        assert report.measured is not None
        assert report.limit.evidence == "measured"
        assert report.stalls is not None
        assert report.stalls.samples > 10_000
        print(report.launch.kernel.name, report.limit.sentence, report.units)
        executed, code = report.executed, report.machine_code
        assert isinstance(executed, ExecutedKernel)
        assert code is not None
        work = launch_work(code, block_executions(code, executed, report.launch.kernel.num_warps).known)
        assert 0.9 <= work.issued / report.measured.metric(counters.INSTRUCTIONS) <= 1.02


def test_known_stalls_are_named_at_their_loops(kprof: Kprof, tmp_path: Path) -> None:
    options = ("--at", "func", "--at", "loop")
    (report,) = profiled(kprof, tmp_path, PROGRAMS / "known_stalls.py", *options)
    assert report.stalls is not None
    loops = [index for index, scope in enumerate(report.timeline.table.scopes) if scope.kind == "loop"]
    first = [report.stalls.waiting_in(index)[0] for index in loops]
    print(report.limit.sentence, first)
    assert [reason for reason, _ in first] == ["long_scoreboard", "short_scoreboard", "wait", "barrier"]


def test_metrics_can_be_added(kprof: Kprof) -> None:
    metric = "sm__inst_executed_pipe_adu.sum"
    ended = kprof(
        "profile", "-o", "more", "--json", "--counters", metric, "--", sys.executable, EXAMPLES / "softmax.py"
    )
    (launch,) = json.loads(ended.stdout[ended.stdout.index("[") :])
    found: dict[str, Any] = launch["counters"]["metrics"]
    assert found[metric] >= 0
    assert counters.TIME_NS in found
