"""Ctrl-C while threads launch, and programs that time themselves: what only a device proves. Prints the figures."""

from __future__ import annotations

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from program_runs import PROGRAMS, ProgramRuns, Run, copy_of

ATTEMPTS = 100
PROCESSES = 8
LIMIT_S = 2.0
ROUNDS = 4
HOST_US = 40
"""How much longer the host may work for a launch. A held stream takes 100."""
SELF_TIMED = PROGRAMS / "self_timed.py"


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ProgramRuns]:
    with ProgramRuns(tmp_path) as runs:
        yield runs


@pytest.mark.parametrize("launches", ["last", "all"])
def test_ctrl_c_at_random_moments_while_three_threads_launch(runs: ProgramRuns, launches: str) -> None:
    begun = time.monotonic()
    ended = runs.start_program("interrupted", "--attempts", str(ATTEMPTS), "--launches", launches).wait()
    found = ended.last(r"attempts (\d+) hangs (\d+) without_launch (\d+) others_went_on_s (\S+) end_s (\S+)")
    print(f"{launches}: {found[0]}; {time.monotonic() - begun:.0f} s in all")
    assert (int(found[1]), int(found[2]), int(found[3])) == (ATTEMPTS, 0, 0), ended
    assert float(found[4]) <= LIMIT_S and float(found[5]) <= LIMIT_S


def test_a_process_that_ctrl_c_ends_while_it_launches_is_gone_at_once(runs: ProgramRuns) -> None:
    prepared = runs.prepare("ending", "func", arguments=("--pause", "0"))
    arguments = (PROGRAMS / "ending.py", "--ending", "never", "--pause", "0")
    workspaces = [copy_of(prepared, runs.folder / f"interrupted-{number}") for number in range(PROCESSES)]
    started = [runs.start_kprof("run", workspace, "--", *arguments) for workspace in workspaces]
    moments, took_s = random.Random(14), []
    for workspace, running in zip(workspaces, started, strict=True):
        deadline = time.monotonic() + 120
        while "sum " not in running.stdout():
            assert time.monotonic() < deadline and not running.ended(), running.wait(exit_code=None)
            time.sleep(0.01)
        (pid,) = map(int, re.findall(r"^pid (\d+)$", running.stdout(), re.MULTILINE))
        time.sleep(moments.uniform(0.0, 0.1))
        begun = time.monotonic()
        os.kill(pid, signal.SIGINT)
        while not any(workspace.glob("captures/*/*/end.json")):
            assert time.monotonic() - begun < 60, "it hangs"
            time.sleep(0.005)
        took_s.append(time.monotonic() - begun)
        ended = running.wait(exit_code=130)
        assert ended.stderr.count("Traceback") == 1, ended
        assert len(Run(workspace).launches) == 1
    print(f"{PROCESSES} processes saved what they had within {max(took_s):.2f} s after Ctrl-C")
    assert max(took_s) <= LIMIT_S


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
