"""Verdicts on kernels whose costs are made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Scope, save_launch
from numpy.typing import NDArray
from replacing import replace
from snapshots import check

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.resources import KernelResources
from kprof_inject.timeline.comparison import CONFIDENCE
from kprof_inject.timeline.trust import (
    Level,
    Overhead,
    Verdict,
    is_comparable,
    judge,
    overhead_in_pairs,
    overhead_of,
    usable_times,
)

# A median of 10 ms, between order statistics that are 14 µs apart: so long that two processes compare well.
TIMES_NS = tuple(1e3 * us for us in (9_990, 9_993, 9_995, 9_998, 10_000, 10_002, 10_005, 10_007, 10_010))
CLEAN = KernelResources(128, 0, shared_bytes=1024, ctas_per_sm=8, times_ns=TIMES_NS)


def slower(percent: float) -> tuple[float, ...]:
    return tuple(time * (1 + percent / 100) for time in TIMES_NS)


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return save_launch(tmp_path, [Scope("k")], [Cta([[]])], slots=4).kernel


def verdict_on(kernel: Kernel, clean: dict[str, Any], with_records: dict[str, Any]) -> Verdict:
    """Of a kernel that costs nothing more with records, but for what is given."""
    return judge(replace(kernel, clean=replace(CLEAN, **clean), with_records=replace(CLEAN, **with_records)))


@pytest.mark.parametrize(
    ("clean", "with_records", "level", "case"),
    [
        ({}, {"times_ns": slower(0.6)}, Level.TRUSTWORTHY, "slower by 0.6 %"),
        ({}, {}, Level.TRUSTWORTHY, "no cost"),
        ({}, {"times_ns": slower(-0.1)}, Level.TRUSTWORTHY, "faster by chance"),
        ({}, {"times_ns": slower(0.6), "registers": 136}, Level.TRUSTWORTHY, "more registers"),
        ({"registers": None}, {"times_ns": slower(4.5)}, Level.TRUSTWORTHY, "unknown registers"),
        ({}, {"times_ns": slower(5.5)}, Level.CAREFUL, "slower by 5.5 %"),
        ({}, {"times_ns": slower(-6)}, Level.CAREFUL, "faster by 6 %"),
        ({}, {"times_ns": slower(25)}, Level.UNRELIABLE, "slower by 25 %"),
        ({}, {"spills": 12}, Level.CAREFUL, "spills"),
        ({"spills": 4}, {"spills": 12}, Level.CAREFUL, "more spills"),
        ({}, {"spills": 12, "times_ns": slower(19.9)}, Level.UNRELIABLE, "spills, and much slower"),
        ({"times_ns": None}, {"spills": 12}, Level.UNRELIABLE, "spills, and no times"),
        ({}, {"ctas_per_sm": 4}, Level.CAREFUL, "lower occupancy"),
        ({"ctas_per_sm": 2}, {"ctas_per_sm": 3}, Level.CAREFUL, "higher occupancy"),
        ({}, {"times_ns": TIMES_NS[:2]}, Level.UNKNOWN, "two launches"),
        ({"times_ns": ()}, {}, Level.UNKNOWN, "no launches"),
        ({"times_ns": None, "registers": None}, {"times_ns": None}, Level.UNKNOWN, "no times without records"),
        ({}, {"times_ns": None}, Level.UNKNOWN, "no times with records"),
    ],
)
def test_a_verdict(
    kernel: Kernel, clean: dict[str, Any], with_records: dict[str, Any], level: Level, case: str
) -> None:
    verdict = verdict_on(kernel, clean, with_records)
    assert verdict.level is level
    check("timeline/verdicts", verdict.text, case)


def test_the_weightiest_ground_stands_first(kernel: Kernel) -> None:
    overlap = verdict_on(kernel, {}, {"ctas_per_sm": 4}).text
    slow = verdict_on(kernel, {}, {"times_ns": slower(25)}).text
    spills = verdict_on(kernel, {}, {"spills": 1}).text
    verdict = verdict_on(kernel, {}, {"ctas_per_sm": 4, "times_ns": slower(25)})
    assert (verdict.level, verdict.text) == (Level.UNRELIABLE, f"{slow}; {overlap}")
    verdict = verdict_on(kernel, {}, {"ctas_per_sm": 4, "spills": 1, "times_ns": slower(0.6)})
    assert (verdict.level, verdict.text) == (Level.CAREFUL, f"{spills}; {overlap}")


def test_what_is_known_to_be_bad_is_said_before_what_is_not_known(kernel: Kernel) -> None:
    overlap = verdict_on(kernel, {}, {"ctas_per_sm": 4}).text
    untimed = verdict_on(kernel, {"times_ns": None}, {}).text
    verdict = verdict_on(kernel, {"times_ns": None}, {"ctas_per_sm": 4})
    assert verdict.level is Level.CAREFUL
    assert verdict.text == f"{overlap}; {untimed}"


def scattered(median_ns: float, part: float, launches: int = 9) -> tuple[float, ...]:
    """Times that lie evenly within so much of their median, in no order."""
    times = np.linspace(median_ns * (1 - part), median_ns * (1 + part), launches)
    return tuple(np.random.default_rng(0).permutation(times).tolist())


def test_an_interval_wider_than_the_limits_is_no_verdict(kernel: Kernel) -> None:
    """The medians are equal, and might as well be a third apart."""
    verdict = verdict_on(kernel, {"times_ns": scattered(1e7, 0.3)}, {"times_ns": scattered(1e7, 0.3)})
    assert (verdict.level, verdict.figure) == (Level.CANNOT_TELL, "")
    check("timeline/verdicts", verdict.text, "times that scatter")
    assert verdict.to_json()["overhead_percent"] == 0.0


@pytest.mark.parametrize("us", [3, 4, 5])
def test_of_a_kernel_that_two_runs_differ_in_by_more_than_the_limit_nothing_can_be_told(
    kernel: Kernel, us: int
) -> None:
    times_ns = scattered(1e3 * us, 0.01, 50)
    verdict = verdict_on(kernel, {"times_ns": times_ns}, {"times_ns": tuple(1.02 * time for time in times_ns)})
    assert (verdict.level, verdict.figure) == (Level.CANNOT_TELL, "")
    assert "(measured: +2.0 % ± " in verdict.text
    if us == 4:
        check("timeline/verdicts", verdict.text, "a short kernel")


def test_an_interval_that_bounds_nothing_is_not_written_out(kernel: Kernel) -> None:
    verdict = verdict_on(kernel, {"times_ns": scattered(4e3, 0.9)}, {"times_ns": scattered(4.5e3, 0.9)})
    assert verdict.text.endswith("(measured: +12.5 % ± >100)")


@pytest.mark.parametrize(("percent", "level"), [(-94, "cannot tell"), (-21, "cannot tell"), (-19, "careful")])
def test_a_kernel_that_is_far_faster_with_records_was_slowed_without(
    kernel: Kernel, percent: float, level: str
) -> None:
    verdict = verdict_on(kernel, {}, {"times_ns": slower(percent)})
    assert verdict.level.value == level
    assert ("records cannot cause" in verdict.text) == (level == "cannot tell")
    assert ("%" in verdict.figure) == ("%" in verdict.text) == (level == "careful")


@pytest.mark.parametrize(
    ("percent", "level", "figure"),
    [(40, "unreliable", "at least +30.9 %"), (18, "careful", "at least +10.4 %"), (10, "cannot tell", "")],
)
def test_a_cost_that_is_beyond_a_limit_for_sure_is_one(kernel: Kernel, percent: float, level: str, figure: str) -> None:
    """By intervals that are wider than the limits, of some ± 8 %."""
    clean = scattered(1e7, 0.06)
    verdict = verdict_on(kernel, {"times_ns": clean}, {"times_ns": tuple(t * (1 + percent / 100) for t in clean)})
    assert verdict.overhead is not None and 7 < verdict.overhead.error_percent < 10
    assert (verdict.level.value, verdict.figure) == (level, figure)


def test_a_cost_that_may_be_beyond_the_limit_is_not_called_good(kernel: Kernel) -> None:
    clean = scattered(1e7, 0.04)
    verdict = verdict_on(kernel, {"times_ns": clean}, {"times_ns": tuple(1.025 * time for time in clean)})
    assert verdict.level is Level.CAREFUL
    check("timeline/verdicts", verdict.text, "perhaps beyond the limit")


def test_spills_are_told_without_a_figure_that_is_noise(kernel: Kernel) -> None:
    noise = scattered(1e7, 0.3)
    verdict = verdict_on(kernel, {"times_ns": noise}, {"times_ns": noise, "spills": 12})
    assert (verdict.level, verdict.figure) == (Level.UNRELIABLE, "")
    spills = verdict_on(kernel, {}, {"spills": 12}).text
    assert verdict.text.startswith(f"{spills}; the times of")


def test_why_a_kernel_was_not_timed_is_said(kernel: Kernel) -> None:
    reason = "the program records events itself"
    verdict = verdict_on(kernel, {"times_ns": (), "not_timed": reason}, {"times_ns": ()})
    assert (verdict.level, verdict.figure) == (Level.UNKNOWN, "")
    check("timeline/verdicts", verdict.text, "not timed")


def test_an_unknown_occupancy_and_unknown_spills_are_not_held_against_it(kernel: Kernel) -> None:
    verdict = verdict_on(kernel, {"ctas_per_sm": None, "spills": None}, {"ctas_per_sm": 4, "spills": 3})
    assert verdict.level is Level.TRUSTWORTHY


def in_turn(kernel: Kernel, percent: float, scatter: float, pairs: int = 20) -> Verdict:
    """Replays whose clock drifts by half, and that differ by ``percent`` within each pair."""
    drift = np.linspace(1, 1.5, pairs)
    noise = 1 + scatter * np.random.default_rng(0).standard_normal(pairs)
    clean, with_records = 4_000 * drift, 4_000 * drift * noise * (1 + percent / 100)
    return verdict_on(
        kernel,
        {"times_ns": (), "replayed_ns": tuple(clean.tolist())},
        {"times_ns": (), "replayed_ns": tuple(with_records.tolist())},
    )


def test_replays_tell_what_a_few_launches_cannot(kernel: Kernel) -> None:
    """The drift is on both sides of each pair; and what two processes differ by is in neither."""
    verdict = in_turn(kernel, 2.0, 0.002)
    assert verdict.level is Level.TRUSTWORTHY
    assert verdict.overhead is not None
    assert abs(verdict.overhead.percent - 2.0) < verdict.overhead.error_percent < 0.5
    assert verdict.to_json()["clean"]["replays_timed"] == 20
    assert verdict.to_json()["clean"]["median_time_ns"] == pytest.approx(5_000)


def test_replays_that_scatter_too_much_are_no_verdict(kernel: Kernel) -> None:
    verdict = in_turn(kernel, 2.0, 0.5)
    assert verdict.level is Level.CANNOT_TELL
    check("timeline/verdicts", verdict.text.partition(" (measured: ")[0], "replays that scatter")


def test_of_four_replays_nothing_is_said(kernel: Kernel) -> None:
    assert in_turn(kernel, 2.0, 0.002, pairs=4).level is Level.UNKNOWN


def test_the_interval_of_replays_holds_the_truth_in_19_of_20_cases() -> None:
    drawn = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        clean = 5_000 * (1 + 0.1 * drawn.standard_normal(40).cumsum() / 6)
        pairs = clean, clean * 1.03 * (1 + 0.01 * drawn.standard_normal(40))
        overhead = overhead_in_pairs(*(side.tolist() for side in pairs))
        assert overhead is not None
        hits += overhead.low_percent <= 3 <= overhead.high_percent
    assert 368 <= hits <= 396


@pytest.mark.parametrize("scatter", [0.001, 0.01])
def test_the_steps_of_a_timer_are_no_chance_that_more_replays_average_out(scatter: float) -> None:
    drawn = np.random.default_rng(2)
    hits = 0
    for _ in range(200):
        steps = 5_000 * np.array([[1.0], [1.03]]) * (1 + scatter * drawn.standard_normal((2, 50))) / 500
        overhead = overhead_in_pairs(*(500 * steps.round()).tolist())
        assert overhead is not None
        hits += overhead.low_percent <= 3 <= overhead.high_percent
    assert hits >= 190


def test_a_kernel_may_be_too_short_for_the_timer(kernel: Kernel) -> None:
    clean, with_records = (replace(CLEAN, replayed_ns=(ns,) * 30) for ns in (5_000.0, 5_500.0))
    verdict = judge(replace(kernel, clean=clean, with_records=with_records))
    assert verdict.level is Level.CANNOT_TELL
    check("timeline/verdicts", verdict.text, "too short for the timer")


def test_why_a_kernel_was_not_launched_again_is_part_of_the_verdict(kernel: Kernel) -> None:
    untimed = replace(kernel, clean=replace(CLEAN, times_ns=()), with_records=CLEAN, not_replayed="it prints")
    assert judge(untimed).text.endswith("because it prints")
    check("timeline/verdicts", judge(untimed).text, "not replayed")


@pytest.mark.parametrize(("launches", "us", "is_known"), [(50, 100, True), (50, 4, False), (4, 100, False)])
def test_which_kernels_are_launched_again(launches: int, us: float, is_known: bool) -> None:
    assert is_comparable(np.asarray(scattered(1e3 * us, 0.01, launches))) == is_known


def launched(kernel: Kernel, clean_empty_ns: float | None, with_records_empty_ns: float | None) -> Verdict:
    """A kernel that takes 10 µs, and 11 with records. Launching takes 2 µs, and 3 with records."""
    return verdict_on(
        kernel,
        {"times_ns": (12_000.0,) * 9, "empty_launch_ns": clean_empty_ns},
        {"times_ns": (14_000.0,) * 9, "empty_launch_ns": with_records_empty_ns},
    )


def test_what_launching_takes_is_in_no_time_and_no_overhead(kernel: Kernel) -> None:
    verdict = launched(kernel, 2_000.0, 3_000.0)
    assert not verdict.has_launching
    assert (verdict.clean_ns, verdict.with_records_ns) == pytest.approx((10_000, 11_000))
    assert verdict.overhead is not None and verdict.overhead.percent == pytest.approx(10)


@pytest.mark.parametrize("known", [(None, None), (2_000.0, None), (None, 3_000.0)])
def test_unless_it_is_known_of_both_builds(kernel: Kernel, known: tuple[float | None, float | None]) -> None:
    verdict = launched(kernel, *known)
    assert verdict.has_launching
    assert (verdict.clean_ns, verdict.with_records_ns) == pytest.approx((12_000, 14_000))


def test_a_kernel_that_takes_no_longer_than_an_empty_one_has_no_overhead_to_tell(kernel: Kernel) -> None:
    verdict = launched(kernel, 12_500.0, 14_500.0)
    assert verdict.level is Level.CANNOT_TELL
    assert "too short" in verdict.text


def test_the_times_of_replays_are_those_of_their_overhead(kernel: Kernel) -> None:
    """The median of the ratios is not the ratio of the medians."""
    drawn = np.random.default_rng(3)
    clean, with_records = 5_000 * drawn.lognormal(0, 0.1, (2, 20))
    verdict = verdict_on(kernel, {"replayed_ns": (*clean,)}, {"replayed_ns": (*(1.1 * with_records),)})
    assert verdict.overhead is not None and verdict.clean_ns == pytest.approx(np.median(clean))
    assert verdict.with_records_ns == pytest.approx(verdict.clean_ns * (1 + verdict.overhead.percent / 100))


# The overhead and its interval: on samples whose truth is known, how often does the interval hold it?


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
