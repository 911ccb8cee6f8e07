"""Programs that time themselves by CUDA events read what they read alone. Prints the figures."""

from __future__ import annotations

import re

import pytest
from program_runs import PROGRAMS, ProgramRuns

pytestmark = pytest.mark.alone
ROUNDS = 3
HOST_US = 40
"""How much longer the host may work for a launch. A held stream takes 100."""
SELF_TIMED = PROGRAMS / "self_timed.py"


def test_a_program_that_times_itself_reads_what_it_reads_alone(runs: ProgramRuns) -> None:
    workspace = runs.folder / "timed"
    runs.start_kprof("dump", "-o", workspace, "--", SELF_TIMED).wait()
    runs.start_kprof("insert", workspace, "--at", "func").wait()
    found: dict[str, list[dict[str, float]]] = {"alone": [], "dump": [], "run": []}
    for number in range(ROUNDS):
        again = runs.folder / f"timed-{number}"
        found["alone"].append(figures(runs.start(SELF_TIMED).wait().stdout))
        found["dump"].append(figures(runs.start_kprof("dump", "-o", again, "--", SELF_TIMED).wait().stdout))
        found["run"].append(figures(runs.start_kprof("run", workspace, "--", SELF_TIMED).wait().stdout))
    # The host has two speeds, now and then for a whole process: the fastest round of each says what ours adds.
    fastest = {how: {name: min(one[name] for one in rounds) for name in rounds[0]} for how, rounds in found.items()}
    for name, bare_us in fastest["alone"].items():
        print(f"{name}: {bare_us:.2f} µs alone, dump {fastest['dump'][name]:.2f}, run {fastest['run'][name]:.2f}")
    for name, bare_us in fastest["alone"].items():
        # Short launches time the host, which works longer with us.
        host_us = 0 if name.startswith("do_bench") or name == "batch 20000" else HOST_US
        for how in ("dump", "run"):
            assert fastest[how][name] <= 1.1 * bare_us + host_us, (how, name)
    reported = " ".join(runs.start_kprof("report", workspace).wait().stdout.split())
    assert re.search(r"TRUST (trustworthy|careful): ", reported), "its first launch comes before its events"


def figures(stdout: str) -> dict[str, float]:
    return {name: float(value) for name, value in re.findall(r"^(\w+ \d+) ([\d.]+)$", stdout, re.MULTILINE)}
