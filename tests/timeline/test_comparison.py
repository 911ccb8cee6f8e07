"""Whether a change is told from chance as often as is said, over simulated repeats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from kprof_inject.timeline.comparison import CONFIDENCE, MIN_LAUNCHES, Change, change_between, noise_floor, t_quantile

pytestmark = pytest.mark.slow

Times = NDArray[np.float64]
Random = np.random.Generator

TRIALS = 600
SCATTER = 0.01
# Of so many trials with errors as often as is allowed, three standard deviations more.
MOST_ERRORS = (1 - CONFIDENCE) + 3 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / TRIALS)


def plain(random: Random, count: int) -> Times:
    return random.normal(0, SCATTER, count)


def skewed_and_heavy(random: Random, count: int) -> Times:
    logs: Times = SCATTER * np.abs(random.standard_t(3, count))
    return logs


def with_outliers(random: Random, count: int) -> Times:
    return plain(random, count) + (random.random(count) < 0.1) * np.abs(random.normal(0, 20 * SCATTER, count))


def with_a_slow_first_launch(random: Random, count: int) -> Times:
    logs: Times = plain(random, count) + 0.3 * (np.arange(count) == 0)
    return logs


def alike_to_neighbours(random: Random, count: int) -> Times:
    logs = plain(random, count)
    for number in range(1, count):
        logs[number] = 0.5 * logs[number - 1] + math.sqrt(0.75) * logs[number]
    return logs


def drifting(random: Random, count: int) -> Times:
    return plain(random, count) + 0.03 * np.linspace(0, 1, count)


KINDS = [plain, skewed_and_heavy, with_outliers, with_a_slow_first_launch, alike_to_neighbours, drifting]


def processes(
    random: Random, kind: Callable[[Random, int], Times], launches: int, count: int, between: float, shift: float = 0.0
) -> list[Times]:
    return [10_000 * np.exp(kind(random, launches) + random.normal(0, between) + shift) for _ in range(count)]


def changes(
    kind: Callable[[Random, int], Times],
    launches: tuple[int, int],
    *,
    between: float = 0.005,
    floor: float = 0.005,
    count: tuple[int, int] = (1, 1),
    shift: float = 0.0,
    comparisons: int = 1,
) -> list[Change]:
    random = np.random.default_rng(20261121)
    found = [
        change_between(
            processes(random, kind, launches[0], count[0], between),
            processes(random, kind, launches[1], count[1], between, shift),
            floor=floor,
            comparisons=comparisons,
        )
        for _ in range(TRIALS)
    ]
    return [change for change in found if change is not None]


def missed(found: Sequence[Change], truth: float = 0.0) -> float:
    """How often the interval does not hold the truth."""
    return float(np.mean([abs(change.log_ratio - truth) > change.log_error for change in found]))


@pytest.mark.parametrize("launches", [(5, 5), (5, 40), (12, 12), (60, 60)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_change_is_called_one_more_often_than_is_said(
    kind: Callable[[Random, int], Times], launches: tuple[int, int]
) -> None:
    found = changes(kind, launches)
    assert len(found) == TRIALS
    assert np.mean([change.direction != 0 for change in found]) <= MOST_ERRORS


@pytest.mark.parametrize("launches", [6, 12, 27])
def test_launches_that_resemble_their_neighbours_are_no_change(launches: int) -> None:
    """Where nothing but they decides: processes hardly differ."""
    found = changes(alike_to_neighbours, (launches, launches), between=1e-5, floor=1e-5)
    assert np.mean([change.direction != 0 for change in found]) <= MOST_ERRORS


@pytest.mark.parametrize("kind", [plain, skewed_and_heavy, alike_to_neighbours])
def test_intervals_hold_a_true_change(kind: Callable[[Random, int], Times]) -> None:
    assert missed(changes(kind, (20, 30), shift=0.2), 0.2) <= MOST_ERRORS


def test_intervals_are_no_wider_than_they_must_be() -> None:
    found = changes(plain, (100, 100), between=0.003, floor=0.003)
    # For a floor that is known as well as from nine repeats, 2.3 standard deviations of two processes.
    assert np.median([change.log_error for change in found]) < 1.25 * 2.31 * math.sqrt(2) * 0.003


@pytest.mark.parametrize("kind", [with_a_slow_first_launch, with_outliers])
def test_slow_launches_here_and_there_hide_no_change(kind: Callable[[Random, int], Times]) -> None:
    widths = [np.median([change.log_error for change in changes(each, (20, 20))]) for each in (plain, kind)]
    assert widths[1] < 1.5 * widths[0]


@pytest.mark.parametrize("launches", [(12, 12), (40, 40)], ids=str)
def test_a_change_of_five_per_cent_is_seen(launches: tuple[int, int]) -> None:
    found = changes(plain, launches, between=0.003, floor=0.003, shift=math.log(1.05))
    assert np.mean([change.direction == 1 for change in found]) > 0.95
    back = changes(plain, launches, between=0.003, floor=0.003, shift=-math.log(1.05))
    assert np.mean([change.direction == -1 for change in back]) > 0.95


@pytest.mark.parametrize("between", [0.002, 0.005, 0.03])
@pytest.mark.parametrize("count", [(3, 3), (5, 1), (6, 6)], ids=str)
def test_enough_repeated_processes_say_themselves_how_they_differ(count: tuple[int, int], between: float) -> None:
    assert missed(changes(plain, (20, 20), count=count, between=between, floor=0.005)) <= MOST_ERRORS


def test_repeated_processes_that_agree_make_intervals_narrower() -> None:
    alone = changes(plain, (40, 40), between=0.001, floor=0.02)
    repeated = changes(plain, (40, 40), between=0.001, floor=0.02, count=(5, 5))
    assert np.median([change.log_error for change in repeated]) < 0.2 * np.median(
        [change.log_error for change in alone]
    )


def test_a_few_repeats_raise_the_floor_where_they_contradict_it() -> None:
    alone = changes(plain, (20, 20), between=0.05, floor=0.005)
    repeated = changes(plain, (20, 20), between=0.05, floor=0.005, count=(2, 3))
    assert missed(repeated) < missed(alone) / 3


@pytest.mark.parametrize("count", [(3, 3), (8, 4)], ids=str)
def test_processes_of_one_launch_each_are_a_sample(count: tuple[int, int]) -> None:
    assert missed(changes(plain, (1, 1), count=count, between=0.02)) <= MOST_ERRORS


def test_of_many_comparisons_all_hold_at_once() -> None:
    single = changes(plain, (20, 20))
    of_ten = changes(plain, (20, 20), comparisons=10)
    # Each is one of ten; that any of those is wrong may happen as often as one alone.
    assert missed(of_ten) <= MOST_ERRORS / 4
    assert all(wide.log_error > 1.2 * one.log_error for wide, one in zip(of_ten, single, strict=True))


@pytest.mark.parametrize("launches", [(1, 1), (1, 50), (MIN_LAUNCHES - 1, 50)], ids=str)
def test_too_few_launches_of_one_process_tell_nothing(launches: tuple[int, int]) -> None:
    assert changes(plain, launches) == []


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_value_that_is_no_time_tells_nothing(bad: float) -> None:
    good = np.full(10, 100.0)
    assert change_between([good], [np.append(good, bad)], floor=0.01) is None
    assert change_between([], [good], floor=0.01) is None


def test_times_that_are_all_equal_are_as_sure_as_the_floor() -> None:
    same = change_between([np.full(10, 100.0)], [np.full(10, 100.0)], floor=0.01)
    assert same is not None and same.direction == 0
    assert same.log_error == pytest.approx(t_quantile(0.025, 8.0) * math.sqrt(2) * 0.01)


def test_within_a_step_of_the_timer_nothing_is_a_change() -> None:
    a, b = [np.full(20, 3200.0)], [np.full(20, 3220.0)]
    fine, coarse = (change_between(a, b, floor=0.0001, step=step) for step in (0.0, 0.01))
    assert fine is not None and coarse is not None
    assert (fine.direction, coarse.direction) == (1, 0)


def test_the_two_sides_are_alike() -> None:
    random = np.random.default_rng(5)
    a, b = random.normal(100, 1, 12), random.normal(110, 4, 30)
    forth, back = change_between([a], [b], floor=0.01), change_between([b], [a], floor=0.01)
    assert forth is not None and back is not None
    assert (forth.log_ratio, forth.log_error) == pytest.approx((-back.log_ratio, back.log_error))


def test_the_floor_is_larger_the_shorter_the_launch_and_the_smaller_the_part() -> None:
    assert noise_floor(16_500, 16_500) == pytest.approx(math.hypot(0.01, 0.003))
    assert noise_floor(1e9, 1e9) == pytest.approx(0.003, rel=1e-3)
    assert noise_floor(16_500, 16_500 / 4) == pytest.approx(math.hypot(0.02, 0.003))


def test_a_change_in_words() -> None:
    assert str(Change(math.log(1.123), math.log(1.007))) == "+12.3 % ± 0.8"
    assert str(Change(-0.0001, 0.01)) == "+0.0 % ± 1.1"
    assert Change(0.1, 0.05).direction == 1 and Change(-0.1, 0.05).direction == -1 and Change(0.1, 0.1).direction == 0


@pytest.mark.parametrize(
    ("tail", "degrees", "expected"),
    [
        (0.025, 1, 12.7062),
        (0.025, 2, 4.30265),
        (0.005, 3, 5.84091),
        (0.0005, 4, 8.61030),
        (0.025, 10, 2.22814),
        (0.00005, 20, 4.83730),
        (0.05, 120, 1.65765),
        (0.025, math.inf, 1.95996),
    ],
)
def test_quantiles_of_t_are_those_of_the_tables(tail: float, degrees: float, expected: float) -> None:
    assert t_quantile(tail, degrees) == pytest.approx(expected, rel=2e-4)
