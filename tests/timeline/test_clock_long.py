"""Long launches, whose clock drifts: as far as readings tell, it is followed; where they do not, that is said."""

from __future__ import annotations

import numpy as np
import pytest
from known_clocks import Counter, falling, run, waves

from kprof_inject.timeline.rate import RateSample, fit_rates
from kprof_inject.timeline.readings import Readings

pytestmark = pytest.mark.slow

THROTTLED = falling(1.98e9, 1.48e9, 2e6)


def swinging(sm: int, ns: float) -> float:
    """Between 1.9 and 1.5 GHz, once in 300 µs."""
    swing = 300e3 / (2 * np.pi)
    return float(1.7 * ns + 0.2 * swing * np.sin(ns / swing))


def at_once(sm: int, ns: float) -> float:
    """1.98 GHz for a millisecond, and then at once 1.48."""
    return 1.98 * min(ns, 1e6) + 1.48 * max(ns - 1e6, 0)


@pytest.mark.parametrize("counter", [THROTTLED, swinging, at_once], ids=["falling", "swinging", "at once"])
@pytest.mark.parametrize("step_ns", [32, 1024])
def test_many_waves_follow_the_clock(counter: Counter, step_ns: int) -> None:
    fitted = run(waves(3000, 30, 20e3), counter, iterations=3, step_ns=step_ns)
    within_cta_ns = 0.36 / 8 * 24e3  # a rate that changes at once, in the middle of the longest CTA
    assert fitted.worst_ns(fitted.at_function) <= 2 * step_ns + (within_cta_ns if counter is at_once else 0)
    assert fitted.error_ns.std() <= 3 * step_ns
    assert fitted.is_monotonic
    assert fitted.clock.readings_left_out == 0


def test_a_rate_that_falls_in_the_first_microseconds_is_followed_there_too() -> None:
    fitted = run(waves(2000, 20, 10e3), falling(1.98e9, 1.48e9, 1e4), iterations=3)
    assert fitted.worst_ns(fitted.at_function) <= 64
    assert fitted.is_monotonic


@pytest.mark.parametrize("ctas", [1, 132])
def test_one_cta_on_each_sm_for_the_whole_launch_is_exact_at_its_ends(ctas: int) -> None:
    fitted = run(waves(ctas, ctas, 4e6), falling(1.98e9, 1.48e9, 4e6), iterations=50)
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert 30e3 < fitted.worst_ns() <= 200e3
    assert fitted.is_monotonic


@pytest.mark.parametrize("seconds", [0.001, 1, 11.515, 60, 2000])
def test_two_readings_without_a_record_at_either_tell_a_rate_however_long_the_cta_is(seconds: float) -> None:
    """Nothing but the priors keeps the rate and the time to the first record apart; of the sums they are no part."""
    cycles, ns = round(2e9 * seconds), round(1e9 * seconds)
    readings = Readings(
        sm=np.zeros(2, dtype=np.int32),
        cycles=np.array([2_557_827_867, 2_557_827_867 + cycles]),
        ns=np.array([1_764_000_000_000_000_113, 1_764_000_000_000_000_113 + ns]),
        side=np.array([1, -1], dtype=np.int8),
        error_ns=np.full(2, 60.1, dtype=np.float32),
        estimated_error_cycles=np.zeros(2, dtype=np.float32),
        cta_ns=np.full(2, ns, dtype=np.float32),
        more_shift_ns=0.29 * ns,
        max_shift_ns=0.5 * ns,
        step_ns=1,
        min_hz=2e9,
    )
    (rate,) = fit_rates([RateSample(readings, np.zeros(2, dtype=np.int32), 0.5, 1.98e9)])
    assert 0.45 < rate.ns < 0.55
    assert abs(rate.more_shift_ns) <= readings.max_shift_ns
    assert np.isfinite(rate.error)
