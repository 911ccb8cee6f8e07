"""The timeline against globaltimer readings that the kernels take themselves, at the ends of scopes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from program_runs import ProgramRuns

from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.timeline import Timeline, decode_launch

pytestmark = pytest.mark.alone
PROGRAM = Path(__file__).with_name("timed_kernels.py")
LAUNCHES = 3
IN_A_ROW_CYCLES = 100
# Where the readings of each column of the program's arrays stand: scope and end.
FUNC, LOOP = 0, 1


@pytest.fixture(scope="module")
def timed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[Timeline, np.ndarray]]]:
    """The timeline of each launch, and the kernel's own readings, in CTA order."""
    folder = tmp_path_factory.mktemp("timed")
    options = ("--at", "func", "--at", "loop", "--ctas", "all", "--launches", "all")
    with ProgramRuns(folder) as runs:
        runs.start_kprof("profile", "-o", "ws", *options, "--", PROGRAM, "times.npz").wait()
    launches = read_capture(folder / "ws" / "captures" / "001").launches
    names = ("spin", "gemm", "pipelined_gemm")
    with np.load(folder / "times.npz") as saved:
        truth = [times for name in names for times in saved[name]]
    pairs = [(decode_launch(launch), times) for launch, times in zip(launches, truth, strict=True)]
    return {name: pairs[LAUNCHES * i : LAUNCHES * (i + 1)] for i, name in enumerate(names)}


def errors_ns(timeline: Timeline, times: np.ndarray, scope: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Timeline minus truth at the start and at the end of warp 0's scope in each CTA, and the true durations.

    A reading is close to its scope's end, but not at it: the kernel's stores stand between, and a busy memory holds
    them up for hundreds of nanoseconds. The cycle counter that was read before and after the timer tells how far it is.
    Where something came between those three (a fetch of instructions), the reading tells nothing and is left out.
    """
    mine = timeline.scopes[(timeline.scopes["scope"] == scope) & (timeline.scopes["warp"] == 0)]
    assert len(mine) == len(times)
    begin, end = (times[mine["cta"], place] for place in ((0, 3) if scope == FUNC else (1, 2)))
    in_a_row = (begin[:, 2] - begin[:, 0] < IN_A_ROW_CYCLES) & (end[:, 2] - end[:, 0] < IN_A_ROW_CYCLES)
    assert in_a_row.mean() > 0.5
    mine, begin, end = mine[in_a_row], begin[in_a_row], end[in_a_row]
    base = begin[:, 1]  # in doubles, only differences of these keep their nanoseconds
    true_start = (mine["start_cycles"] - (begin[:, 0] + begin[:, 2]) / 2) * timeline.clock.rate_ns
    true_end = end[:, 1] - base + (mine["end_cycles"] - (end[:, 0] + end[:, 2]) / 2) * timeline.clock.rate_ns
    return mine["start_ns"] - base - true_start, mine["end_ns"] - base - true_end, true_end - true_start


def spread(errors: np.ndarray) -> str:
    low, middle, high = np.percentile(errors, (0, 50, 100))
    return f"{low:+.0f} to {high:+.0f} (median {middle:+.0f}) ns"


@pytest.mark.parametrize("scope", [FUNC, LOOP], ids=["func", "loop"])
@pytest.mark.parametrize("name", ["spin", "gemm", "pipelined_gemm"])
def test_the_timeline_agrees_with_the_kernels_own_timer(timed: dict, name: str, scope: int) -> None:
    for timeline, times in timed[name]:
        start, end, duration = errors_ns(timeline, times, scope)
        worst = 100 * np.abs((end - start) / duration).max()
        what = f"{name} {'func' if scope == FUNC else 'loop'}: {len(start)} of {len(times)} CTAs"
        print(
            f"{what}: start {spread(start)}, end {spread(end)}, "
            f"duration ({np.median(duration):.0f} ns) off by {worst:.2f} % at most; "
            f"clock {timeline.clock.clock_hz / 1e6:.1f} MHz, residual {timeline.clock.residual_ns:.1f} ns"
        )
        assert np.all(np.abs(start) <= 100 + 0.01 * duration)
        assert np.all(np.abs(end) <= 100 + 0.01 * duration)
        assert np.all(np.abs(end - start) <= 100 + 0.01 * duration)
