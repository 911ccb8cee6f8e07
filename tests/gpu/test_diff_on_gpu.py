"""``diff`` on real launches: of the same kernel it says that nothing changed, of two configs what did."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gpu_support import EXAMPLES, Kprof
from timelines import scope_statistics

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

SELECTORS = ("--at", "func", "--at", "loop", "--at", "iter")
LAUNCHES = 30
REPEATS = 4
# Of four comparisons, each wrong in one of twenty cases, more than one is wrong in one of seventy.
MOST_ALARMS = 1
QUIET = ("no difference", "the clock")


def program(stages: int) -> tuple[str | Path, ...]:
    return (EXAMPLES / "matmul.py", "--k", "2048", "--repeat", str(LAUNCHES), "--num-stages", str(stages))


def compared(kprof: Kprof, a: str | Path, b: str | Path) -> dict[str, Any]:
    values = json.loads(kprof("diff", a, b, "--json").stdout)
    print(values["sentence"])
    (kernel,) = values["kernels"]
    for scope in kernel["scopes"]:
        print(" ", scope["name"], scope["verdict"], scope["change"])
    print("\n".join(f"  {note}" for note in kernel["notes"]))
    result: dict[str, Any] = kernel
    return result


def changed(kernel: dict[str, Any]) -> dict[str, str]:
    return {scope["name"]: scope["verdict"] for scope in kernel["scopes"] if scope["verdict"] in ("slower", "faster")}


def test_the_same_kernel_in_five_processes_is_no_difference_four_times(kprof: Kprof, tmp_path: Path) -> None:
    kprof("dump", "-o", "ws", "--", *program(3))
    kprof("insert", "ws", *SELECTORS)
    for _ in range(REPEATS + 1):
        kprof("run", "ws", "--launches", "all", "--", *program(3))
    captures = sorted((tmp_path / "ws" / "captures").iterdir())
    kernels = [compared(kprof, *pair) for pair in pairwise(captures)]
    assert len(kernels) == REPEATS
    assert all(kernel["with_records"]["verdict"] != "cannot tell" for kernel in kernels)
    assert sum(kernel["verdict"] not in QUIET for kernel in kernels) <= MOST_ALARMS
    assert sum(bool(changed(kernel)) for kernel in kernels) <= MOST_ALARMS


def test_two_configs_differ_in_what_their_captures_say(kprof: Kprof, tmp_path: Path) -> None:
    for workspace, stages in (("two", 2), ("four", 4)):
        kprof("profile", "-o", workspace, "--launches", "all", *SELECTORS, "--", *program(stages))
    kernel = compared(kprof, "two", "four")
    assert kernel["differences"]["num_stages"] == ["2", "4"]
    assert "shared bytes" in kernel["differences"]
    found = changed(kernel)
    assert found
    # By the plain means of all launches but the first.
    for scope in kernel["scopes"]:
        if scope["name"] in found:
            before, after = (mean_ns(tmp_path / workspace, scope["name"]) for workspace in ("two", "four"))
            assert (after > before) == (found[scope["name"]] == "slower")
            assert scope["change"]["percent"] == pytest.approx(100 * (after / before - 1), abs=2)


def mean_ns(workspace: Path, name: str) -> float:
    means = []
    for launch in read_capture(workspace / "captures" / "001").launches[1:]:
        timeline = decode_launch(launch)
        names = [scope.name for scope in timeline.table.scopes]
        means.append(scope_statistics(timeline)[names.index(name)].mean_ns)
    return float(np.median(np.array(means, dtype=float)))
