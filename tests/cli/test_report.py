"""``report``: the tables of a capture that is there already, without a GPU."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import REPO

TIMES_NS = [1000 * us for us in (13_990, 13_994, 14_000, 14_003, 14_010, 14_012, 14_020)]


@pytest.fixture
def capture(kprof: CommandLine) -> Path:
    """The recorded capture, as if the times of its kernel had been taken."""
    folder = Path(shutil.copytree(REPO / "kprof_inject/demo/capture", kprof.folder / "capture"))
    (path,) = folder.glob("*/kernels/*/kernel.json")
    clean = {"registers": 210, "spills": 0, "shared_bytes": 98304, "ctas_per_sm": 2, "times_ns": TIMES_NS}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clean": clean, "ctas_per_sm": 2}))
    path.with_name("timing.json").write_text(json.dumps({"times_ns": [1.01 * time for time in TIMES_NS]}))
    return folder


def test_the_launches_then_the_verdicts(kprof: CommandLine, capture: Path) -> None:
    ended = kprof("report", "capture")
    assert (ended.exit_code, ended.stderr) == (0, "")
    lines = [line.rstrip() for line in ended.stdout.splitlines()]
    assert lines[0].startswith("matmul_kernel, launch 2: grid 256x1x1, 4 warps, 14.208 µs")
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert [row[0] for row in rows] == ["func", "loop[0]", "iter[0]", "matmul_kernel"]
    assert rows[-1][1:] == [
        "trustworthy",
        "14.003 ms → 14.143 ms",
        "+1.0 % ± 0.3",
        "210",
        "0",
        "98304 → 106496",
        "2",
    ]
    assert lines[-1] == "matmul_kernel: +1.0 % ± 0.3, same registers: trustworthy"


def test_as_json_each_launch_has_its_verdict(kprof: CommandLine, capture: Path) -> None:
    (launch,) = json.loads(kprof("report", "capture", "--json").stdout)
    assert (launch["kernel"], launch["launch"], launch["scopes"][0]["count"]) == ("matmul_kernel", 2, 1024)
    assert launch["trust"]["text"] == "+1.0 % ± 0.3, same registers: trustworthy"
    assert launch["trust"]["with_records"]["shared_bytes"] == 106496


def test_the_trace_says_the_same_as_the_report(kprof: CommandLine, capture: Path) -> None:
    (launch,) = json.loads(kprof("report", "capture", "--json").stdout)
    assert kprof("trace", "capture", "-o", "trace.json").exit_code == 0
    (data,) = json.loads(kprof.read("trace.json"))["otherData"]
    assert data["trust"] == launch["trust"]


def test_nothing_is_written(kprof: CommandLine, capture: Path) -> None:
    before = sorted(capture.rglob("*"))
    kprof("report", "capture")
    assert sorted(capture.rglob("*")) == before
    assert sorted(os.listdir(kprof.folder)) == ["capture", "home"]


def test_what_is_no_capture_is_an_error(kprof: CommandLine) -> None:
    ended = kprof("report", "nowhere")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.errors() == ended.stderr.splitlines()[:1]
    assert "Traceback" not in ended.stderr
