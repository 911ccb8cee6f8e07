"""Timers of other steps than the H200's 32 ns: found in the readings, and what they leave of the clock is said."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Cta, buffer_words, end, start
from known_clocks import BEGIN_NS, FUNC, Work, decoder_of, fitted_clock, run, slowing, steady, waves
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import LAYOUTS
from kprof_inject.timeline.clock import ClockSource

pytestmark = pytest.mark.slow

STEPS_NS = [1, 10, 32, 1000, 1024]


def shifted(works: list[Work], by_ns: float) -> list[Work]:
    """The same launch at another place between the timer's steps."""
    return [work._replace(begin_ns=work.begin_ns + by_ns, end_ns=work.end_ns + by_ns) for work in works]


@pytest.mark.parametrize("step_ns", [32, 1024])
def test_few_readings_tell_a_known_step(step_ns: int) -> None:
    assert run(waves(1, 1, 20e3), steady(1.7e9), step_ns=step_ns).clock.timer_step_ns == step_ns
    assert run(waves(2, 2, 5e3), steady(1.7e9), step_ns=step_ns).clock.timer_step_ns == step_ns


def test_a_timer_that_stands_still_over_many_of_its_units() -> None:
    # Units of 32 ns; it moves by 31 or 32 of them.
    def harm(times: NDArray[np.uint64]) -> None:
        times[:] = (times - BEGIN_NS + 500) // 1000 * 1000 // 32 * 32 + BEGIN_NS // 32 * 32

    fitted = run(waves(400, 40, 8e3), steady(1.7e9), step_ns=1, harm=harm)
    assert fitted.clock.timer_step_ns == pytest.approx(1000, abs=16)
    assert fitted.worst_ns() <= 600


def test_round_numbers_are_no_coarse_timer() -> None:
    ctas = [
        Cta(
            [[start(FUNC, 20_000 * turn + 60), end(FUNC, 20_000 * turn + 17_940)]],
            0,
            *(BEGIN_NS + 10_000 * turn + ns for ns in (0, 9_000, 9_500)),
        )
        for turn in range(40)
    ]
    clock = fitted_clock(decoder_of(LAYOUTS["timed"].read(buffer_words(ctas, 8), 1, range(1))), 2.1e9)
    assert clock.timer_step_ns <= 32
    assert clock.clock_hz == pytest.approx(2e9, rel=1e-4)


@pytest.mark.parametrize("step_ns", STEPS_NS)
@pytest.mark.parametrize(("ctas", "sms", "at_once"), [(200, 40, 1), (200, 10, 8), (40, 1, 1), (132, 132, 1)])
def test_a_steady_clock_is_known_to_a_part_of_the_step(step_ns: int, ctas: int, sms: int, at_once: int) -> None:
    fitted = run(waves(ctas, sms, 20e3, at_once=at_once), steady(1.7e9), step_ns=step_ns)
    assert fitted.clock.timer_step_ns == step_ns
    assert fitted.worst_ns() <= 3 + 0.55 * step_ns
    assert fitted.is_monotonic
    # A microsecond's steps average out where CTAs follow each other.
    if ctas > sms:
        assert fitted.error_ns.std() <= 3 + 0.25 * step_ns


def test_under_a_coarse_timer_durations_are_as_exact_as_the_rate() -> None:
    fitted = run(waves(400, 40, 5e3), steady(1.7e9), step_ns=1024)
    true_ns = fitted.true_ns[fitted.at_function].reshape(-1, 2)
    fitted_ns = true_ns + fitted.error_ns[fitted.at_function].reshape(-1, 2)
    durations = np.diff(fitted_ns, axis=1) / np.diff(true_ns, axis=1)
    assert np.abs(durations - 1).max() <= 0.03


def test_under_a_coarse_timer_a_clock_that_slows_is_followed() -> None:
    fitted = run(waves(800, 40, 8e3), slowing, step_ns=1024)
    assert fitted.worst_ns() <= 700
    assert fitted.error_ns.std() <= 150
    assert fitted.is_monotonic


LAUNCHES = {
    "one CTA": (1, 1, 1, 3e3),
    "one long CTA": (1, 1, 1, 100e3),
    "two CTAs": (2, 2, 1, 3e3),
    "two on an SM": (2, 1, 1, 3e3),
    "all at once on one SM": (16, 1, 16, 3e3),
    "in turn on one SM": (40, 1, 1, 3e3),
    "one wave": (132, 132, 1, 3e3),
    "shorter than a step": (132, 132, 1, 300),
    "several waves": (200, 40, 1, 3e3),
}


@pytest.mark.parametrize("step_ns", [32, 1024])
@pytest.mark.parametrize("name", LAUNCHES)
def test_the_rate_is_as_sure_as_it_is_said_to_be(name: str, step_ns: int) -> None:
    ctas, sms, at_once, work_ns = LAUNCHES[name]
    for seed in range(8):
        works = shifted(waves(ctas, sms, work_ns, at_once=at_once, seed=seed), 137.0 * seed)
        fitted = run(works, steady(1.6e9), seed=seed, iterations=2, step_ns=step_ns)
        assert abs(fitted.clock.clock_hz / 1.6e9 - 1) <= 3 * fitted.clock.rate_error
        assert fitted.worst_ns() <= 0.75 * step_ns
        # A uniform error has a standard deviation of 0.29 steps.
        assert fitted.clock.residual_ns <= 0.35 * step_ns


@pytest.mark.parametrize("step_ns", [32, 1024])
def test_a_launch_within_a_step_has_the_nominal_rate_and_stands_there(step_ns: int) -> None:
    fitted = run(
        [Work(sm, 0, 200) for sm in range(4)],
        steady(1.7e9),
        iterations=1,
        harm=lambda times: times.fill(BEGIN_NS // step_ns * step_ns),
    )
    assert (fitted.clock.source, fitted.clock.rate_error) == ("assumed", 0.25)
    assert fitted.clock.timer_step_ns == 1024
    assert fitted.worst_ns() <= step_ns + 200
    assert fitted.is_monotonic


@pytest.mark.parametrize(("clock_hz", "is_fitted"), [(1.981e9, True), (2.107e9, False), (2.3e9, False)])
def test_no_clock_is_above_the_devices_maximum(clock_hz: float, is_fitted: bool) -> None:
    """A launch whose timer and counter say 2,107 MHz on a device of 1,980 MHz at most."""
    fit = run(waves(200, 40, 20e3), steady(clock_hz), nominal_hz=1.98e9).clock
    assert fit.clock_hz == pytest.approx(1.98e9, rel=1e-9)
    assert (fit.source is ClockSource.FITTED) is is_fitted
