"""Launches in a real trace of ``torch.profiler``: every CTA lies in its kernel's bar, within the stated error."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from program_runs import ProgramRuns

EXAMPLES = Path(__file__).parents[2] / "examples"


def require_ctas_in_bars(trace: dict[str, Any], launches: int) -> None:
    """By the trace alone: our slices against the kernels with their correlation, on their GPU."""
    facts = trace["kprof_inject"]
    print(facts["refused"])
    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    drawn = [event for event in slices if event["cat"] == "launch"]
    assert len(drawn) == launches, facts["refused"]
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
    assert all(known["error_ns"] < 5_000 for known in facts["launches"])


def test_a_program_that_does_not_profile_itself(runs: ProgramRuns) -> None:
    program = (sys.executable, EXAMPLES / "matmul.py", "--repeat", "6")
    ended = runs.start_kprof("profile", "--torch-profiler", "--launches", "all", "--at", "func", "--", *program).wait()
    print(ended.stderr)
    merged = gzip.decompress((runs.folder / "kprof_out/torch_trace.kprof.json.gz").read_bytes())
    require_ctas_in_bars(json.loads(merged), 6)
