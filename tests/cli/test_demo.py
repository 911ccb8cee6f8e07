"""``demo`` and ``trace`` without a GPU: the recorded capture, and a compilation that proves the insertion."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter

from command_line import CommandLine
from programs.child import REPO


def test_the_recorded_capture_is_replayed(kprof: CommandLine) -> None:
    ended = kprof("demo", "-o", "ws")
    assert ended.exit_code == 0, ended.stderr
    assert "kprof-inject: no GPU here: replaying a capture" in ended.stderr
    assert "inserted 6 records into matmul_kernel and compiled it for cuda:90" in ended.stderr
    assert "6 clock reads" in ended.stderr
    assert ended.stdout.startswith("matmul_kernel, launch ")
    assert ended.stdout.endswith("\nmatmul_kernel: +4.5 % ± 2.9: the kernel runs longer than it does by itself\n")

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
    assert "kprof-inject: matmul_kernel: 1 scope(s), 4 records" in inserted.stderr
