"""A matmul with a deliberate fault: the report names that fault first; of a healthy one it names none."""

from __future__ import annotations

import json
from math import ceil
from typing import Any

import pytest
from program_runs import PROGRAMS, ProgramRuns, Run

from kprof_inject.capture.model import Kernel

SELECTORS = ("func", "loop", "iter")
# Of the program's grid.
TILES_N = 4
# A CTA of two on an SM takes as many for all of its 32 iterations (H200).
LOOP_CYCLES = 32_000


def profiled(
    runs: ProgramRuns, ctas: int, *arguments: str, at: tuple[str, ...] = SELECTORS
) -> tuple[Any, list[str], Kernel]:
    """The launch that was captured, as ``--json`` has it, the rules that found something, and the kernel. Nothing may
    be missing of it."""
    selectors = [word for selector in at for word in ("--at", selector)]
    program = ("--", PROGRAMS / "faulty_matmul.py", "--ctas", str(ctas), *arguments)
    stdout = runs.start_kprof("profile", "--json", *selectors, *program).wait().stdout
    (launch,) = json.loads(stdout[stdout.index("[") :])
    rules = [finding["rule"] for finding in launch["findings"]]
    print(launch["limit"]["text"], rules)
    assert launch["records_lost"] == 0
    assert launch["ctas"] == ctas
    (captured,) = Run(runs.folder / "kprof_out").launches
    return launch, rules, captured.kernel


@pytest.fixture(scope="module")
def at_once(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many CTAs run at once: by a small launch, in which nobody looks for a fault."""
    with ProgramRuns(tmp_path_factory.mktemp("small")) as runs:
        launch, _, kernel = profiled(runs, TILES_N)
    assert kernel.sm_count and kernel.with_records.ctas_per_sm
    assert launch["waves"]["slots_per_sm"] == kernel.with_records.ctas_per_sm
    return kernel.sm_count * kernel.with_records.ctas_per_sm


def test_of_a_healthy_matmul_nothing_is_found(runs: ProgramRuns, at_once: int) -> None:
    launch, rules, _ = profiled(runs, 12 * at_once)
    # How fast the clock may run is the device's affair. Where counters are read, they show what tiles of 128 x 128 ask
    # of the L2.
    assert set(rules) <= {"throttled", "small-tiles"}
    assert {"tensor cores", "L2"} & set(launch["limit"]["units"])


def test_a_grid_of_few_ctas_is_too_small(runs: ProgramRuns) -> None:
    launch, rules, kernel = profiled(runs, 8 * TILES_N)
    assert rules[0] == "low-fill"
    assert launch["findings"][0]["figures"]["device_sms"] == kernel.sm_count


def test_a_tail_wave_is_named_first(runs: ProgramRuns, at_once: int) -> None:
    launch, rules, _ = profiled(runs, TILES_N * ceil((at_once + 2) / TILES_N))
    assert rules[0] == "tail"
    figures = launch["findings"][0]["figures"]
    assert figures["waves"] == 2
    assert figures["last_wave_ctas"] <= 2 + TILES_N
    assert launch["findings"][0]["share"] > 0.2


def test_a_slow_prologue_is_named_first(runs: ProgramRuns, at_once: int) -> None:
    launch, rules, _ = profiled(runs, 12 * at_once, "--prologue", str(LOOP_CYCLES))
    assert rules[0] == "prologue"
    # The other CTA of the SM has the tensor cores for itself meanwhile, and is the faster for it.
    assert 0.35 < launch["findings"][0]["share"] < 0.75


def test_an_imbalanced_warp_is_named_first(runs: ProgramRuns, at_once: int) -> None:
    uneven = ("--uneven", str(LOOP_CYCLES // 16))
    launch, _, _ = profiled(runs, 12 * at_once, *uneven, at=(*SELECTORS, "marker(uneven)"))
    first = launch["findings"][0]
    assert (first["rule"], first["scope"]) == ("imbalanced-warps", "uneven")
    assert first["figures"]["slow_warp_ids"] == "0"
    assert first["share"] > 0.3
