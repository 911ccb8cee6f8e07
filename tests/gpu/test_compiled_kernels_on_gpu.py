"""Kernels that are tuned, generated or refused: each program computes the same, and what could be captured is right."""

from __future__ import annotations

import re
from collections import Counter
from math import prod

import pytest
from program_runs import ProgramRuns, counts

EVERYTHING = ("--at", "func", "--at", "loop", "--at", "iter")
LARGE_BUFFER = ("--buffer-type", "global", "--buffer-size", "16384")


def test_an_autotuned_matmul_is_captured_in_the_configuration_that_was_chosen(runs: ProgramRuns) -> None:
    ended, run = runs.profile("autotuned_matmul", *EVERYTHING, *LARGE_BUFFER, "--launches", "all")
    chosen = re.findall(r"best_config num_warps=(\d+) num_stages=(\d+)", ended.stdout)[-1]  # with records
    warps, stages = map(int, chosen)

    assert len(list((run.workspace / "kernels").iterdir())) == 6, ended
    # A configuration that is only tried has no build with records.
    states = Counter(run.states().values())
    assert states == {"tuned_matmul_kernel instrumented": 1, "tuned_matmul_kernel dumped": 5}, ended
    (choice,) = (choice for report in run.reports() for choice in report.get("choices", []))
    assert choice["kernel"] == "tuned_matmul_kernel"
    assert f"num_warps: {warps}," in choice["config"] and f"num_stages: {stages}," in choice["config"]
    # The program's own five calls; the tuner's hundreds are left out.
    assert [launch.index for launch in run.launches] == [0, 1, 2, 3, 4], ended
    for launch in run.launches:
        assert (launch.kernel.num_warps, launch.kernel.metadata["num_stages"]) == (warps, stages)
        assert counts(launch) == {"func": 16 * warps, "loop[0]": 16 * warps, "iter[0]": 16 * warps * 8}


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_a_compiled_transformer_block_keeps_its_generated_kernels_and_the_users_own(
    runs: ProgramRuns, mode: str
) -> None:
    ended, run = runs.profile("compiled_block", "--at", "func", arguments=("--mode", mode))
    names = sorted({launch.kernel.name for launch in run.launches})
    replayed = sum(launch.graph for launch in run.launches)
    print(f"{', '.join(names)}; {replayed} of {len(run.launches)} launches are replays of CUDA graphs")

    assert bool(replayed) == (mode == "reduce-overhead"), ended
    for launch in run.launches:
        assert counts(launch)["func"] == prod(launch.grid) * launch.kernel.num_warps, launch.kernel.name
    if mode == "default":
        for pattern in ("triton_poi_", "triton_(red|per)_", "gate_kernel"):
            assert any(re.match(pattern, name) for name in names), f"no {pattern} among {names}: {ended}"
        assert all("left alone" not in state for state in run.states().values()), run.states()
