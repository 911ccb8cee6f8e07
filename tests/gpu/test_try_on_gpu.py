"""Edits on a device: what is known to be badly chosen is found, the program is left alone, and wins are confirmed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_support import EXAMPLES, Kprof
from program_runs import ProgramRuns

SECONDS = ("--seconds", "5", "--json")


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[ProgramRuns]:
    with ProgramRuns(tmp_path) as runs:
        yield runs


def found_in(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed[printed.index('{\n "schema"') :])["kernels"]
    return found


@pytest.mark.parametrize("way", ["once", "thrice", "autotuned", "inductor", "descriptor", "view", "in_place"])
def test_a_program_computes_the_same_bit_for_bit(runs: ProgramRuns, way: str) -> None:
    ended = runs.run_beside_itself("try", "seldom", *SECONDS, arguments=("--way", way))
    for found in found_in(ended.stdout):
        print(f"{way}: {found['headline']}")


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("low-pass-filter", "loop-invariant"),
        ("divergence", "reduction-in-loop"),
        ("bias-gradient", "reduction-in-loop"),
        ("density", "special-functions"),
        ("peak-error", "reduction-in-loop"),
    ],
)
def test_bounds_are_not_below_what_the_edit_wins(kprof: Kprof, case: str, rule: str) -> None:
    """``benchmarks/advice/judge.py`` measures what the edit wins: 15 % or more in each of these."""
    ended = kprof("try", *SECONDS, "--", str(EXAMPLES.parent / "benchmarks/advice/program.py"), case)
    (found,) = found_in(ended.stdout)
    bounds = [one for one in found["record"]["bounds"] if one["reason"] == rule]
    for one in bounds:
        print(case, one["removed"], one["gain"], one["predicted"], one["refusal"])
    assert bounds
    assert all(one["refusal"] for one in bounds) or any(one["gain"] and one["gain"]["high"] > 0.05 for one in bounds)


def test_more_stages_make_an_unpipelined_matmul_faster(kprof: Kprof) -> None:
    ended = kprof("try", *SECONDS, "--", str(EXAMPLES / "matmul.py"), "--num-stages", "1")
    (found,) = [one for one in found_in(ended.stdout) if one["record"]["name"] == "matmul_kernel"]
    print(found["headline"])
    assert found["apply"]["options"]["num_stages"] > 1
    assert found["apply"]["gain"]["won"] > 0.2
