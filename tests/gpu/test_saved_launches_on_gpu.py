"""Saved launches of every kind are repeated at the same addresses."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from gpu_support import EXAMPLES, Kprof
from program_runs import PROGRAMS

KERNELS = {
    "accumulate_kernel",
    "address_kernel",
    "barrier_kernel",
    "device_descriptor_kernel",
    "empty_kernel",
    "graph_kernel",
    "host_descriptor_kernel",
    "matmul_kernel",
    "nested_table_kernel",
    "scalars_kernel",
    "table_kernel",
    "view_kernel",
}


@pytest.fixture
def kept(kprof: Kprof, tmp_path: Path) -> Any:
    def keep(program: Path, *options: str) -> list[Path]:
        kprof("profile", "-o", "workspace", "--at", "func", "--keep-launches", *options, "--", sys.executable, program)
        return sorted((tmp_path / "workspace" / "launches").glob("*/*.launch"))

    return keep


def test_launches_of_all_kinds_are_repeated(kprof: Kprof, kept: Any) -> None:
    launches = kept(PROGRAMS / "launch_kinds.py", "--replay", "12")
    assert {launch.name.rpartition("_kernel")[0] + "_kernel" for launch in launches} == KERNELS
    with ThreadPoolExecutor(6) as pool:
        ended = pool.map(lambda launch: kprof("report", "--json", launch), launches)
        for launch, one in zip(launches, ended, strict=True):
            (found,) = json.loads(one.stdout)
            print(launch.name, round(found["duration_ns"]))


def test_a_launch_is_profiled_and_delayed(kprof: Kprof, kept: Any) -> None:
    (launch,) = kept(EXAMPLES / "matmul.py")
    report = json.loads(kprof("profile", "-o", "again", "--json", launch).stdout)
    assert report
    slopes = json.loads(kprof("causal", "-o", "delays", "--seconds", "4", "--json", launch).stdout)
    places = {place["scope"].split("@")[0]: place["slope"]["value"] for place in slopes[0]["places"]}
    assert places["prologue"] > 0.4
