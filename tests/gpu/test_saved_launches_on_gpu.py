"""Saved launches of every kind are repeated at the same addresses."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpu_support import Kprof
from program_runs import PROGRAMS

KERNELS = {
    f"{name}_kernel"
    for name in ("address", "barrier", "device_descriptor", "empty", "graph", "matmul", "nested_table", "scalars")
}


def test_launches_of_all_kinds_are_repeated(kprof: Kprof, tmp_path: Path) -> None:
    options = ("-o", "workspace", "--at", "func", "--keep-launches", "--replay", "12")
    kprof("profile", *options, "--", sys.executable, PROGRAMS / "launch_kinds.py")
    launches = sorted((tmp_path / "workspace" / "launches").glob("*/*.launch"))
    assert {launch.name.rpartition("_kernel")[0] + "_kernel" for launch in launches} == KERNELS
    with ThreadPoolExecutor(6) as pool:
        ended = pool.map(lambda launch: kprof("report", "--json", launch), launches)
        for launch, one in zip(launches, ended, strict=True):
            (found,) = json.loads(one.stdout)
            print(launch.name, round(found["duration_ns"]))
