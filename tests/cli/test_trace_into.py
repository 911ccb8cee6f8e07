"""``trace --into``: what it says, and where it writes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import CommandLine
from foreign_buffers import Mark, flashinfer
from ranks import BEGIN_NS, KERNEL_NS, Timer, save_process
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
    matched, wrote, advice = ended.stderr.splitlines()
    # Half of the 400 ns that the bar leaves, a step of the timer, and what clocks drift in the launch.
    how = "by time alone, since no host calls are known"
    assert matched == f"kprof-inject: rank 0, device 0: 1 of 1 launch matched, within ± 235 ns; {how}"
    assert wrote.startswith("kprof-inject: wrote rank0.kprof.json: 1 trace with 1 launch, ")
    assert "ui.perfetto.dev" in advice
    (launch,) = json.loads(kprof.read("rank0.kprof.json"))["kprof_inject"]["launches"]
    assert (launch["kernel"], launch["correlation"], launch["matched"]) == (
        "matmul",
        5,
        "the only kernel of its name then",
    )


def test_several_ranks_become_one_file(kprof: CommandLine) -> None:
    save_ranks(kprof, 2)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--into", "rank1.json", "-o", "both.json")
    assert ended.exit_code == 0, ended.stderr
    assert "wrote both.json: 2 traces with 2 launches" in ended.stderr


def test_a_launch_without_a_trace_of_its_process_is_named(kprof: CommandLine) -> None:
    save_ranks(kprof, 2)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--layout", "cta")
    reason = "it is from another process than the traces, which are from 11"
    assert f"kprof-inject: not in the trace: matmul, launch 0: {reason}" in ended.stderr.splitlines()


def test_what_cannot_be_redacted_is_told(kprof: CommandLine) -> None:
    save_ranks(kprof, 1)
    ended = kprof("trace", "capture", "--into", "rank0.json", "--redact")
    assert "kprof-inject: --redact leaves what was in rank0.json as it was" in ended.stderr.splitlines()


def test_a_buffer_of_another_profiler_is_of_no_process(kprof: CommandLine) -> None:
    save_ranks(kprof, 1)
    np.save(kprof.folder / "b.npy", flashinfer(1, [[[Mark(0, 0, 100), Mark(0, 1, 200)]]]))
    ended = kprof("trace", "b.npy", "--buffer-format", "flashinfer", "--into", "rank0.json")
    assert ended.exit_code == 1
    assert "b, launch 0 was saved by itself, and a buffer does not say which process it is from" in ended.stderr


@pytest.mark.parametrize(
    ("options", "message", "exit_code"),
    [
        (("--into", "nowhere.json"), "error: nowhere.json does not exist", 1),
        (
            ("--into", "capture/0/process.json"),
            "error: capture/0/process.json is not a trace: it has no traceEvents",
            1,
        ),
        (("--into", "rank0.json", "-o", "rank0.json"), "error: rank0.json is one of the input traces", 2),
        (("--into", "rank0.json", "-o", "a.csv"), "error: a merged trace cannot be named a.csv", 2),
    ],
)
def test_what_cannot_be_is_an_error(kprof: CommandLine, options: tuple[str, ...], message: str, exit_code: int) -> None:
    save_ranks(kprof, 1)
    before = (kprof.folder / "rank0.json").read_bytes()
    ended = kprof("trace", "capture", *options)
    assert (ended.exit_code, ended.stdout) == (exit_code, "")
    assert ended.stderr.splitlines()[0] == message
    assert (kprof.folder / "rank0.json").read_bytes() == before
    assert not (kprof.folder / "rank0.kprof.json").exists()
