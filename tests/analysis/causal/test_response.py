from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest

from kprof_inject.analysis.causal.response import QUANTILE, Column, DelayErrors, Interval, Response, response

DELAYS = np.array([0.0, 60, 180, 540, 1620])
ERRORS = DelayErrors(offset=12.0, own=10.0)


def answer(slope: float, slack: float = np.inf, beyond: float = 1.0, *, error: float = 1.0, seed: int = 0) -> Response:
    """Of a kernel that takes ``slope`` of each cycle up to ``slack``, and ``beyond`` of each from there on."""
    noise = np.random.default_rng(seed)
    own = noise.normal(0, ERRORS.own, len(DELAYS))
    taken = np.where(DELAYS > 0, DELAYS + noise.normal(0, ERRORS.offset) + own, 0)
    longer = slope * np.minimum(taken, slack) + beyond * np.maximum(taken - slack, 0)
    found = response(DELAYS, longer + noise.normal(0, error, len(DELAYS)), np.full(len(DELAYS), error), ERRORS)
    assert found is not None
    return found


@pytest.mark.parametrize("slope", [0.0, 0.3, 1.0, 1.4])
def test_a_line_has_a_slope_and_no_slack(slope: float) -> None:
    found = answer(slope)
    assert found.slope.value == pytest.approx(slope, abs=0.05)
    assert found.slack is None


@pytest.mark.parametrize("slack", [200, 400, 1000])
def test_what_is_hidden_up_to_a_delay(slack: float) -> None:
    found = answer(0.0, slack)
    assert found.slope.value == pytest.approx(0, abs=0.05)
    assert found.slack is not None
    assert found.slack.value == pytest.approx(slack, rel=0.1)
    assert found.slack.low <= slack <= found.slack.high
    assert found.beyond == pytest.approx(1, abs=0.15)


def test_a_single_delay_beyond_the_bend_tells_where_it_is() -> None:
    """The faster side of two that meet, as measured on an H100: 3,784 of 6,699 cycles showed, so 2,915 did not."""
    delays = np.array([0.0, 66, 231, 726, 2244, 6699])
    longer = np.array([0.0, 0.5, 1.1, 0.6, 1.7, 3783.8])
    found = response(delays, longer, np.full(len(delays), 0.8), ERRORS)
    assert found is not None and found.slack is not None
    assert found.slack.value == pytest.approx(2915, rel=0.005)
    assert found.beyond == pytest.approx(1, abs=0.005)


def test_what_bends_before_the_shortest_delay_is_as_steep_as_behind_it() -> None:
    """Nothing tells it from a delay that takes less than it is said to."""
    assert answer(0.0, 20).slope.value == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_intervals_hold_the_truth_in_most_cases() -> None:
    of_lines = [answer(1.0, error=5, seed=seed).slope for seed in range(60)]
    assert sum(one.low <= 1.0 <= one.high for one in of_lines) >= 55
    hidden = [answer(0.0, 300, error=5, seed=seed) for seed in range(60)]
    assert sum(one.slope.low <= 0 <= one.slope.high for one in hidden) >= 55
    assert sum(one.slack is not None and one.slack.low <= 300 <= one.slack.high for one in hidden) >= 54


@pytest.mark.slow
def test_intervals_hold_the_truth_where_the_slope_is_told_by_a_delay_beyond_the_bend() -> None:
    """Of 180 cycles, 80 show; of each one more, all of it."""
    slopes = [(one.slope, one.up_to) for one in (answer(0.0, 100, seed=seed) for seed in range(60))]
    assert {up_to for _, up_to in slopes} <= {180, 540}
    assert sum(slope.low <= 1 - 100 / up_to <= slope.high for slope, up_to in slopes) >= 55


@pytest.mark.slow
def test_noise_makes_no_bend() -> None:
    assert sum(answer(0.5, error=20, seed=seed).slack is not None for seed in range(60)) <= 3


def test_a_single_delay_says_nothing() -> None:
    assert response(np.array([0.0]), np.array([0.0]), np.array([1.0]), ERRORS) is None


def test_two_make_a_line() -> None:
    found = response(np.array([0.0, 1000]), np.array([5.0, 505]), np.array([1.0, 1.0]), ERRORS)
    assert found is not None
    assert found.slope.value == pytest.approx(0.5, abs=0.02)
    assert found.slope.low <= 0.5 <= found.slope.high


EXACT = DelayErrors(offset=10.0, own=0.0)


def steps(delays: list[float], longer: list[float], errors: DelayErrors = EXACT, error: float = 1.0) -> Response:
    """Return the response of a kernel that was measured without noise."""
    found = response(np.array(delays), np.array(longer), np.full(len(delays), error), errors)
    assert found is not None
    return found


def test_the_slope_is_that_of_the_shortest_delay_that_is_precise() -> None:
    # A delay of 8 offsets or more, whose own error and offset leave less than 8 %.
    found = steps([0, 79, 80, 1000], [3, 3, 3, 503])
    assert found.up_to == 80
    assert found.slope.value == 0
    assert steps([0, 79, 160, 1000], [3, 42.5, 83, 503]).up_to == 160
    assert steps([0, 80, 160, 1000], [0, 40, 80, 500], DelayErrors(10.0, 20.0)).up_to == 1000
    # None is precise: the most precise one.
    far = DelayErrors(100.0, 100.0)
    assert steps([0, 100, 200, 400], [0, 50, 100, 200], far).up_to == 400
    assert steps([0, 100, 200, 400], [0, 50, 100, 200], far, error=1000.0).up_to == 400


@pytest.mark.parametrize(
    ("longer", "shown"),
    [([0.0, 500.0], 0.5), ([0.0, 1.0], 0.05), ([0.0, -500.0], 0.5), ([0.0, 3000.0], 1.0)],
)
def test_errors_of_a_delays_length_show_as_far_as_the_delay_does(longer: list[float], shown: float) -> None:
    slope = steps([0, 1000], longer, DelayErrors(3.0, 4.0), error=2.0).slope
    of_delay = np.hypot(np.sqrt(2) * 2.0, shown * 5.0) / 1000
    # Between processes, slopes differ by 0.03.
    assert slope.high - slope.value == pytest.approx(QUANTILE * np.hypot(of_delay, 0.03))
    assert slope.value - slope.low == pytest.approx(slope.error)


def test_an_interval_is_as_wide_as_its_larger_half() -> None:
    assert Interval(5.0, 4.0, 7.0).error == 2
    assert Interval(5.0, 2.0, 7.0).error == 3
    assert Interval.about(5.0, 1.0) == Interval(5.0, 5 - 1.96, 5 + 1.96)


def test_slack_counts_from_the_kernel_without_any_delay() -> None:
    slope = Interval(0.0, -0.1, 0.1)
    assert Response(slope, 60).with_slack_of(7) == Response(slope, 60)
    found = Response(slope, 60, Interval(100.0, 90.0, 120.0), 1.0).with_slack_of(7)
    assert found == Response(slope, 60, Interval(107.0, 97.0, 127.0), 1.0)


def test_the_bend_of_exact_points_is_where_two_lines_meet() -> None:
    found = steps([0, 100, 200, 400, 800, 1600], [0, 0, 0, 100, 500, 1300])
    assert found.slack is not None
    assert found.slack.value == pytest.approx(300, rel=0.02)
    assert found.slack.low < 300 < found.slack.high
    assert found.beyond == pytest.approx(1, abs=0.02)
    assert found.slope.value == 0
    # The offset of all delays may shift it, by as much either way.
    assert found.slack.error >= EXACT.offset
    assert found.slack.high - found.slack.low < 100


def test_a_kernel_that_gets_less_steep_has_no_slack() -> None:
    assert steps([0, 100, 200, 400, 800, 1600], [0, 100, 200, 300, 500, 900]).slack is None


def test_two_delays_show_no_bend_and_three_may() -> None:
    assert steps([0, 1000], [0, 500]).slack is None
    assert steps([0, 1000, 2000], [0, 0, 1000]).slack is not None
    assert steps([0, 1000, 2000], [0, 0, 1000], error=1000.0).slack is None


def test_times_count_by_their_errors() -> None:
    delays, longer = [0.0, 100, 200, 400, 800, 1600], [0.0, 0, 60, 100, 500, 1300]
    errors = np.array([1.0, 1, 200, 1, 1, 1])
    found = response(np.array(delays), np.array(longer), errors, EXACT)
    assert found is not None and found.slack is not None
    assert found.slack.value == pytest.approx(300, rel=0.03)
    assert found.beyond == pytest.approx(1, abs=0.03)


def test_only_what_is_added_to_the_time_without_a_delay_counts() -> None:
    usual, later = (steps([0, 100, 200, 400, 800], [at, at, at, at + 100, at + 500]) for at in (0.0, 5_000.0))
    assert usual.slack is not None and later.slack is not None
    assert later.slack.value == pytest.approx(usual.slack.value)
    assert later.slack.error == pytest.approx(usual.slack.error)


class Fit(NamedTuple):
    squares: float
    slope: float
    slope_error: float


def fitted(delays: Column, longer: Column, errors: Column, offset: float, slack: float = np.inf) -> Fit:
    """A line that may bend at ``slack``, by the covariance of its points: all but the first share the ``offset``."""
    shares = (delays > 0).astype(float)
    inverse = np.linalg.inv(np.diag(errors**2) + offset**2 * np.outer(shares, shares))
    columns = [np.ones_like(delays), delays]
    if slack < np.inf:
        columns.append(np.maximum(delays - slack, 0))
    design = np.column_stack(columns)
    covariance = np.linalg.inv(design.T @ inverse @ design)
    found = covariance @ design.T @ inverse @ longer
    left = longer - design @ found
    return Fit(float(left @ inverse @ left), float(found[1]), float(np.sqrt(covariance[1, 1])))


def fitted_as_shown(delays: Column, longer: Column, errors: Column, offset: float, slack: float = np.inf) -> Fit:
    """The offset shows as far as delays do: from 5 % of it to all."""
    first = fitted(delays, longer, errors, offset, slack)
    shown = min(max(abs(first.slope) + 2 * first.slope_error, 0.05), 1.0)
    return fitted(delays, longer, errors, shown * offset, slack)


def point_errors(longer: Column, error: float, own: Sequence[float]) -> Column:
    """Return the error of each point: ``error``, that of its delay, and 3 % of the time added."""
    errors: Column = np.sqrt(error**2 + np.array(own) ** 2 + (0.03 * (longer - longer[0])) ** 2)
    return errors


@pytest.mark.parametrize(
    ("longer", "errors", "own"),
    [
        ([0, 0, 1000], DelayErrors(1e-3, 0.0), [0, 0, 0]),
        ([0, 2000, 5000], DelayErrors(1e-3, 0.0), [0, 0, 0]),
        ([700, 700, 1700, 2700], DelayErrors(1e-3, 0.0), [0, 0, 0, 0]),
        # A delay's own error shows with the slope of the flatter side, at most as a whole.
        ([0, 0, 1000], DelayErrors(1e-3, 200.0), [0, 0, 200]),
        ([0, 0, 500], DelayErrors(1e-3, 100.0), [0, 0, 50]),
        ([0, 0, 2000], DelayErrors(1e-3, 300.0), [0, 0, 300]),
        ([0, 200, 1200], DelayErrors(1e-3, 100.0), [0, 20, 100]),
        # What all delays share shows as far as the line is steep.
        ([0, 0, 1000, 2000], DelayErrors(200.0, 0.0), [0, 0, 0, 0]),
        ([0, 0, 400, 800], DelayErrors(200.0, 0.0), [0, 0, 0, 0]),
        ([0, 0, 300, 600, 900], DelayErrors(150.0, 0.0), [0, 0, 0, 0, 0]),
        ([0, 900, 3000, 5100], DelayErrors(100.0, 0.0), [0, 0, 0, 0]),
    ],
)
def test_a_line_bends_if_that_improves_its_squares_by_twelve(
    longer: list[float], errors: DelayErrors, own: list[float]
) -> None:
    delays, taken = 1000.0 * np.arange(len(longer)), np.array(longer, dtype=float)
    low, high = 1.0, 1000.0
    while high - low > 1e-4:
        error = (low + high) / 2
        straight = fitted_as_shown(delays, taken, point_errors(taken, error, own), errors.offset)
        low, high = (error, high) if straight.squares > 12 else (low, error)

    # With a bend at the first delay, the line goes through all points.
    assert steps(delays.tolist(), longer, errors, low * 0.995).slack is not None
    assert steps(delays.tolist(), longer, errors, low * 1.005).slack is None


SCATTER = np.array([0, 1, -1, 1, 1, -1, 1, -1, -1, 1, -1, 1])


@pytest.mark.parametrize(
    ("delay", "error", "scatter"),
    [(100.0, 4.0, 0.0), (100.0, 4.0, 3.0), (100.0, 4.0, 10.0), (1000.0, 200.0, 0.0), (1000.0, 200.0, 600.0)],
)
@pytest.mark.parametrize("offset", [0.001, 0.3])
def test_the_interval_of_a_bend_has_all_that_are_nearly_as_good(
    delay: float, error: float, scatter: float, offset: float
) -> None:
    delays = delay * np.arange(12)
    longer = np.maximum(delays - 4.37 * delay, 0) + scatter * SCATTER
    errors = point_errors(longer, error, [0.0] * 12)
    found = steps(delays.tolist(), longer.tolist(), DelayErrors(offset * delay, 0.0), error)
    assert found.slack is not None

    places = delay * np.arange(1, 11, 0.01)
    squares = np.array([fitted_as_shown(delays, longer, errors, offset * delay, place).squares for place in places])
    # Four unknowns, of which the offset is known to be about 0. Points that scatter more than their errors widen it.
    scale = max(squares.min() / (len(delays) - 3), 1.0)
    assert (scale > 1.5) == (scatter > 2 * error)
    near = places[squares - squares.min() <= QUANTILE**2 * scale]
    step = (delays[-1] - delays[1]) / 50
    assert near[0] - 0.01 * delay <= found.slack.low + offset * delay <= near[0] + step
    assert near[-1] - step <= found.slack.high - offset * delay <= near[-1] + 0.01 * delay
    assert near[0] <= found.slack.value <= near[-1]


def test_points_that_scatter_more_than_their_errors_bend_no_line() -> None:
    delays = 100.0 * np.arange(12)
    for scatter in (20.0, 40.0):
        longer = 0.5 * delays + scatter * SCATTER
        assert steps(delays.tolist(), longer.tolist()).slack is None


def test_a_slope_beyond_the_bend_that_the_slope_before_may_have_too_is_no_slack() -> None:
    delays, longer, errors = [0.0, 1000, 2000, 3000, 4000], [0.0, 0, 100, 200, 300], DelayErrors(150.0, 0.0)
    found = steps(delays, longer, errors, 14.0)
    # The line does bend: it is the interval of the slope up to 2000 that has the slope of 0.1 in it.
    errors_of_points = point_errors(np.array(longer), 14.0, [0.0] * 5)
    assert fitted_as_shown(np.array(delays), np.array(longer), errors_of_points, 150.0).squares > 12
    assert (found.up_to, found.slack, found.beyond) == (2000, None, None)
    assert found.slope.low < 0.05 < 0.1 < found.slope.high


def test_a_bend_is_found_between_those_that_were_tried() -> None:
    # The tried ones are 30 apart.
    for bend in (103, 291, 333, 777, 1222):
        delays = np.array([0.0, 100, 200, 300, 400, 800, 1200, 1400, 1600])
        longer = np.maximum(delays - bend, 0)
        found = steps(delays.tolist(), longer.tolist())
        assert found.slack is not None
        assert found.slack.value == pytest.approx(bend, abs=2)


def test_slack_is_never_negative() -> None:
    delays = [0.0, 20, 200, 400, 800, 1600]
    found = steps(delays, [max(delay - 210, 0) for delay in delays], DelayErrors(80.0, 0.0))
    assert found.slack is not None
    assert found.slack.low == 0 < 210 < found.slack.high


def test_the_error_of_the_time_without_a_delay_counts() -> None:
    found = response(np.array([0.0, 1000]), np.array([0.0, 500]), np.array([30.0, 40.0]), DelayErrors(1e-9, 0.0))
    assert found is not None
    assert found.slope.error == pytest.approx(QUANTILE * np.hypot(0.05, 0.03))
