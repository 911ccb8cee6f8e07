"""Every way to record, on a matmul of 256 CTAs of 4 warps and 16 iterations: the same scopes, the same result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gpu_support import EXAMPLES, Kprof

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

WARPS, CTAS, ITERATIONS = 4, 256, 16
SELECTORS = ("--at", "func", "--at", "loop", "--at", "iter")


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("modes")


def timeline_of(kprof: Kprof, workspace: Path, *options: str) -> tuple[Timeline, str]:
    if not (workspace / "workspace.json").exists():
        kprof("dump", "-o", workspace, "--", EXAMPLES / "matmul.py")
    # Where stores are moved, each start needs an end.
    kprof("insert", workspace, *SELECTORS, "--iter-records", "two" if "--sched-stores" in options else "one")
    ended = kprof("run", workspace, *options, "--", EXAMPLES / "matmul.py")
    launches = read_capture(max((workspace / "captures").iterdir())).launches
    assert len(launches) == 1, ended.stderr
    return decode_launch(launches[0]), ended.stdout


@pytest.mark.parametrize(
    ("options", "warps"),
    [
        ((), (0, 1, 2, 3)),
        (("--warps", "0,2"), (0, 2)),
        (("--clock32",), (0, 1, 2, 3)),
        (("--sched-stores",), (0, 1, 2, 3)),
        (("--buffer-type", "global"), (0, 1, 2, 3)),
        (("--buffer-type", "global", "--clock32", "--warps", "3"), (3,)),
    ],
    ids=["default", "two warps", "clock 32", "sched stores", "global", "global, clock 32, one warp"],
)
def test_each_mode_records_the_same(
    kprof: Kprof, dumped: Path, options: tuple[str, ...], warps: tuple[int, ...]
) -> None:
    timeline, output = timeline_of(kprof, dumped, *options)
    names = [scope.name for scope in timeline.table.scopes]
    counts = Counter(names[scope] for scope in timeline.scopes["scope"].tolist())
    each = CTAS * len(warps)
    assert counts == {"func": each, "loop[0]": each, "iter[0]": each * ITERATIONS}
    assert tuple(np.unique(timeline.scopes["warp"]).tolist()) == warps
    assert (timeline.records_lost, timeline.ctas_never_ran) == (0, 0)
    durations = timeline.scopes["end_ns"] - timeline.scopes["start_ns"]
    assert (durations >= 0).all()
    # The function's scope is the CTA, from its first record to its last.
    functions = durations[timeline.scopes["scope"] == names.index("func")]
    whole = timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"]
    print(f"func {np.median(functions)} ns of {np.median(whole)} ns, clock {timeline.clock.clock_hz / 1e6:.0f} MHz")
    assert 0.9 < np.median(functions) / np.median(whole) <= 1.01
    assert "sha256" in output
    assert output == kprof_free_output(kprof, dumped)


def kprof_free_output(kprof: Kprof, workspace: Path) -> str:
    """What the program prints by itself: it holds the digest of its result."""
    saved = workspace / "alone.txt"
    if not saved.exists():
        import subprocess
        import sys

        command = [sys.executable, str(EXAMPLES / "matmul.py")]
        saved.write_text(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return saved.read_text()
