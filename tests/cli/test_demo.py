"""``demo`` and ``trace`` without a GPU: the recorded capture, and a compilation that proves the insertion."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter

import pytest
from command_line import CommandLine
from programs.child import REPO


def test_the_recorded_capture_is_replayed(kprof: CommandLine) -> None:
    ended = kprof("demo", "-o", "ws")
    assert ended.exit_code == 0, ended.stderr
    assert "kprof-inject: no GPU here: replaying a capture" in ended.stderr
    assert "inserted 6 records into matmul_kernel and compiled it for cuda:90" in ended.stderr
    assert "6 clock reads" in ended.stderr
    assert ended.stdout.startswith(
        "matmul_kernel #29   14.0 µs on the device, 16.9 µs by events   256 CTAs in 264 slots, 4 warps   H200 at "
    )
    assert "LIMIT  the tensor cores (at least 75.0 % of peak, 85.8 % in loop[0])\n" in ended.stdout
    assert "TRUST  careful: recording slows the kernel by 4.5 % ± 2.9; the interval reaches 7.4 %" in ended.stdout
    assert len(ended.stdout.splitlines()) <= 24

    # The launch and the call that made it; 256 CTAs of 4 warps, and 16 steps along K.
    events = json.loads(kprof.read("ws/trace.json"))["traceEvents"]
    names = Counter(event["name"] for event in events if event["ph"] == "X")
    assert names == {"matmul_kernel": 2, "func": 1024, "loop[0]": 1024, "iter[0]": 16384}

    assert sorted(os.listdir(kprof.folder)) == ["home", "ws"]
    assert os.listdir(kprof.folder / "home") == []


def test_a_trace_goes_into_the_folder_that_it_was_made_from(kprof: CommandLine) -> None:
    shutil.copytree(REPO / "kprof_inject/demo/capture", kprof.folder / "capture")
    assert kprof("trace", "capture").exit_code == 0
    assert sorted(os.listdir(kprof.folder)) == ["capture", "home"]
    assert len(json.loads(kprof.read("capture/trace.json"))["traceEvents"]) > 18432


def test_what_was_replayed_can_be_looked_at_again(kprof: CommandLine) -> None:
    demo = kprof("demo", "-o", "ws")
    again = kprof("report", "ws")
    assert (again.exit_code, again.stdout) == (0, demo.stdout)
    assert "iter[0]" in kprof("list", "ws").stdout
    inserted = kprof("insert", "ws", "--at", "op(tt.store)")
    assert inserted.exit_code == 0
    assert "kprof-inject: matmul_kernel: 1 scope, 4 records" in inserted.stderr


def test_two_captures_of_one_workspace_are_compared(kprof: CommandLine) -> None:
    kprof("demo", "-o", "ws")
    alone = kprof("diff", "ws")
    assert (alone.exit_code, alone.stdout) == (1, "")
    assert alone.errors() == ["error: ws has 1 capture, and diff compares two"]
    assert "hint: profile once more: kprof-inject profile -o ws -- PROG; or name two" in alone.stderr
    assert kprof("demo", "-o", "ws").stderr.splitlines()[-1] == (
        "kprof-inject: what matters: kprof-inject causal -o ws -- PROG; what changed: kprof-inject diff ws"
    )
    ended = kprof("diff", "ws")
    assert ended.exit_code == 0
    assert "where B's time goes: kprof-inject report ws/captures/002; as a page" in ended.stderr
    assert ended.stdout == kprof("diff", "ws/captures/001", "ws/captures/002").stdout


@pytest.mark.parametrize("command", ["list", "check", "insert"])
def test_without_a_kernel_there_is_nothing_to_do(kprof: CommandLine, command: str) -> None:
    kprof("demo", "-o", "ws")
    shutil.rmtree(kprof.folder / "ws/kernels")
    ended = kprof(command, "ws")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.errors() == ["error: ws contains no kernels"]


def test_a_workspaces_kernels_are_checked_as_they_will_run(kprof: CommandLine) -> None:
    kprof("demo", "-o", "ws")
    (dumped,) = json.loads(kprof("check", "ws", "--json").stdout)
    assert (dumped["records"], dumped["file"].endswith("kernel.ttgir")) == (0, True)
    kprof("insert", "ws")
    (planned,) = json.loads(kprof("check", "ws", "--json").stdout)
    assert planned["records"] == 6
