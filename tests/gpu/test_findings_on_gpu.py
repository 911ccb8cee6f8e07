"""A matmul with a deliberate fault: the report names that fault first; of a healthy one it names none."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

from gpu_support import Kprof

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.reader import read_capture

PROGRAM = Path(__file__).with_name("programs") / "faulty_matmul.py"
SELECTORS = ("func", "loop", "iter")
# Of the program's grid.
TILES_N = 4
# A CTA of two on an SM takes as many for all of its 32 iterations (H200).
LOOP_CYCLES = 32_000


def profiled(kprof: Kprof, workspace: Path, ctas: int, *arguments: str, at: tuple[str, ...] = SELECTORS) -> Any:
    """The launch that was captured, as ``report --json`` has it. Nothing may be missing of it."""
    selectors = [word for selector in at for word in ("--at", selector)]
    kprof("profile", "-o", workspace, *selectors, "--", PROGRAM, "--ctas", str(ctas), *arguments)
    (launch,) = json.loads(kprof("report", workspace, "--json").stdout)
    print(kprof("report", workspace).stdout)
    assert launch["records_lost"] == 0
    assert launch["ctas"] == ctas
    return launch


def rules(launch: Any) -> list[str]:
    return [finding["rule"] for finding in launch["findings"]]


def at_once(kprof: Kprof, folder: Path) -> int:
    """How many CTAs run at once: by a small launch, in which nobody looks for a fault."""
    launch = profiled(kprof, folder / "small", TILES_N)
    kernel = kernel_in(folder / "small")
    assert kernel.sm_count and kernel.with_records.ctas_per_sm
    assert launch["waves"]["slots_per_sm"] == kernel.with_records.ctas_per_sm
    return kernel.sm_count * kernel.with_records.ctas_per_sm


def kernel_in(workspace: Path) -> Kernel:
    (launch,) = read_capture(max((workspace / "captures").iterdir())).launches
    return launch.kernel


def test_of_a_healthy_matmul_nothing_is_found(kprof: Kprof, tmp_path: Path) -> None:
    launch = profiled(kprof, tmp_path / "healthy", 12 * at_once(kprof, tmp_path))
    # How fast the clock may run is the device's affair. Where counters are read, they show what tiles of 128 x 128 ask
    # of the L2.
    assert set(rules(launch)) <= {"throttled", "small-tiles"}
    assert {"tensor cores", "L2"} & set(launch["limit"]["units"])


def test_a_grid_of_few_ctas_is_too_small(kprof: Kprof, tmp_path: Path) -> None:
    launch = profiled(kprof, tmp_path / "few", 8 * TILES_N)
    assert rules(launch)[0] == "low-fill"
    assert launch["findings"][0]["figures"]["device_sms"] == kernel_in(tmp_path / "few").sm_count


def test_a_tail_wave_is_named_first(kprof: Kprof, tmp_path: Path) -> None:
    ctas = TILES_N * ceil((at_once(kprof, tmp_path) + 2) / TILES_N)
    launch = profiled(kprof, tmp_path / "tail", ctas)
    assert rules(launch)[0] == "tail"
    figures = launch["findings"][0]["figures"]
    assert figures["waves"] == 2
    assert figures["last_wave_ctas"] <= 2 + TILES_N
    assert launch["findings"][0]["share"] > 0.2


def test_a_slow_prologue_is_named_first(kprof: Kprof, tmp_path: Path) -> None:
    ctas = 12 * at_once(kprof, tmp_path)
    launch = profiled(kprof, tmp_path / "prologue", ctas, "--prologue", str(LOOP_CYCLES))
    assert rules(launch)[0] == "prologue"
    # The other CTA of the SM has the tensor cores for itself meanwhile, and is the faster for it.
    assert 0.35 < launch["findings"][0]["share"] < 0.75


def test_an_imbalanced_warp_is_named_first(kprof: Kprof, tmp_path: Path) -> None:
    ctas = 12 * at_once(kprof, tmp_path)
    cycles = str(LOOP_CYCLES // 16)
    launch = profiled(kprof, tmp_path / "warp", ctas, "--uneven", cycles, at=(*SELECTORS, "marker(uneven)"))
    first = launch["findings"][0]
    assert (first["rule"], first["scope"]) == ("imbalanced-warps", "uneven")
    assert first["figures"]["slow_warp_ids"] == "0"
    assert first["share"] > 0.3
