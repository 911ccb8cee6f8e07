"""Saved launches of every kind are repeated at the same addresses, and give the program's results."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
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


def run_of(kprof: Kprof, launch: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kprof("launch", "run", "--json", "--times", "30", launch, check=False).stdout)
    return found


def test_launches_of_all_kinds_give_the_programs_results(kprof: Kprof, kept: Any) -> None:
    launches = kept(PROGRAMS / "launch_kinds.py", "--replay", "12")
    assert {launch.name.rpartition("_kernel")[0] + "_kernel" for launch in launches} == KERNELS
    for launch in launches:
        found = run_of(kprof, launch)
        print(launch.name, round(statistics.median(found["times_ns"])), found["differences"], found["is_compared"])
        assert not found["differences"], launch.name
        assert found["is_compared"] or json.loads((launch / "launch.json").read_text())["graph"]


def test_a_launch_is_profiled_delayed_scrubbed_and_written_as_a_script(
    kprof: Kprof, kept: Any, tmp_path: Path, environment: dict[str, str]
) -> None:
    (launch,) = kept(EXAMPLES / "matmul.py")
    report = json.loads(kprof("profile", "-o", "again", "--json", launch).stdout)
    assert report
    slopes = json.loads(kprof("causal", "-o", "delays", "--seconds", "4", "--json", launch).stdout)
    places = {place["scope"].split("@")[0]: place["slope"]["value"] for place in slopes[0]["places"]}
    assert places["prologue"] > 0.4
    first = statistics.median(run_of(kprof, launch)["times_ns"])
    kprof("launch", "scrub", launch, "-o", "scrubbed.launch")
    second = statistics.median(run_of(kprof, tmp_path / "scrubbed.launch")["times_ns"])
    print(f"scrubbed: {first:.0f} and {second:.0f} ns")
    assert second == pytest.approx(first, rel=0.1)
    kprof("launch", "script", launch, "-o", "repro.py")
    script = [sys.executable, str(tmp_path / "repro.py")]
    ended = subprocess.run(script, env=environment, capture_output=True, text=True, check=True)
    assert "matmul_kernel: " in ended.stdout
    assert "crc32" in ended.stdout
