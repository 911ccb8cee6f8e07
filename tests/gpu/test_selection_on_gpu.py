"""Selectors on the real thing: right counts, sums that add up, and results that do not change by a bit."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gpu_support import Kprof
from numpy.typing import NDArray

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

PROGRAM = Path(__file__).with_name("fixture_programs.py")
LARGE_BUFFER = ("--buffer-type", "global", "--buffer-size", "262144")


class Profiled:
    """One kernel, run by itself and with records."""

    def __init__(self, kernel: str, kprof: Kprof, environment: dict[str, str], folder: Path, *options: str) -> None:
        command = [sys.executable, str(PROGRAM), kernel, str(folder / "plain.npy")]
        subprocess.run(command, env=environment, check=True)
        kprof("profile", *options, *LARGE_BUFFER, "--", PROGRAM, kernel, folder / "with.npy")
        self.plain, self.result = np.load(folder / "plain.npy"), np.load(folder / "with.npy")
        (launch,) = read_capture(folder / "kprof_out" / "captures" / "001").launches
        self.timeline: Timeline = decode_launch(launch)
        assert self.timeline.records_lost == 0
        assert not self.timeline.open_starts.any() and not self.timeline.stray_ends.any()

    @property
    def counts(self) -> Counter[str]:
        """How often each scope ran, by the user's name."""
        scopes = self.timeline.table.scopes
        return Counter(scopes[index].name for index in self.timeline.scopes["scope"].tolist())

    def result_is_bit_identical(self) -> bool:
        return self.plain.tobytes() == self.result.tobytes()


@pytest.fixture
def profiled(kprof: Kprof, environment: dict[str, str], tmp_path: Path) -> Callable[..., Profiled]:
    def run(kernel: str, *selectors: str, split: str = "never") -> Profiled:
        options = [word for selector in selectors for word in ("--at", selector)]
        return Profiled(kernel, kprof, environment, tmp_path, *options, "--split", split)

    return run


def test_a_helper_that_is_called_in_a_loop(profiled: Callable[..., Profiled]) -> None:
    run = profiled("noinline_in_loop", "func", "iter", "func(_segment_energy)", "op(tt.load)")

    assert run.counts == {
        "func": 64 * 4,
        "iter[0]": 64 * 4 * 5,
        "_segment_energy@23": 64 * 4 * 5,
        "tt.load": 64 * 4 * 5 * 3,  # two around the call, one in the helper
    }
    assert run.result_is_bit_identical()


def test_an_early_return_that_half_of_the_ctas_take(profiled: Callable[..., Profiled]) -> None:
    run = profiled("early_return", "func", "loop", "iter", "op(tt.load)")

    assert run.counts == {
        "func": 128 * 4,
        "loop[0]": 64 * 4,
        "iter[0]": 64 * 4 * 3,
        "tt.load": 128 * 4 * 2 + 64 * 4 * 3,
    }
    assert run.result_is_bit_identical()


def test_a_while_loop_runs_as_often_as_the_kernel_itself_counts(profiled: Callable[..., Profiled]) -> None:
    run = profiled("while_condition", "func", "loop", "iter", "func(_residual)")
    steps = int(run.result[-40:].sum())

    assert steps > 40, "every block needs a few steps"
    assert run.counts == {
        "func": 40 * 4,
        "loop[0]": 40 * 4,
        "iter[0]": steps * 4,
        # In the region of the condition, which runs once more than the body.
        "_residual@25": (steps + 40) * 4,
    }
    assert run.result_is_bit_identical()


def covered_ns(timeline: Timeline, names: set[str]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """For each iteration of each warp: its time, the sum of the named scopes' times in it, and the time that at least
    one of them covers. Nanoseconds."""
    scopes = timeline.scopes
    kinds = np.array([scope.kind for scope in timeline.table.scopes])
    named = np.array([scope.name in names for scope in timeline.table.scopes])
    whole, summed, joint = [], [], []
    for iteration in scopes[kinds[scopes["scope"]] == "iter"]:
        inside = scopes[
            named[scopes["scope"]]
            & (scopes["cta"] == iteration["cta"])
            & (scopes["warp"] == iteration["warp"])
            & (scopes["start_cycles"] >= iteration["start_cycles"])
            & (scopes["end_cycles"] <= iteration["end_cycles"])
        ]
        whole.append(iteration["end_ns"] - iteration["start_ns"])
        summed.append((inside["end_ns"] - inside["start_ns"]).sum())
        reached, covered = iteration["start_ns"], 0
        for scope in np.sort(inside, order="start_ns"):
            covered += max(0, scope["end_ns"] - max(reached, scope["start_ns"]))
            reached = max(reached, scope["end_ns"])
        joint.append(covered)
    return np.array(whole), np.array(summed), np.array(joint)


@pytest.mark.parametrize("split", ["never", "runs"])
def test_the_marks_of_a_pipelined_matmul_add_up_to_the_iteration(profiled: Callable[..., Profiled], split: str) -> None:
    run = profiled("marked_matmul", "marker", "iter", split=split)
    whole, summed, joint = covered_ns(run.timeline, {"loads", "dot"})

    ctas = 256 * 4
    assert run.counts["setup"] == run.counts["main"] == run.counts["epilogue"] == run.counts["before_store"] == ctas
    assert run.counts["iter[0]"] == ctas * 32 == len(whole)
    assert run.counts["dot"] % (ctas * 32) == 0
    assert run.result_is_bit_identical()
    assert (joint <= whole).all()
    assert split == "never" or (summed <= whole).all(), "runs never hold each other's time"


@pytest.mark.parametrize("split", ["never", "runs"])
def test_the_marks_of_a_pipelined_attention_add_up_to_the_iteration(
    profiled: Callable[..., Profiled], split: str
) -> None:
    run = profiled("marked_attention", "marker", split=split)
    whole, summed, joint = covered_ns(run.timeline, {"load_k", "qk", "softmax", "load_v", "pv"})

    iterations = 16 * sum(2 * block + 2 for block in range(8)) * 4
    assert run.counts["load_q"] == run.counts["visible"] == run.counts["epilogue"] == 128 * 4
    assert run.counts["keys"] == iterations == len(whole)
    assert run.counts["softmax"] % iterations == 0
    assert run.result_is_bit_identical()
    assert (joint <= whole).all()
    assert split == "never" or (summed <= whole).all(), "runs never hold each other's time"
