"""Spins of a known number of cycles, in every mode: what the scopes around them say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu_support import Kprof
from numpy.typing import NDArray

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

pytestmark = pytest.mark.alone
PROGRAM = Path(__file__).with_name("programs") / "spins.py"
CYCLES = (300, 3_000, 30_000, 100_000)
# 15 for what is not known of a record's cost; the first spin of all, of 300 cycles, also waits for its instructions.
LARGEST_ERROR_CYCLES = 18
BEGIN, END, BEFORE, AFTER, IDLE, IDLE_AGAIN = range(6)

SHARED, GLOBAL = ("--buffer-type", "shared"), ("--buffer-type", "global")
MODES = {
    "shared": SHARED,
    "shared, clock 32": (*SHARED, "--clock32"),
    "shared, moved stores": (*SHARED, "--sched-stores"),
    "shared, one warp": (*SHARED, "--warps", "0"),
    "global": GLOBAL,
    "global, clock 32": (*GLOBAL, "--clock32"),
    "global, moved stores": (*GLOBAL, "--sched-stores"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("spins")


def tail_cycles(kprof: Kprof, folder: Path) -> NDArray[np.float64]:
    """What a spin of each length takes beyond its own readings, without records; the workspace is made first."""
    if not (folder / "workspace").exists():
        kprof("dump", "-o", folder / "workspace", "--", PROGRAM, folder / "clean.npz")
        kprof("insert", folder / "workspace")
    times = np.load(folder / "clean.npz")["times"]
    around = (times[..., AFTER] - times[..., BEFORE]) - (times[..., END] - times[..., BEGIN])
    # Two readings in a row are one reading apart: of that, too, the spin is free.
    idle = np.median(times[..., IDLE_AGAIN] - times[..., IDLE])
    tails: NDArray[np.float64] = np.median(around.reshape(len(CYCLES), -1), axis=1) - idle
    return tails


def median_errors(durations: NDArray[np.int64], truth: NDArray[np.float64]) -> list[float]:
    """By length, of durations that are ordered by CTA and start."""
    lengths, repetitions, ctas = truth.shape
    errors = durations.reshape(ctas, lengths, repetitions).transpose(1, 2, 0) - truth
    return [float(np.median(error)) for error in errors]


@pytest.mark.parametrize("mode", MODES)
def test_a_spin_lasts_as_long_as_it_does(kprof: Kprof, folder: Path, mode: str) -> None:
    tails = tail_cycles(kprof, folder)
    kprof("run", folder / "workspace", *MODES[mode], "--", PROGRAM, folder / "times.npz")
    (launch,) = read_capture(max((folder / "workspace" / "captures").iterdir())).launches
    timeline = decode_launch(launch)
    assert timeline.records_lost == timeline.records_damaged == 0
    scopes = timeline.scopes[timeline.scopes["warp"] == 0]
    times = np.load(folder / "times.npz")["times"]
    truth = times[..., END] - times[..., BEGIN] + tails[:, None, None]
    raw = median_errors(scopes["end_cycles"] - scopes["start_cycles"], truth)
    compensated = median_errors(scopes["duration_cycles"], truth)
    print(f"{mode}: {launch.kernel.record_cost}, tails {tails.tolist()}, raw {raw}, compensated {compensated}")
    for length, error in zip(CYCLES, compensated, strict=True):
        assert abs(error) <= max(LARGEST_ERROR_CYCLES, 0.01 * length)
