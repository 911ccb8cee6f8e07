"""Programs of several processes: each is captured, and one trace holds them all."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from program_runs import PROGRAMS, ProgramRuns, Run, counts

RANK_CTAS = (8, 16)


def launches_in(trace: Path) -> Iterator[tuple[dict[str, Any], float, float]]:
    """What a trace says of each launch, and its first begin and last end in microseconds."""
    loaded = json.loads(trace.read_text())
    events = [event for event in loaded["traceEvents"] if event["ph"] == "X"]
    pids = [event["pid"] for event in events if event["cat"] == "launch"]
    for pid, data in zip(pids, loaded["otherData"], strict=True):
        mine = [event for event in events if event["pid"] == pid and event["cat"] != "launch"]
        assert mine, f"no scope of {data} in the trace"
        yield data, min(event["ts"] for event in mine), max(event["ts"] + event["dur"] for event in mine)


def test_two_ranks(runs: ProgramRuns) -> None:
    """On one GPU, or on two."""
    traced = two_ranks(runs)
    assert len({data["axis"] for data, _, _ in traced}) == 1, traced[0][0]
    errors_ns = {data["rank"]: data["alignment_error_ns"] for data, _, _ in traced}
    if Path("/dev/nvidia1").exists():
        print(f"alignment errors of the ranks: {errors_ns} ns; {traced[0][0]['aligned_by']}")
        assert all(0 < error_ns < 100_000 for error_ns in errors_ns.values()), errors_ns
    else:
        assert set(errors_ns.values()) == {0}, "they were timed by one timer"


def two_ranks(runs: ProgramRuns) -> list[tuple[dict[str, Any], float, float]]:
    """Run the program with torchrun; returns the trace's launches."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = ("-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", "2")
    torchrun += ("--master-addr", "127.0.0.1", "--master-port", str(port), str(PROGRAMS / "ranks.py"))
    # One after the other: both need the port, and both GPUs.
    runs.start(*torchrun, "--save", "plain").wait()
    options = ("--at", "func", "--at", "loop", "--launches", "all")
    ended = runs.start_kprof("profile", *options, "--", sys.executable, *torchrun, "--save", "with").wait()
    run = Run(runs.folder / "kprof_out")

    for rank in (0, 1):
        runs.assert_same_results(f"plain.{rank}.npy", f"with.{rank}.npy", ended)
    ranks = {process.rank: process for process in run.capture.processes}
    assert set(ranks) == {0, 1}, ended
    for rank in ranks:
        warps = 4 * RANK_CTAS[rank]
        launches = [launch for launch in run.capture.launches if launch.process.rank == rank]
        assert sorted((launch.kernel.name, launch.index) for launch in launches) == [
            (name, index) for name in ("decay_kernel", "root_kernel") for index in range(3)
        ], ended
        for launch in launches:
            assert launch.grid == (RANK_CTAS[rank], 1, 1)
            assert counts(launch) == {"func": warps, "loop[0]": warps}

    traced = list(launches_in(runs.folder / "kprof_out" / "trace.json"))
    assert len(traced) == 12 and {data["rank"] for data, _, _ in traced} == {0, 1}
    assert_sums_stand_between(traced)
    return traced


def assert_sums_stand_between(traced: list[tuple[dict[str, Any], float, float]]) -> None:
    """No rank's second kernel begins before every rank's first has ended, for the sum over the ranks is between."""
    ends = {(d["launch"], d["rank"]): (end, d) for d, _, end in traced if d["kernel"] == "decay_kernel"}
    begins = {(d["launch"], d["rank"]): (begin, d) for d, begin, _ in traced if d["kernel"] == "root_kernel"}
    slack_us = []
    for (number, rank), (begin, mine) in begins.items():
        end, theirs = ends[number, 1 - rank]
        slack_us.append(begin - end)
        error_us = (mine["alignment_error_ns"] + theirs["alignment_error_ns"]) / 1000
        assert begin - end > -error_us, f"rank {rank} went on {end - begin} µs before the other rank had ended"
    print(f"from one rank's first kernel to the other's second: {np.min(slack_us):.1f} µs and more")
