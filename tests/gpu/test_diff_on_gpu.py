"""``diff`` on real launches of the same kernel says that nothing changed; benchmarks/regressions has what did."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from gpu_support import EXAMPLES, Kprof

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
