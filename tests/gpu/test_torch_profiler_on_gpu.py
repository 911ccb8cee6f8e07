"""Launches in real traces of ``torch.profiler``: every CTA lies in its kernel's bar, within the stated error."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from program_runs import PROGRAMS, ProgramRuns

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = ("counted_kernel", "decay_kernel", "root_kernel", "triton_poi_")
STEPS = 4


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ProgramRuns]:
    with ProgramRuns(tmp_path) as runs:
        yield runs


def require_ctas_in_bars(trace: dict[str, Any], launches: int) -> None:
    """By the trace alone: our slices against the kernels with their correlation, on their GPU."""
    facts = trace["kprof_inject"]
    print(json.dumps({"devices": facts["devices"], "not_matched": facts["not_matched"]}, indent=1))
    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    drawn = [event for event in slices if event["cat"] == "launch"]
    assert len(drawn) == launches, facts["not_matched"]
    bars = [event for event in slices if event["cat"] == "kernel"]
    for launch, known in zip(drawn, facts["launches"], strict=True):
        mine = [
            bar
            for bar in bars
            if (bar["args"]["correlation"], bar["args"]["device"]) == (known["correlation"], known["device"])
        ]
        inside = [event for event in slices if event["pid"] == launch["pid"]]
        error_us = known["error_ns"] / 1000 + 0.001
        assert any(
            bar["name"] == launch["name"]
            and all(
                event["ts"] >= bar["ts"] - error_us and event["ts"] + event["dur"] <= bar["ts"] + bar["dur"] + error_us
                for event in inside
            )
            for bar in mine
        ), (launch, mine)
    assert all(device["error_ns"] < 5_000 for device in facts["devices"]), facts["devices"]


def require_steps(path: Path, ranks: int) -> None:
    trace = json.loads(path.read_text())
    require_ctas_in_bars(trace, ranks * STEPS * len(KERNELS))
    # The launches before the profiler was on are not in its trace, and have to be told so.
    not_matched = trace["kprof_inject"]["not_matched"]
    assert all("by the host's clock" in one["reason"] for one in not_matched), not_matched
    launched = [event["name"] for event in trace["traceEvents"] if event.get("cat") == "launch"]
    assert all(any(name.startswith(known) for known in KERNELS) for name in launched)
    devices = {one["device"] for one in trace["kprof_inject"]["launches"]}
    assert len(devices) == min(ranks, torch.cuda.device_count())


def test_a_training_step_with_kernels_of_ours_and_of_inductor(runs: ProgramRuns) -> None:
    program = (sys.executable, PROGRAMS / "profiled_step.py")
    runs.start_kprof("profile", "--at", "func", "--launches", "all", "--", *program).wait()
    merged = runs.start_kprof("trace", "kprof_out", "--into", "torch_trace.0.json").wait()
    print(merged.stderr)
    require_steps(runs.folder / "torch_trace.0.kprof.json", 1)


def test_a_program_that_does_not_profile_itself(runs: ProgramRuns) -> None:
    program = (sys.executable, EXAMPLES / "matmul.py", "--repeat", "6")
    ended = runs.start_kprof("profile", "--torch-profiler", "--launches", "all", "--at", "func", "--", *program).wait()
    print(ended.stderr)
    merged = gzip.decompress((runs.folder / "kprof_out/torch_trace.kprof.json.gz").read_bytes())
    require_ctas_in_bars(json.loads(merged), 6)


def test_two_ranks_on_two_gpus_or_on_one_that_they_share(runs: ProgramRuns) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = ("-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2", "--master-addr", "127.0.0.1")
    program = (sys.executable, *torchrun, "--master-port", str(port), str(PROGRAMS / "profiled_step.py"))
    runs.start_kprof("profile", "--at", "func", "--launches", "all", "--", *program).wait()
    traces = [word for rank in (0, 1) for word in ("--into", f"torch_trace.{rank}.json")]
    print(runs.start_kprof("trace", "kprof_out", *traces, "-o", "both.json").wait().stderr)
    require_steps(runs.folder / "both.json", 2)
