"""The main job on the real thing: every scope is there, and neither results nor what is printed change by a bit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from gpu_support import EXAMPLES
from program_runs import ProgramRuns

EVERYTHING = ("--at", "func", "--at", "loop", "--at", "iter")
LARGE_BUFFER = ("--ctas", "all", "--buffer-type", "global", "--buffer-size", "65536")

# The example with its arguments, the selectors, and what the grid and the loop's bounds come to.
CASES = {
    "vector_add": (("--at", "func"), {"func": 1024 * 4}),
    "matmul --k 16384": (EVERYTHING, {"func": 256 * 4, "loop[0]": 256 * 4, "iter[0]": 256 * 4 * 256}),
    "attention --causal": (
        EVERYTHING,
        {
            "func": 128 * 4,
            "loop[0]": 128 * 4,
            # Query block i of 8 sees 2 i key blocks without a mask, then 2 with one.
            "iter[0]": 16 * 4 * sum(2 * i for i in range(8)),
            "loop[1]": 128 * 4,
            "iter[1]": 128 * 4 * 2,
        },
    ),
}


def saved_bytes(path: Path) -> bytes:
    import torch

    return bytes(torch.load(path).numpy().tobytes())


def slices(trace: Path) -> Counter[str]:
    """What is drawn of warps: not the launches as a whole, nor the host's calls."""
    events = json.loads(trace.read_text())["traceEvents"]
    drawn = (event for event in events if event["ph"] == "X" and event["cat"] not in ("launch", "host"))
    return Counter(event["name"] for event in drawn)


@pytest.mark.parametrize("case", CASES)
def test_a_large_buffer_keeps_every_scope_and_the_result_is_bit_identical(
    case: str, runs: ProgramRuns, tmp_path: Path
) -> None:
    selectors, expected = CASES[case]
    example, *arguments = case.split()
    program = (EXAMPLES / f"{example}.py", *arguments, "--save")
    plain = runs.start(*program, "plain.pt")
    profiled = runs.start_kprof("profile", *selectors, *LARGE_BUFFER, "--", *program, "with.pt").wait()
    stdout = plain.wait().stdout
    # Without --cta, a trace has some 200,000 scopes at most.
    runs.start_kprof("trace", tmp_path / "kprof_out", "--cta", "0-", "-o", tmp_path / "trace.json").wait()
    assert slices(tmp_path / "trace.json") == expected
    assert saved_bytes(tmp_path / "with.pt") == saved_bytes(tmp_path / "plain.pt")
    # The program prints its own line, with the hash of its result, once.
    assert profiled.stdout.startswith(stdout) and profiled.stdout.count(stdout) == 1
    assert "lost:" not in profiled.stdout
