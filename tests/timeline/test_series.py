"""Iteration by iteration: first, steady and last, by hand and against a slow way."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean, median
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.spread import IterationSeries, narrow, series_of, turns_of

UNKNOWN = -1


class Warp(NamedTuple):
    """What one warp did: runs of a loop, of each the durations of iterations."""

    runs: list[list[int]]
    cta: int = 0
    warp: int = 0


def series(*blocks: list[Warp]) -> IterationSeries | None:
    turns, durations_ns = [], []
    for block in blocks:
        cells = [(warp.cta, warp.warp, number) for warp in block for run in warp.runs for number in range(len(run))]
        cta, warp_id, iteration = np.array(cells, dtype=np.int32).reshape(-1, 3).T
        turns.append(turns_of(np.zeros(len(cells), dtype=np.int16), cta, warp_id.astype(np.int16), iteration))
        values = [ns for warp in block for run in warp.runs for ns in run]
        durations_ns.append(narrow(np.array(values, dtype=np.int64)))
    return series_of(turns, durations_ns)


def numbered(*iterations: tuple[int, int]) -> IterationSeries | None:
    """Of one warp: numbers and durations as they are."""
    number, duration_ns = np.array(iterations, dtype=np.int64).T
    zeros = np.zeros(len(number), dtype=np.int16)
    turn = turns_of(zeros, zeros.astype(np.int32), zeros, number.astype(np.int32))
    return series_of([turn], [narrow(duration_ns)])


def test_a_run_does_not_go_on_in_the_next_warp_or_cta_or_block() -> None:
    # Numbers that would go on: 0, 1 of one warp, and 2, 3 of the next, which lost its first two.
    warps = np.array([0, 0, 1, 1], dtype=np.int16)
    zeros, number = np.zeros(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    scope = np.zeros(4, dtype=np.int16)
    assert turns_of(scope, zeros, warps, number).tolist() == [1, -2, 3, -4]
    assert turns_of(scope, warps.astype(np.int32), scope, number).tolist() == [1, -2, 3, -4]
    assert turns_of(warps, zeros, scope, number).tolist() == [1, -2, 3, -4]
    found = series([Warp([[1, 2]])], [Warp([[3, 4]], warp=1)])
    assert found is not None
    assert found.runs == 2


def test_iterations_without_a_number_are_left_out() -> None:
    found = numbered((UNKNOWN, 500), (UNKNOWN, 600), (0, 10), (1, 20), (2, 30))
    assert found is not None
    assert (found.counts.tolist(), found.runs, found.first_ns) == ([1, 1, 1], 1, 10.0)
    assert numbered((UNKNOWN, 500), (UNKNOWN, 600)) is None


def test_a_run_that_goes_on_with_unknown_numbers_has_no_known_length_and_no_last() -> None:
    """As behind a damaged record."""
    found = numbered((0, 10), (1, 20), (2, 30), (UNKNOWN, 90), (UNKNOWN, 90), (0, 10), (1, 20), (2, 20), (3, 40))
    assert found is not None
    assert (found.runs, found.fewest, found.most, found.last_ns) == (1, 4, 4, 40.0)
    assert found.counts.tolist() == [2, 2, 2, 1]


def test_without_the_first_there_is_no_first() -> None:
    found = numbered((3, 10), (4, 20), (5, 30))
    assert found is not None
    assert found.numbers.tolist() == [3, 4, 5]
    assert (found.first_ns, found.steady_ns, found.last_ns, found.most) == (None, 15.0, 30.0, 6)


def test_no_steady_time_makes_no_ratio() -> None:
    found = series([Warp([[5, 0, 0, 5]])])
    assert found is not None
    assert (found.steady_ns, found.first_over_steady) == (0.0, None)


def test_a_duration_beyond_all_reason_spoils_no_number() -> None:
    found = series([Warp([[10, 2**62, 30, 40]])])
    assert found is not None
    assert found.numbers.tolist() == [0, 1, 2, 3]
    assert (found.p50_ns[[0, 2, 3]].tolist(), found.p50_ns[1] > 2**59) == ([10.0, 30.0, 40.0], True)


runs = st.lists(st.lists(st.integers(0, 30) | st.integers(0, 2**33), min_size=1, max_size=6), max_size=4)


@given(st.lists(st.lists(runs, max_size=3), min_size=1, max_size=3))
def test_the_fast_way_says_what_a_slow_one_does(blocks: list[list[list[list[int]]]]) -> None:
    found = series(*[[Warp(ran, warp=number) for number, ran in enumerate(block)] for block in blocks])
    every = [run for block in blocks for warp in block for run in warp]
    if not every:
        assert found is None
        return
    assert found is not None
    by_number = defaultdict(list)
    for run in every:
        for number, ns in enumerate(run):
            by_number[number].append(ns)
    assert found.numbers.tolist() == sorted(by_number)
    assert found.counts.tolist() == [len(by_number[number]) for number in sorted(by_number)]
    assert found.mean_ns.tolist() == pytest.approx([mean(by_number[number]) for number in sorted(by_number)])
    assert found.p50_ns.tolist() == [median(by_number[number]) for number in sorted(by_number)]
    middle = [ns for run in every for ns in run[1:-1]]
    last = [run[-1] for run in every if len(run) > 1]
    assert found.first_ns == median(run[0] for run in every)
    assert found.steady_ns == (median(middle) if middle else None)
    assert found.last_ns == (median(last) if last else None)
    assert (found.runs, found.median) == (len(every), median(map(len, every)))
