"""``demo`` and ``trace`` without a GPU: the recorded capture, and a compilation that proves the insertion."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest
from command_line import CommandLine
from programs.child import Ended, fake_gpu_path
from snapshots import check

from kprof_inject.cli import demo
from kprof_inject.workspace import Workspace
from kprof_inject.workspace_folder import DEFAULT_WORKSPACE, DEMO_WORKSPACE


def test_the_recorded_captures_are_replayed_and_compared(demo_once: tuple[Path, Ended]) -> None:
    folder, ended = demo_once
    assert ended.exit_code == 0, ended.stderr
    assert "kprof-inject: no GPU here: replaying captures" in ended.stderr
    assert "inserted 14 records into matmul_kernel " in ended.stderr
    assert "14 clock reads" in ended.stderr
    assert len(ended.stdout.splitlines()) <= 60

    # Limit, what to try, faster.
    first, second, changed = ended.stdout.split("\n\n")
    assert "\nLIMIT  shared memory and L1 (69.4 % of peak)" in first and "(measured)" in first
    assert "\nTRY    " in first and "num_stages to 3" in first
    assert "\nLIMIT  the tensor cores (58.5 % of peak; " in second and "74.7 % in loop[0]" in second
    assert "\nB takes 36.5 % less time [" in changed
    # In it, the loop has waits of the same name as one outside of it.
    check("cli/demo", ended.stdout)

    # The launch and the call that made it; 256 CTAs of 4 warps, 16 steps along K, and three waits before and after.
    events = json.loads((folder / DEMO_WORKSPACE / "trace.json").read_text())["traceEvents"]
    names = Counter(event["name"] for event in events if event["ph"] == "X")
    waits = {"ttg.async_wait": 1024 * 17, "ttng.warp_group_dot_wait": 1024 * 17}
    assert names == {"matmul_kernel": 2, "func": 1024, "loop[0]": 1024, "iter[0]": 16384, **waits}

    # Its workspace is its own, whatever the settings are.
    assert sorted(os.listdir(folder)) == ["home", str(DEMO_WORKSPACE), str(DEFAULT_WORKSPACE), "pyproject.toml"]
    assert os.listdir(folder / "home") == []
    assert os.listdir(folder / DEFAULT_WORKSPACE) == ["workspace.json"]


def test_its_captures_are_compared_and_the_page_has_what_changed_at_each_line(
    kprof: CommandLine, demo_once: tuple[Path, Ended]
) -> None:
    captures = Workspace.create(kprof.folder / "ws").folder / "captures"
    shutil.copytree(demo_once[0] / DEMO_WORKSPACE / "captures", captures)
    ended = kprof("diff", "ws", "--html", "diff.html", env={"COLUMNS": "160"})
    assert ended.exit_code == 0
    assert ended.stderr.endswith(": kprof-inject report ws/captures/003\n")
    check("frozen/diffs", ended.stdout, "one-stage three-stages")
    page = kprof.read("diff.html")
    assert "\n  loop[0]: -12.2 µs per CTA; " in page[page.index('<pre class="code">code:\n') :]
    for other in ("001", "002"):
        shutil.rmtree(captures / other)
    alone = kprof("diff", "ws")
    assert (alone.exit_code, alone.stdout) == (1, "")
    check("cli/demo_workspace", alone.stderr, "diff of one capture")


def test_without_a_kernel_there_is_nothing_to_do(kprof: CommandLine) -> None:
    Workspace.create(kprof.folder / "ws")
    for command in ("list", "check", "insert"):
        ended = kprof(command, "ws")
        assert (ended.exit_code, ended.stdout) == (1, "")
        assert ended.errors() == ["error: ws contains no kernels"]


def test_a_workspaces_kernels_are_checked_as_they_will_run(kprof: CommandLine, captured_once: Path) -> None:
    shutil.copytree(captured_once, kprof.folder / "ws", ignore=shutil.ignore_patterns("captures"))
    (dumped,) = json.loads(kprof("check", "ws", "--json").stdout)
    assert (dumped["records"], dumped["file"].endswith("kernel.ttgir")) == (0, True)
    # As the driver of an H100 says of this kernel, whose TTGIR is of Triton 3.6, too.
    assert (dumped["registers"], dumped["spills"]) == (213, 0)
    kprof("insert", "ws")
    (planned,) = json.loads(kprof("check", "ws", "--json").stdout)
    assert planned["records"] == 6


PROGRAM = """
import sys
from fake_gpu.program import gpu  # isort: skip  (before Triton)
import torch
from fake_gpu.kernels import power

x = torch.arange(1, 17, dtype=torch.float32)
stages = int(sys.argv[-1]) if "--num-stages" in sys.argv else 2
for _ in range(int(sys.argv[2])):
    power[(16,)](x, torch.zeros_like(x), 12 - 3 * stages)
"""


def test_with_a_gpu_all_are_profiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").mkdir()
    for name in ("matmul.py", "attention.py"):
        (tmp_path / "examples" / name).write_text(PROGRAM)
    monkeypatch.setattr(demo, "has_gpu", lambda: True)
    monkeypatch.setattr(demo, "_EXAMPLES", (tmp_path / "examples",))
    ended = CommandLine(tmp_path, fake_gpu_path())("demo", "-o", "ws")
    assert ended.exit_code == 0, ended.stderr
    titles = [
        line for line in ended.stdout.splitlines() if line.endswith(("num_stages=1", "num_stages=3", "B against A"))
    ]
    assert len(titles) == 3
    assert ended.stdout.count("\nLIMIT  ") == ended.stdout.count("\nTRUST  ") == 2
    # The fake GPU runs one module, only for longer.
    assert ended.stdout.endswith("  the whole kernel\n    argument n 9 → 3\n")
    assert sorted(path.name for path in (tmp_path / "ws/captures").iterdir()) == ["001", "002", "003"]
    assert "causal attention, with a softmax and two loops: kprof-inject report ws/captures/001\n" in ended.stderr
