"""The middle and the outer tenths of iterations, by their number."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Scope
from msgspec.structs import asdict
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.summary import summarise
from kprof_inject.report.html.pictures import IterationTimes


def bands(folder: Path, runs: Sequence[Sequence[tuple[int, int]]]) -> dict[str, list[Any]]:
    """Of runs of a loop, each in a warp of its own, with numbers and durations of their iterations."""
    rows = [Ran(0, ns, cta, iteration=number) for cta, run in enumerate(runs) for number, ns in run]
    ctas = cta_rows(*((cta, cta, 0, 100, 100) for cta in range(len(runs))))
    series = summarise(made_timeline(folder, [Scope("iter[0]", "iter")], [scope_rows(rows)], ctas)).scopes[0].iterations
    assert series is not None
    times = IterationTimes(series)
    for run in runs:
        numbers, durations = np.array(run, dtype=np.int64).reshape(-1, 2).T
        times.add(numbers.astype(np.int32), durations)
    return {name: column.tolist() for name, column in asdict(times.bands()).items()}


def test_a_short_loop_has_a_point_for_each_iteration(tmp_path: Path) -> None:
    found = bands(tmp_path, [[(0, 900), (1, 100), (2, 120)], [(0, 1100), (1, 104)]])
    assert (found["first"], found["last"], found["counts"]) == ([0, 1, 2], [0, 1, 2], [2, 2, 1])
    assert (found["p10_ns"], found["p50_ns"], found["p90_ns"]) == (
        [920.0, 100.4, 120.0],
        [1000.0, 102.0, 120.0],
        [1080.0, 103.6, 120.0],
    )


def test_a_long_loop_keeps_its_first_ones_and_groups_the_rest(tmp_path: Path) -> None:
    random = np.random.default_rng(8)
    runs = [[(number, int(random.integers(50, 5000))) for number in range(length)] for length in (3000, 2999, 1200)]
    found = bands(tmp_path, runs)
    assert found["first"][:66] == [*range(64), 64, 71]
    assert found["last"][:65] == [*range(64), 70]
    assert found["last"][-1] == 2999
    assert found["first"][1:] == [last + 1 for last in found["last"][:-1]]
    assert 400 < len(found["first"]) <= 512
    for index, (first, last) in enumerate(zip(found["first"], found["last"], strict=True)):
        values = [ns for run in runs for number, ns in run if first <= number <= last]
        assert found["counts"][index] == len(values)
        expected = np.quantile(values, [0.1, 0.5, 0.9])
        shown = [found[name][index] for name in ("p10_ns", "p50_ns", "p90_ns")]
        assert shown == pytest.approx(expected, abs=0.051)


def test_a_damaged_record_cannot_spoil_the_other_points(tmp_path: Path) -> None:
    found = bands(tmp_path, [[(0, 1 << 60), (1, 10)]])
    assert (found["first"], found["p50_ns"][1]) == ([0, 1], 10.0)
