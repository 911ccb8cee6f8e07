"""The overhead and its interval: on samples whose truth is known, how often does the interval hold it?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.trust import Overhead, overhead_of, usable_times

KERNEL_NS = 400_000.0
SEEDS = 400

Times = NDArray[np.float64]
Noise = Callable[[np.random.Generator, int, float], Times]


def skewed(random: np.random.Generator, count: int, kernel_ns: float) -> Times:
    """A launch is never faster than the kernel, and sometimes much slower."""
    return kernel_ns * np.exp(random.gamma(1.5, 0.01, count))


def with_outliers(random: np.random.Generator, count: int, kernel_ns: float) -> Times:
    times = kernel_ns * (1 + 0.01 * random.standard_normal(count))
    return np.where(random.random(count) < 0.05, 3 * times, times)


def in_timer_steps(random: np.random.Generator, count: int, kernel_ns: float) -> Times:
    return np.round(kernel_ns * (1 + 0.004 * random.standard_normal(count)) / 32) * 32


@pytest.mark.parametrize("count", [5, 20, 100])
@pytest.mark.parametrize("noise", [skewed, with_outliers, in_timer_steps])
def test_the_interval_holds_a_known_overhead_as_often_as_it_says(noise: Noise, count: int) -> None:
    held = 0
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        overhead = overhead_of(noise(random, count, KERNEL_NS), noise(random, count, 1.02 * KERNEL_NS))
        held += overhead.low_percent <= 2.0 <= overhead.high_percent
    # A binomial count of so many seeds lies within 0.03 of its mean. More than promised is no fault.
    assert held / SEEDS >= CONFIDENCE - 0.03


@pytest.mark.parametrize("noise", [skewed, with_outliers, in_timer_steps])
def test_the_interval_is_no_wider_than_it_must_be(noise: Noise) -> None:
    """Of 100 launches whose times scatter by one per cent, an overhead of two per cent is seen."""
    seen = 0
    for seed in range(SEEDS):
        random = np.random.default_rng(seed)
        seen += overhead_of(noise(random, 100, KERNEL_NS), noise(random, 100, 1.02 * KERNEL_NS)).low_percent > 0
    assert seen / SEEDS >= 0.99


def test_a_clock_that_drifts_widens_the_interval() -> None:
    """The same times, once in the order of a clock that falls, once shuffled."""
    falling = np.linspace(KERNEL_NS, 1.05 * KERNEL_NS, 40)
    shuffled = np.random.default_rng(0).permutation(falling)
    assert overhead_of(falling, falling).error_percent > 2 * overhead_of(shuffled, shuffled).error_percent


def test_the_overhead_is_that_of_the_medians() -> None:
    clean = np.array([100.0, 101, 102, 103, 9_000]) * 100
    overhead = overhead_of(clean, 1.5 * clean)
    assert overhead.percent == pytest.approx(50)


def test_equal_times_say_no_more_than_the_timer_does() -> None:
    overhead = overhead_of(np.full(50, KERNEL_NS), np.full(50, KERNEL_NS))
    # 500 ns / √12, and the 165 ns between two runs, on either side, at 1.96 standard errors.
    error_ns = np.hypot(500 / 12**0.5, 165)
    assert overhead.percent == 0
    assert overhead.error_percent == pytest.approx(100 * np.expm1(1.96 * 2**0.5 * error_ns / KERNEL_NS), rel=1e-4)


def test_times_that_no_launch_can_take_are_left_out() -> None:
    assert usable_times([3.0, 0.0, -1.0, float("nan"), float("inf"), 5.0]).tolist() == [3.0, 5.0]


@pytest.mark.parametrize(
    ("overhead", "shown", "is_measurable"),
    [
        (Overhead(0.62, 0.3), "+0.6 % ± 0.3", True),
        (Overhead(0.62, 0.31), "+0.6 % ± 0.4", True),
        (Overhead(-0.02, 0.001), "+0.0 % ± 0.1", True),
        (Overhead(-1.25, 1.3), "-1.2 % ± 1.3", False),
        (Overhead(45.06, 12.0), "+45.1 % ± 12.0", True),
    ],
)
def test_an_overhead_is_shown_with_its_error_rounded_up(overhead: Overhead, shown: str, is_measurable: bool) -> None:
    assert (str(overhead), overhead.is_measurable) == (shown, is_measurable)
