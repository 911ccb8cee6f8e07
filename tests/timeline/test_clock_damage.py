"""Timer readings that are damaged: they move nothing, as far as others tell better, and are counted."""

from __future__ import annotations

import numpy as np
import pytest
from known_clocks import Fitted, Harm, Work, run, steady, waves
from numpy.typing import NDArray

pytestmark = pytest.mark.slow

INIT, FINAL = 0, 1
LAUNCHES = {
    "several waves": (400, 40, 1, 8e3),
    "one SM": (200, 1, 1, 5e3),
    "many at once": (400, 20, 10, 20e3),
}


def launch(name: str) -> list[Work]:
    ctas, sms, at_once, work_ns = LAUNCHES[name]
    return waves(ctas, sms, work_ns, at_once=at_once)


def flipped(cta: int, side: int, bit: int) -> Harm:
    """One bit of one time, which was clear, is set."""

    def harm(times: NDArray[np.uint64]) -> None:
        times[cta, side] |= np.uint64(1 << bit)
        times[cta, 2] = max(times[cta, 2], times[cta, FINAL])

    return harm


def scattered(share: float, most_ns: int, sms: set[int], works: list[Work]) -> Harm:
    """So many of the CTAs on ``sms`` get an init that is earlier, as many a pre-final that is later, by anything."""

    def harm(times: NDArray[np.uint64]) -> None:
        random = np.random.default_rng(2)
        mine = np.array([work.sm in sms for work in works])
        for side, sign in ((INIT, -1), (FINAL, 1)):
            at = np.flatnonzero(mine & (random.random(len(times)) < share))
            times[at, side] += (sign * random.integers(0, most_ns, at.size)).astype(np.uint64)
        times[:, 2] = np.maximum(times[:, 2], times[:, FINAL])

    return harm


def assert_others_hold(fitted: Fitted, bad_sm: int) -> None:
    assert fitted.worst_ns(fitted.sm != bad_sm) <= 32
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert fitted.clock.residual_ns <= 16
    assert fitted.is_monotonic


@pytest.mark.parametrize("bit", range(13, 41, 5))
@pytest.mark.parametrize("side", [INIT, FINAL], ids=["init", "final"])
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_flipped_bit(name: str, side: int, bit: int) -> None:
    # An init that is too late for its pre-final drops the CTA.
    fitted = run(launch(name), steady(1.7e9), harm=flipped(7, side, bit), iterations=2)
    assert fitted.worst_ns() <= 32
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert fitted.clock.readings_left_out <= 1
    assert fitted.is_monotonic


def test_a_bit_too_high_is_left_out_and_said() -> None:
    works = waves(132, 132, 50e3)
    fitted = run(works, steady(1.7e9), harm=flipped(7, FINAL, 40))
    # Neither of the SM's two readings has another to agree with; the one that is within the launch is taken.
    assert fitted.worst_ns() <= 32
    assert (fitted.clock.readings, fitted.clock.readings_left_out, fitted.clock.counters_guessed) == (264, 2, 1)


@pytest.mark.parametrize("most_ns", [1_000_000, 1_000_000_000, 1 << 39])
@pytest.mark.parametrize("name", LAUNCHES)
def test_one_in_twenty(name: str, most_ns: int) -> None:
    works = launch(name)
    everywhere = {work.sm for work in works}
    fitted = run(works, steady(1.7e9), harm=scattered(0.05, most_ns, everywhere, works), iterations=2)
    assert np.quantile(np.abs(fitted.error_ns), 0.98) <= 32
    assert fitted.worst_ns() <= 5_000
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert abs(fitted.clock.clock_hz / 1.7e9 - 1) <= 3 * fitted.clock.rate_error
    assert fitted.clock.timer_step_ns == 32
    assert 0.03 * fitted.clock.readings <= fitted.clock.readings_left_out <= 0.07 * fitted.clock.readings
    assert fitted.is_monotonic


@pytest.mark.parametrize("name", ["several waves", "many at once"])
def test_all_readings_of_one_sm(name: str) -> None:
    works = launch(name)
    fitted = run(works, steady(1.7e9), harm=scattered(1.0, 1_000_000_000, {3}, works), iterations=2)
    assert_others_hold(fitted, 3)
    # Nobody knows when it was, but it was within the launch.
    launch_ns = max(work.end_ns for work in works)
    assert fitted.worst_ns(fitted.sm == 3) <= launch_ns
    assert fitted.clock.counters_guessed >= 1


def test_all_readings_of_all_sms_leave_the_nominal_clock() -> None:
    works = waves(20, 4, 5e3)
    harm = scattered(1.0, 1_000_000_000, {work.sm for work in works}, works)
    clock = run(works, steady(1.7e9), harm=harm, iterations=2).clock
    assert (clock.source, clock.rate_error) == ("assumed", 0.25)
    assert clock.readings_left_out == clock.readings


@pytest.mark.parametrize("late_ns", [200, 1_000, 20_000])
def test_finals_that_a_busy_memory_holds_up(late_ns: float) -> None:
    random = np.random.default_rng(5)
    works = [
        work._replace(final_late_ns=float(random.exponential(late_ns)) if random.random() < 0.3 else 0.0)
        for work in waves(600, 40, 8e3)
    ]
    fitted = run(works, steady(1.7e9), iterations=2)
    begins = fitted.at_function & (np.arange(fitted.sm.size) % 6 == 0)
    assert np.quantile(np.abs(fitted.error_ns[begins]), 0.99) <= 32
    # After the last of an SM nothing contradicts it, and a short delay looks like a clock that wanders.
    assert np.quantile(np.abs(fitted.error_ns), 0.9) <= 100
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert fitted.is_monotonic


def test_a_record_before_the_first_reading_of_its_counter_is_of_that_counter() -> None:
    # Two SMs of one number. Readings are of warp 0: another warp may have recorded a little sooner.
    clock = run([Work(0, 0, 3e3), Work(1, 0, 3e3)] * 8, steady(1.7e9), number=lambda _: 0).clock
    assert clock.sms.tolist() == [0, 0]
    base_cycles = clock.base_cycles[1:]
    before_ns, at_ns = clock.to_ns(np.append(base_cycles - 17, base_cycles), np.zeros(2, dtype=np.int64))
    assert at_ns - before_ns == pytest.approx(10, abs=1)
