"""The main job on the real thing: counts of scopes, losses, and results that do not change by a bit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from gpu_support import EXAMPLES, Kprof

from kprof_inject.capture.model import Launch
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import decode_launch

EVERYTHING = ("--at", "func", "--at", "loop", "--at", "iter")
EVERY_CTA = ("--ctas", "all")
LARGE_BUFFER = (*EVERY_CTA, "--buffer-type", "global", "--buffer-size", "65536")

# The example's arguments, the selectors, and what the grid and the loop's bounds come to.
CASES = {
    "vector_add": ("vector_add", (), ("--at", "func"), {"func": 1024 * 4}),
    "matmul": ("matmul", (), EVERYTHING, {"func": 256 * 4, "loop[0]": 256 * 4, "iter[0]": 256 * 4 * 16}),
    "deep matmul": (
        "matmul",
        ("--k", "16384"),
        EVERYTHING,
        {"func": 256 * 4, "loop[0]": 256 * 4, "iter[0]": 256 * 4 * 256},
    ),
    "attention": ("attention", (), EVERYTHING, {"func": 128 * 4, "loop[0]": 128 * 4, "iter[0]": 128 * 4 * 16}),
    "causal attention": (
        "attention",
        ("--causal",),
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


def run_plain(example: str, arguments: tuple[str, ...], save: Path, environment: dict[str, str]) -> str:
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), *arguments, "--save", str(save)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


def saved_bytes(path: Path) -> bytes:
    import torch

    return bytes(torch.load(path).numpy().tobytes())


def slow_counts(launch: Launch) -> tuple[Counter[str], int, int]:
    """Whole scopes by name, records written and records lost, word by word from the raw buffer."""
    found: Counter[str] = Counter()
    written = lost = 0
    warps = launch.kernel.num_warps
    ended_by_next = {scope.record for scope in launch.kernel.scopes.scopes if scope.ended_by_next}
    for row in launch.words().tolist():
        ring_words = row[3] // 4 // warps
        for warp in range(warps):
            count = row[10 + warp]
            at = 10 + warps + warp * ring_words
            ring = row[at : at + ring_words]
            if count > ring_words:
                oldest = count % ring_words
                ring = ring[oldest:] + ring[:oldest]
                lost += (count - ring_words) // 2
            else:
                ring = ring[:count]
            written += count // 2
            entries = sorted(
                ((ring[i] & 0x7FF) << 32 | ring[i + 1], i, ring[i] >> 31, ring[i] >> 23 & 0xFF)
                for i in range(0, len(ring), 2)
            )
            is_open: dict[str, bool] = {}
            for _, _, is_end, scope_id in entries:
                name = launch.kernel.scope_ids[scope_id]
                found[name] += bool(is_open.get(name) and (is_end or name in ended_by_next))
                is_open[name] = not is_end
    return found, written, lost


def records_of(ran: dict[str, int]) -> int:
    """A start of each scope that ran, and an end; the next one's start ends an iteration, but for the last of each
    loop."""
    return sum(count + ran[name.replace("iter", "loop")] for name, count in ran.items())


def slices(trace: Path) -> Counter[str]:
    """What is drawn of warps: not the launches as a whole, nor the host's calls."""
    events = json.loads(trace.read_text())["traceEvents"]
    drawn = (event for event in events if event["ph"] == "X" and event["cat"] not in ("launch", "host"))
    return Counter(event["name"] for event in drawn)


@pytest.mark.parametrize("case", CASES)
def test_a_large_buffer_keeps_every_scope_and_the_result_is_bit_identical(
    case: str, kprof: Kprof, environment: dict[str, str], tmp_path: Path
) -> None:
    example, arguments, selectors, expected = CASES[case]
    stdout = run_plain(example, arguments, tmp_path / "plain.pt", environment)
    profiled = kprof(
        "profile", *selectors, *LARGE_BUFFER, "--", EXAMPLES / f"{example}.py", *arguments, "--save", "with.pt"
    )
    assert slices(tmp_path / "kprof_out" / "trace.json") == expected
    assert saved_bytes(tmp_path / "with.pt") == saved_bytes(tmp_path / "plain.pt")
    # The program prints its own line, with the hash of its result, once.
    assert profiled.stdout.startswith(stdout) and profiled.stdout.count(stdout) == 1
    assert "lost:" not in profiled.stdout


@pytest.mark.parametrize("case", CASES)
def test_rings_in_shared_memory_keep_what_the_count_words_say(
    case: str, kprof: Kprof, environment: dict[str, str], tmp_path: Path
) -> None:
    example, arguments, selectors, expected = CASES[case]
    run_plain(example, arguments, tmp_path / "plain.pt", environment)
    program = (EXAMPLES / f"{example}.py", *arguments, "--save", "with.pt")
    profiled = kprof("profile", *selectors, *EVERY_CTA, "--buffer-type", "shared", "--", *program)
    (launch,) = read_capture(tmp_path / "kprof_out" / "captures" / "001").launches
    survived, written, lost = slow_counts(launch)
    timeline = decode_launch(launch)
    assert written == timeline.records_written == records_of(expected)
    assert lost == timeline.records_lost
    drawn = slices(tmp_path / "kprof_out" / "trace.json")
    windows = drawn.pop("lost records", 0)
    assert drawn == +survived
    lossy_warps = np.count_nonzero(timeline.incomplete["records_lost"])
    assert windows == lossy_warps == (len(timeline.ctas) * launch.kernel.num_warps if lost else 0)
    assert ("lost" in profiled.stdout) == (lost > 0)
    if case == "deep matmul":
        assert lost > 0, "the ring did not overflow"
    assert saved_bytes(tmp_path / "with.pt") == saved_bytes(tmp_path / "plain.pt")


def test_a_killed_program_leaves_what_it_had_captured(kprof: Kprof, tmp_path: Path) -> None:
    program = tmp_path / "killed.py"
    program.write_text(
        f"import os, sys, time\nsys.path.insert(0, {str(EXAMPLES)!r})\n"
        "import torch, vector_add\n"
        "x = torch.ones(1 << 20, device='cuda')\n"
        "for _ in range(3): vector_add.vector_add(x, x)\n"
        "torch.cuda.synchronize()\n"
        "time.sleep(1)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = kprof("profile", "--launches", "all", "--ctas", "all", "--", program, check=False)
    assert ended.returncode == 137
    capture = read_capture(tmp_path / "kprof_out" / "captures" / "001")
    assert [launch.index for launch in capture.launches] == [0, 1, 2]
    assert capture.processes[0].end is None
    assert slices(tmp_path / "kprof_out" / "trace.json") == {"func": 3 * 1024 * 4}
