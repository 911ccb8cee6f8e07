"""Spins of a known number of cycles, in every mode: what the scopes around them say, and what Proton says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from gpu_support import Kprof
from numpy.typing import NDArray

from kprof_inject.capture.reader import read_capture
from kprof_inject.select.plan import BODY_RECORD
from kprof_inject.timeline.timeline import decode_launch

pytestmark = pytest.mark.alone
PROGRAM = Path(__file__).with_name("programs") / "spins.py"
CYCLES = (300, 3_000, 30_000, 100_000)
# 15 for what is not known of a record's cost; the first spin of all, of 300 cycles, also waits for its instructions.
LARGEST_ERROR_CYCLES = 18
BEGIN, END, BEFORE, AFTER, IDLE, IDLE_AGAIN = range(6)

SHARED = ("--buffer-type", "shared")
# Our options, and Proton's mode where it has the same.
MODES = {
    "shared": (SHARED, "default:optimizations=time_shift"),
    "shared, clock 32": ((*SHARED, "--clock32"), "default:optimizations=time_shift,clock32"),
    "shared, moved stores": ((*SHARED, "--sched-stores"), "default:optimizations=time_shift,sched_stores"),
    "shared, one warp": ((*SHARED, "--warps", "0"), ""),
    "global": (("--buffer-type", "global"), "default:buffer_type=global:optimizations=time_shift"),
    "global, clock 32": (
        ("--buffer-type", "global", "--clock32"),
        "default:buffer_type=global:optimizations=time_shift,clock32",
    ),
    "global, moved stores": (
        ("--buffer-type", "global", "--sched-stores"),
        "default:buffer_type=global:optimizations=time_shift,sched_stores",
    ),
}


@dataclass(frozen=True)
class Spins:
    """The workspace with the records, and what a spin of each length takes beyond its own readings, without records:
    shape (lengths,)."""

    workspace: Path
    override: Path
    tail_cycles: NDArray[np.float64]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spins")


def prepared(kprof: Kprof, folder: Path) -> Spins:
    workspace = folder / "workspace"
    if not workspace.exists():
        kprof("dump", "-o", workspace, "--", PROGRAM, folder / "clean.npz")
        kprof("insert", workspace)
    times = np.load(folder / "clean.npz")["times"]
    around = (times[..., AFTER] - times[..., BEFORE]) - (times[..., END] - times[..., BEGIN])
    # Two readings in a row are one reading apart: of that, too, the spin is free.
    idle = np.median(times[..., IDLE_AGAIN] - times[..., IDLE])
    (override,) = (workspace / "override").iterdir()
    return Spins(workspace, override, np.median(around.reshape(len(CYCLES), -1), axis=1) - idle)


def of_each_spin(columns: NDArray[np.int64], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """A column of scopes, ordered by CTA and start, in the shape of the program's own readings."""
    lengths, repetitions, ctas, _ = times.shape
    return columns.reshape(ctas, lengths, repetitions).transpose(1, 2, 0)


def medians(errors: NDArray[np.float64]) -> list[float]:
    return [float(np.median(error)) for error in errors]


def proton_cycles(folder: Path, override: Path, mode: str) -> list[float] | None:
    """The median error of the durations in Proton's own trace, by length; None if it fails in this mode."""
    out, trace = folder / "proton.npz", folder / "proton"
    environment = os.environ | {
        "TRITON_ALWAYS_COMPILE": "1",
        "TRITON_KERNEL_OVERRIDE": "1",
        "TRITON_OVERRIDE_DIR": str(override),
        "TRITON_CACHE_DIR": str(folder / "proton-cache"),
    }
    command = [sys.executable, str(PROGRAM), str(out), "--proton", str(trace), "--mode", mode]
    if subprocess.run(command, env=environment, capture_output=True).returncode:
        return None
    times = np.load(out)["times"]
    rows = []
    for event in json.loads(trace.with_suffix(".chrome_trace").read_text())["traceEvents"]:
        place = re.search(r"CTA(\d+) warp 0 ", f"{event.get('pid')} {event.get('tid')}")
        if event["ph"] == "X" and place and event["name"] != BODY_RECORD:
            # Proton takes the clock for 1 GHz, so that its microseconds are thousands of cycles.
            rows.append((int(place[1]), event["ts"], 1000 * event["dur"]))
    cycles = np.array([cycles for _, _, cycles in sorted(rows)])
    return medians(of_each_spin(cycles, times) - (times[..., END] - times[..., BEGIN]))


def saved(row: dict[str, object]) -> None:
    with Path(os.environ.get("OUT", "."), "spins.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def shown(errors: Sequence[float] | None) -> str:
    return "-" if errors is None else " ".join(f"{error:+7.1f}" for error in errors)


@pytest.mark.parametrize("mode", MODES)
def test_a_spin_lasts_as_long_as_it_does(kprof: Kprof, folder: Path, mode: str) -> None:
    spins = prepared(kprof, folder)
    options, protons_mode = MODES[mode]
    kprof("run", spins.workspace, *options, "--", PROGRAM, folder / "times.npz")
    (launch,) = read_capture(max((spins.workspace / "captures").iterdir())).launches
    timeline = decode_launch(launch)
    assert timeline.records_lost == timeline.records_damaged == 0
    scopes = timeline.scopes[timeline.scopes["warp"] == 0]
    times = np.load(folder / "times.npz")["times"]
    truth = times[..., END] - times[..., BEGIN] + spins.tail_cycles[:, None, None]
    raw = medians(of_each_spin(scopes["end_cycles"] - scopes["start_cycles"], times) - truth)
    compensated = medians(of_each_spin(scopes["duration_cycles"], times) - truth)
    proton = proton_cycles(folder, spins.override, protons_mode) if protons_mode else None
    if proton is not None:
        proton = [error - tail for error, tail in zip(proton, spins.tail_cycles.tolist(), strict=True)]
    cost = launch.kernel.record_cost
    assert cost is not None
    print(f"{mode}: a record costs {cost.cycles:.1f} cycles, tails {spins.tail_cycles.tolist()}")
    print(f"raw {shown(raw)} | compensated {shown(compensated)} | Proton's time_shift {shown(proton)}")
    saved({"mode": mode, "cost": cost.cycles, "raw": raw, "compensated": compensated, "proton": proton})
    for length, error in zip(CYCLES, compensated, strict=True):
        assert abs(error) <= max(LARGEST_ERROR_CYCLES, 0.01 * length)
