"""``trace --into``: what it says, and where it writes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import CommandLine, without_sizes
from foreign_buffers import Mark, flashinfer
from ranks import BEGIN_NS, KERNEL_NS, Timer, save_process
from snapshots import check
from torch_traces import Kernel, save_kineto

TIMERS = (Timer(5_000_000), Timer(9_000_000_000))


def save_ranks(kprof: CommandLine, ranks: int) -> None:
    """A capture with a launch of each rank, and a trace for each, in which its kernel is 900 ns longer."""
    for rank, timer in enumerate(TIMERS[:ranks]):
        name = f"capture/{rank}"
        save_process(kprof.folder, name, [(timer, BEGIN_NS)], [timer.reading(BEGIN_NS)], rank=rank, pid=11 + rank)
        kernel = Kernel("matmul", BEGIN_NS - 200, BEGIN_NS + KERNEL_NS + 700, 5)
        save_kineto(kprof.folder / f"rank{rank}.json", [kernel], pid=11 + rank, rank=rank)


def test_it_says_how_exact_the_times_are_and_writes_beside_the_trace(kprof: CommandLine) -> None:
    save_ranks(kprof, 1)
    ended = kprof("trace", "capture", "--into", "rank0.json")
    assert (ended.exit_code, ended.stdout) == (0, "")
    # Half of the 400 ns that the bar leaves, a step of the timer, and what clocks drift in the launch.
    assert "within ± 235 ns" in ended.stderr.splitlines()[0]
    check("cli/trace_into", without_sizes(ended.stderr), "one rank")
    (launch,) = json.loads(kprof.read("rank0.kprof.json"))["kprof_inject"]["launches"]
    assert (launch["kernel"], launch["correlation"]) == ("matmul", 5)
    check("cli/trace_into", launch["matched"], "matched")


def test_several_ranks_become_one_file(kprof: CommandLine) -> None:
    save_ranks(kprof, 2)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--into", "rank1.json", "-o", "both.json")
    assert ended.exit_code == 0, ended.stderr
    check("cli/trace_into", without_sizes(ended.stderr), "two ranks")


def test_a_launch_without_a_trace_of_its_process_is_named(kprof: CommandLine) -> None:
    save_ranks(kprof, 2)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--layout", "cta")
    check("cli/trace_into", without_sizes(ended.stderr), "no trace of its process")


def test_what_cannot_be_redacted_is_told(kprof: CommandLine) -> None:
    save_ranks(kprof, 1)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--redact")
    check("cli/trace_into", without_sizes(ended.stderr), "--redact")


def test_a_buffer_of_another_profiler_is_of_no_process(kprof: CommandLine) -> None:
    save_ranks(kprof, 1)
    np.save(kprof.folder / "b.npy", flashinfer(1, [[[Mark(0, 0, 100), Mark(0, 1, 200)]]]))
    ended = kprof("trace", "b.npy", "--buffer-format", "flashinfer", "--into", "rank0.json")
    assert ended.exit_code == 1
    check("cli/trace_into", ended.stderr, "b.npy")


@pytest.mark.parametrize(
    ("options", "exit_code"),
    [
        ("--into nowhere.json", 1),
        ("--into capture/0/process.json", 1),
        ("--into rank0.json -o rank0.json", 2),
        ("--into rank0.json -o a.csv", 2),
    ],
)
def test_what_cannot_be_is_an_error(kprof: CommandLine, options: str, exit_code: int) -> None:
    save_ranks(kprof, 1)
    before = (kprof.folder / "rank0.json").read_bytes()
    ended = kprof("trace", "capture", *options.split())
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    check("cli/trace_into", ended.stderr, options)
    assert (kprof.folder / "rank0.json").read_bytes() == before
    assert not (kprof.folder / "rank0.kprof.json").exists()
