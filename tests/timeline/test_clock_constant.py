"""AMD: a timer of 10 ns, counters of the CU's clock or of 100 MHz, and numbers that two CUs share (gfx950)."""

from __future__ import annotations

import numpy as np
import pytest
from known_clocks import run, steady, waves

STEP_NS = 10
NOMINAL_HZ = 2.1e9
LAUNCHES = {
    "one CTA": (1, 1, 1, 50e3),
    "one short CTA": (1, 1, 1, 2e3),
    "a wave": (304, 304, 1, 5e3),
    "several waves": (300, 30, 1, 8e3),
    "many at once": (200, 4, 8, 20e3),
}


@pytest.mark.parametrize("hz", [100e6, 99.95e6, 2.1e9, 1.3e9])
@pytest.mark.parametrize("name", LAUNCHES)
def test_counters_of_any_kind_are_told_from_the_readings(name: str, hz: float) -> None:
    ctas, sms, at_once, work_ns = LAUNCHES[name]
    fitted = run(
        waves(ctas, sms, work_ns, at_once=at_once),
        steady(hz),
        iterations=3,
        step_ns=STEP_NS,
        nominal_hz=NOMINAL_HZ,
    )
    assert (fitted.clock.source, fitted.clock.timer_step_ns) == ("fitted", STEP_NS)
    assert fitted.clock.clock_hz == pytest.approx(hz, rel=0.02)
    assert abs(fitted.clock.clock_hz / hz - 1) <= 3 * fitted.clock.rate_error
    # Half a step of the timer, and half a cycle of the counter.
    assert fitted.worst_ns() <= 10 + 0.5e9 / hz
    assert fitted.is_monotonic


@pytest.mark.parametrize("hz", [25e6, 400e6])
def test_counters_of_which_nothing_is_known(hz: float) -> None:
    fitted = run(waves(4, 4, 2e3), steady(hz), iterations=1, step_ns=STEP_NS, nominal_hz=NOMINAL_HZ)
    assert fitted.clock.source == "fitted"
    assert abs(fitted.clock.clock_hz / hz - 1) <= 3 * fitted.clock.rate_error
    assert fitted.clock.clock_hz == pytest.approx(hz, rel=0.03)


def test_counters_that_all_cus_share() -> None:
    fitted = run(waves(60, 30, 5e3), steady(100e6), offset_cycles=123_456_789, step_ns=STEP_NS, nominal_hz=NOMINAL_HZ)
    assert fitted.worst_ns() <= 15
    # They stand at the same cycles at the same time.
    lines_ns = fitted.clock.base_ns - fitted.clock.base_cycles * 10
    assert np.ptp(lines_ns) <= 20


def test_a_counter_of_100_mhz_does_not_wander() -> None:
    fitted = run(waves(30, 30, 3e6), steady(100e6), step_ns=STEP_NS, nominal_hz=NOMINAL_HZ)
    assert fitted.worst_ns() <= 15


@pytest.mark.parametrize(("ctas", "cus", "at_once"), [(2, 2, 1), (8, 8, 1), (400, 40, 1), (400, 40, 4)])
def test_two_cus_of_one_number_have_a_clock_each(ctas: int, cus: int, at_once: int) -> None:
    fitted = run(
        waves(ctas, cus, 8e3, at_once=at_once),
        steady(1.8e9),
        step_ns=STEP_NS,
        nominal_hz=NOMINAL_HZ,
        number=lambda cu: cu // 2,
    )
    assert fitted.clock.sms.tolist() == [cu // 2 for cu in range(cus)]
    assert fitted.worst_ns() <= 10
    assert fitted.clock.readings_left_out == 0


def test_a_counter_that_stands_still_while_nothing_runs() -> None:
    def pausing(sm: int, ns: float) -> float:
        return 1.7 * (ns if ns < 40e3 else max(40e3, ns - 100e3))

    works = [
        work._replace(begin_ns=work.begin_ns + 130e3, end_ns=work.end_ns + 130e3) if work.begin_ns > 28e3 else work
        for work in waves(60, 4, 4e3)
    ]
    fitted = run(works, pausing)
    assert fitted.worst_ns() <= 32
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.002)
