"""The whole way of a program on the fake GPU: dumped, planned, run with records, decoded. Real kernels, real hooks."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import triton
from fake_gpu.captured import ends_of, launches_in, number_of, scopes_of, states_in
from fake_gpu.driver import CLEAN_REGISTERS, REGISTERS_WITH_RECORDS, SPILLS_WITH_RECORDS
from fake_runs import REAL_TORCH, FakeRuns
from programs.child import GUARD_S, Ended
from replacing import replace

pytestmark = pytest.mark.triton

LAUNCHES = 12
BENCHMARKS = 4 * 3
OWN_OF_TUNED = 3


@pytest.fixture(scope="module")
def runs(planned_once: FakeRuns) -> FakeRuns:
    """torch itself takes part, as in users' programs, beside the Triton that was installed with it."""
    return replace(planned_once, path=REAL_TORCH) if _has_own_torch(triton) else planned_once


def _has_own_torch(package: ModuleType) -> bool:
    """Not if it is another version, from a folder that stands first on the path."""
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None and package.__file__ is not None
    return Path(torch.origin).parents[1] == Path(package.__file__).parents[1]


@pytest.fixture(scope="module")
def plain(runs: FakeRuns) -> Ended:
    return runs.plain()


@pytest.fixture(scope="module")
def ended(runs: FakeRuns) -> Ended:
    """One run of all kernels with records."""
    process = runs.start(ending="return")
    stdout, stderr = process.communicate(timeout=GUARD_S)
    return Ended(process.returncode, stdout, stderr)


def device_saw(ended: Ended) -> dict[str, Any]:
    (line,) = [line for line in ended.stderr.splitlines() if line.startswith("{")]
    return json.loads(line)


def test_the_program_prints_and_computes_the_same(plain: Ended, ended: Ended) -> None:
    # Registers, spills and the autotuner's choice are part of what it prints.
    assert (ended.exit_code, ended.stdout) == (plain.exit_code, plain.stdout)
    assert "kprof-inject" not in plain.stderr and plain.exit_code == 0, plain.stderr


def test_the_last_launch_of_each_kernel_is_decoded(runs: FakeRuns, ended: Ended) -> None:
    last = {launch.kernel.name: launch for launch in launches_in(runs.capture)}
    assert {name: (launch.index, number_of(launch)) for name, launch in last.items()} == {
        "scale": (LAUNCHES - 1, LAUNCHES),
        "power": (2, 3),
        "tuned": (OWN_OF_TUNED - 1, 3),
    }
    assert scopes_of(last["scale"]) == {"func": 16 * 4}
    assert scopes_of(last["power"]) == {"func": 16 * 4, "loop[0]": 16 * 4, "iter[0]": 16 * 4}
    assert scopes_of(last["tuned"]) == {"func": 16 * 8}
    assert len(launches_in(runs.capture)) == 3
    assert [end["left_out"] for end in ends_of(runs.capture)] == [{}]


def test_what_became_of_each_kernel_is_reported(runs: FakeRuns, ended: Ended) -> None:
    states = states_in(runs.reports)
    assert Counter({key[:2]: count for key, count in states.items()}) == {
        ("scale", "instrumented"): 1,
        ("power", "instrumented"): 1,
        ("tuned", "instrumented"): 1,
        ("total", "left alone"): 1,
    }
    (reason,) = [reason for name, _, reason in states if name == "total"]
    assert reason.startswith("Triton does not compile it ")
    assert f"total ran unchanged: {reason}" in ended.stderr


def test_an_autotuner_compares_kernels_without_records(runs: FakeRuns, plain: Ended, ended: Ended) -> None:
    """With records, four warps would win on this GPU; without, eight."""
    ran, ran_plain = device_saw(ended)["ran"], device_saw(plain)["ran"]
    assert [launch[:3] for launch in ran] == [launch[:3] for launch in ran_plain]
    tuned = [(warps, stages, records) for name, warps, stages, records in ran if name == "tuned"]
    assert tuned[BENCHMARKS:] == [(8, 4, True)] * OWN_OF_TUNED
    assert Counter(tuned[:BENCHMARKS]) == {(warps, stages, False): 3 for warps in (4, 8) for stages in (2, 4)}
    (report,) = [json.loads(path.read_text()) for path in runs.reports.glob("*.json")]
    ((kernel, config),) = [(choice["kernel"], choice["config"]) for choice in report["choices"]]
    assert kernel == "tuned" and config.startswith("num_warps: 8, num_ctas: 1, num_stages: 4")


def test_both_steps_time_the_kernel_and_tell_what_it_takes(runs: FakeRuns, ended: Ended) -> None:
    (launch,) = launches_in(runs.capture, "scale")
    kernel = json.loads((launch.kernel.folder / "kernel.json").read_text())
    assert launch.kernel.sm_count == 132
    with_records = json.loads((launch.kernel.folder / "timing.json").read_text())["times_ns"]
    clean = kernel["clean"]
    assert (clean["registers"], clean["spills"], clean["shared_bytes"]) == (CLEAN_REGISTERS, 0, 0)
    built = kernel["with_records"]
    assert (built["registers"], built["spills"]) == (REGISTERS_WITH_RECORDS, SPILLS_WITH_RECORDS)
    # The fake GPU takes the same time for each launch of a kernel; three warm it up.
    assert clean["times_ns"] == [20_000 - 4 * 100 - 3 * 10] * (LAUNCHES - 3)
    assert with_records == [time_ns + 2 * 4 * 200 for time_ns in clean["times_ns"]]


def test_every_buffer_lived_until_its_kernel_had_written_it(ended: Ended) -> None:
    assert device_saw(ended)["freed_writes"] == 0
