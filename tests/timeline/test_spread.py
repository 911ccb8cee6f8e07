"""Spreads over warps, CTAs and SMs, by hand."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean, median
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_clocks import Fitted, run, slowing, steady, waves

from kprof_inject.capture.slowdown import Slowdown
from kprof_inject.timeline.columns import CTA_COLUMNS, SCOPE_COLUMNS
from kprof_inject.timeline.spread import (
    ClockBend,
    CtaBalance,
    CtaSums,
    GroupSpread,
    IterationSeries,
    SpreadGroups,
    narrow,
    sampling_error,
    series_of,
    spread_of,
    turns_of,
)


def groups(*rows: tuple[int, int, int]) -> SpreadGroups:
    """Id, count and total of each."""
    ids, counts, totals_ns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return SpreadGroups(ids, counts, totals_ns)


def cta_sums(*rows: tuple[int, int, int, int], scopes: int = 1) -> CtaSums:
    """Scope, CTA, warp and duration of each scope that ran."""
    sums = CtaSums(scopes)
    scope, cta, warp, duration_ns = np.array(rows, dtype=np.int64).T
    sums.add(scope.astype(np.int16), cta.astype(np.int32), warp.astype(np.int16), duration_ns)
    return sums


def test_a_spread_names_the_slowest_and_the_fastest() -> None:
    found = spread_of(groups((0, 2, 200), (1, 1, 90), (2, 4, 440), (3, 10, 1800)))
    assert found == GroupSpread(4, 90.0, 1, 105.0, 120.0, 180.0, 3, 1.5)


def test_of_equals_the_first_is_named() -> None:
    found = spread_of(groups((4, 1, 10), (5, 1, 10)))
    assert found == GroupSpread(2, 10.0, 4, 10.0, 10.0, 10.0, 4, 1.0)


def test_where_no_time_was_taken_all_are_alike() -> None:
    found = spread_of(groups((0, 3, 0), (1, 2, 0)))
    assert found is not None
    assert (found.greatest_ns, found.imbalance) == (0.0, 1.0)


def test_the_warps_of_a_cta_are_compared_by_their_totals() -> None:
    # In CTA 5 the warps take 40, 20 and 0; in CTA 6 as much each; in CTA 7 there is but one.
    sums = cta_sums(
        *[(0, 5, 0, 15), (0, 5, 0, 25), (0, 5, 1, 20), (0, 5, 2, 0)],
        *[(0, 6, 0, 30), (0, 6, 1, 30), (0, 7, 2, 500)],
    )
    assert sums.of(0)[1] == CtaBalance(2, 1.5, 2.0, 5)


def test_another_slow_warp_in_each_cta_is_seen_within_the_ctas_alone() -> None:
    rows = [(0, cta, warp, 90 if warp == cta else 30) for cta in range(4) for warp in range(4)]
    spread, balance = cta_sums(*rows).of(0)
    assert spread is not None
    assert spread.imbalance == 1.0
    assert balance == CtaBalance(4, 2.0, 2.0, 0)


def test_warps_that_took_no_time_are_in_balance() -> None:
    assert cta_sums((0, 5, 0, 0), (0, 5, 1, 0)).of(0)[1] == CtaBalance(1, 1.0, 1.0, 5)


@pytest.mark.parametrize("long_ns", [2**31, 2**40])
def test_long_totals_are_not_cut(long_ns: int) -> None:
    assert narrow(np.array([long_ns])).itemsize == 8
    spread, _ = cta_sums((0, 5, 0, long_ns), (0, 6, 0, 1)).of(0)
    assert spread is not None
    assert spread.greatest_ns == long_ns


# Iteration by iteration: first, steady and last, by hand and against a slow way.


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
    for times_ns in every:
        for number, ns in enumerate(times_ns):
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


# The fit of the clock is a part of a sample's error.


SMS = 132


def functions_of(fitted: Fitted) -> tuple[np.ndarray, float]:
    """The scopes around the function, and how much too long they are in all, as a part."""
    cycles, true_ns = fitted.cycles[fitted.at_function], fitted.true_ns[fitted.at_function]
    found_ns = true_ns + fitted.error_ns[fitted.at_function]
    block = np.zeros(len(cycles) // 2, SCOPE_COLUMNS)
    block["end_cycles"] = cycles[1::2] - cycles[::2]
    block["end_ns"] = np.rint(found_ns[1::2] - found_ns[::2])
    return block, block["end_ns"].sum() / (true_ns[1::2] - true_ns[::2]).sum() - 1


@pytest.mark.parametrize("counter", [steady(1.7e9), slowing])
@pytest.mark.parametrize("ctas", [264, 396, 528, 1056])
def test_few_readings_that_are_delayed_are_an_error(ctas: int, counter: object) -> None:
    fitted = run(waves(ctas, SMS, 5e3), counter, around_ns=(230, 228))  # type: ignore[arg-type]
    block, error = functions_of(fitted)
    bend = ClockBend(fitted.clock)
    for part in np.array_split(block, 3):
        bend.add(part)
    assert error > 0.01
    assert bend.part == pytest.approx(error, rel=0.1)


@pytest.mark.parametrize("counter", [steady(1.7e9), slowing])
@pytest.mark.parametrize("ctas", [132, 264, 1056])
def test_readings_without_delay_are_none(ctas: int, counter: object) -> None:
    fitted = run(waves(ctas, SMS, 5e3), counter)  # type: ignore[arg-type]
    block, error = functions_of(fitted)
    inner = block.copy()
    inner["depth"], inner["end_ns"] = 1, 2 * inner["end_ns"]  # scopes inside do not count
    bend = ClockBend(fitted.clock)
    bend.add(np.concatenate([block, inner]))
    assert bend.part == pytest.approx(0, abs=0.001) and error == pytest.approx(0, abs=0.001)


def test_without_scopes_there_is_no_error() -> None:
    assert ClockBend(run(waves(4, 2, 5e3), steady(1.7e9)).clock).part == 0


@pytest.mark.parametrize(
    ("part", "share", "ends"), [(0.1, (0.328, 0.452), (0.7727, 1)), (-0.1, (0.348, 0.472), (1, 1.2778))]
)
def test_an_interval_has_room_for_the_extra_time_of_ctas_that_record(
    part: float, share: tuple[float, float], ends: tuple[float, float]
) -> None:
    """All or none of it may be in the scope, which takes 40 % of each CTA's time."""
    rows = np.zeros(100, CTA_COLUMNS)
    rows["cta"], rows["pre_final_ns"] = np.arange(100), 1000
    of_ctas = SpreadGroups(np.arange(100), np.ones(100, np.int64), np.full(100, 400))

    def error(slowdown: Slowdown | None) -> Any:
        clock = SimpleNamespace(rate_error=0.01 / 1.96)
        timeline: Any = SimpleNamespace(ctas=rows, ctas_per_recorded=8.0, clock=clock, slowdown=slowdown)
        return sampling_error(timeline, 0.02, of_ctas, np.full(100, 400), 0.4, 100_000)

    certain = error(Slowdown(part, 0.05))
    assert certain.share == pytest.approx(share)
    assert certain.p50_ns == pytest.approx((400 * (ends[0] - 0.02), 400 * (ends[1] + 0.02)), rel=1e-4)
    assert error(Slowdown(part, 0.2)).share == error(None).share == pytest.approx((0.388, 0.412))
