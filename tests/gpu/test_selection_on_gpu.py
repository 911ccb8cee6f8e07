"""Selectors on the real thing: right counts, sums that add up, and results that do not change by a bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from program_runs import ProgramRuns

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

PROGRAM = Path(__file__).with_name("fixture_programs.py")
LARGE_BUFFER = ("--buffer-type", "global", "--buffer-size", "262144")
SELECTORS = (
    *("segment_energy_kernel/func", "segment_energy_kernel/iter"),
    *("segment_energy_kernel/func(_segment_energy)", "segment_energy_kernel/op(tt.load)"),
    *("ragged_mean_kernel/func", "ragged_mean_kernel/loop"),
    *("ragged_mean_kernel/iter", "ragged_mean_kernel/op(tt.load)"),
    *("cube_root_kernel/func", "cube_root_kernel/loop", "cube_root_kernel/iter", "cube_root_kernel/func(_residual)"),
    *("marked_matmul_kernel/marker", "marked_matmul_kernel/iter", "marked_attention_kernel/marker"),
)
RUNS = pytest.mark.parametrize("run", ["runs"], indirect=True)


@dataclass
class Profiled:
    """All kernels, run by themselves and with records."""

    plain: dict[str, NDArray[np.float32]]
    result: dict[str, NDArray[np.float32]]
    timelines: dict[str, Timeline]

    def counts(self, kernel: str) -> Counter[str]:
        """How often each scope of a kernel ran, by the user's name."""
        timeline = self.timelines[kernel]
        assert timeline.records_lost == 0
        assert not timeline.open_starts.any() and not timeline.stray_ends.any()
        scopes = timeline.table.scopes
        return Counter(scopes[index].name for index in timeline.scopes["scope"].tolist())


@pytest.fixture(scope="module", params=["never", "runs"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("selection")
    options = [word for selector in SELECTORS for word in ("--at", selector)]
    with ProgramRuns(folder) as runs:
        plain_run = runs.start(PROGRAM, "plain.npz")
        options += ["--split", request.param, *LARGE_BUFFER]
        runs.start_kprof("profile", *options, "--", PROGRAM, "with.npz").wait()
        plain_run.wait()
    launches = read_capture(folder / "kprof_out" / "captures" / "001").launches
    plain, result = (dict(np.load(folder / f"{name}.npz")) for name in ("plain", "with"))
    return Profiled(plain, result, {launch.kernel.name: decode_launch(launch) for launch in launches})


def test_results_are_bit_identical(run: Profiled) -> None:
    assert [name for name, plain in run.plain.items() if plain.tobytes() != run.result[name].tobytes()] == []


def test_a_helper_that_is_called_in_a_loop(run: Profiled) -> None:
    assert run.counts("segment_energy_kernel") == {
        "func": 64 * 4,
        "iter[0]": 64 * 4 * 5,
        "_segment_energy@23": 64 * 4 * 5,
        "tt.load": 64 * 4 * 5 * 3,  # two around the call, one in the helper
    }


def test_an_early_return_that_half_of_the_ctas_take(run: Profiled) -> None:
    assert run.counts("ragged_mean_kernel") == {
        "func": 128 * 4,
        "loop[0]": 64 * 4,
        "iter[0]": 64 * 4 * 3,
        "tt.load": 128 * 4 * 2 + 64 * 4 * 3,
    }


def test_a_while_loop_runs_as_often_as_the_kernel_itself_counts(run: Profiled) -> None:
    steps = int(run.result["while_condition"][-40:].sum())
    assert steps > 40, "every block needs a few steps"
    assert run.counts("cube_root_kernel") == {
        "func": 40 * 4,
        "loop[0]": 40 * 4,
        "iter[0]": steps * 4,
        # In the region of the condition, which runs once more than the body.
        "_residual@25": (steps + 40) * 4,
    }


def iteration_ns(timeline: Timeline, names: set[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each iteration of each warp: its time, and the sum of the named scopes' times in it. Nanoseconds."""
    scopes = np.sort(timeline.scopes, order="start_cycles")
    is_iteration = np.array([scope.kind == "iter" for scope in timeline.table.scopes])[scopes["scope"]]
    is_named = np.array([scope.name in names for scope in timeline.table.scopes])[scopes["scope"]]
    whole, summed = [], []
    for cta, warp in np.unique(scopes[["cta", "warp"]]):
        is_mine = (scopes["cta"] == cta) & (scopes["warp"] == warp)
        iterations, inside = scopes[is_mine & is_iteration], scopes[is_mine & is_named]
        place = np.searchsorted(iterations["start_cycles"], inside["start_cycles"], "right") - 1
        within = (place >= 0) & (inside["end_cycles"] <= iterations["end_cycles"][place])
        whole.append(iterations["end_ns"] - iterations["start_ns"])
        sums = np.zeros(len(iterations), np.int64)
        np.add.at(sums, place[within], (inside["end_ns"] - inside["start_ns"])[within])
        summed.append(sums)
    return np.concatenate(whole), np.concatenate(summed)


@RUNS
def test_the_marks_of_a_pipelined_matmul_add_up_to_the_iteration(run: Profiled) -> None:
    counts, ctas = run.counts("marked_matmul_kernel"), 256 * 4
    whole, summed = iteration_ns(run.timelines["marked_matmul_kernel"], {"loads", "dot"})
    assert counts["setup"] == counts["main"] == counts["epilogue"] == counts["before_store"] == ctas
    assert counts["iter[0]"] == ctas * 32 == len(whole)
    assert counts["dot"] % (ctas * 32) == 0
    assert (summed <= whole).all(), "runs never hold each other's time"


@RUNS
def test_the_marks_of_a_pipelined_attention_add_up_to_the_iteration(run: Profiled) -> None:
    counts, iterations = run.counts("marked_attention_kernel"), 16 * sum(2 * block + 2 for block in range(8)) * 4
    names = {"load_k", "qk", "softmax", "load_v", "pv"}
    whole, summed = iteration_ns(run.timelines["marked_attention_kernel"], names)
    assert counts["load_q"] == counts["visible"] == counts["epilogue"] == 128 * 4
    assert counts["keys"] == iterations == len(whole)
    assert counts["softmax"] % iterations == 0
    assert (summed <= whole).all(), "runs never hold each other's time"
