"""Launches of unusual shape: SM numbers far apart, thousands of SMs, very many CTAs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from known_clocks import BEGIN_NS, Work, run, steady, waves
from numpy.typing import NDArray

from kprof_inject.timeline.clock import ClockFit, fit_clocks
from kprof_inject.timeline.readings import Readings

pytestmark = pytest.mark.slow

HZ = 1.7e9


def test_sm_numbers_with_gaps() -> None:
    numbers = [0, 5, 17, 131, 1000, 65_535]
    fitted = run(waves(60, 6, 8e3), steady(HZ), number=lambda sm: numbers[sm])
    assert fitted.worst_ns() <= 32
    assert fitted.clock.sms.tolist() == numbers


def test_an_sm_without_readings_has_the_time_of_the_next() -> None:
    clock = run(waves(6, 3, 8e3), steady(HZ), number=lambda sm: 10 * sm).clock
    cycles = np.array([123_456_789_000])
    for missing, stands_in in ((3, 10), (10, 10), (15, 20), (99, 20)):
        assert clock.to_ns(cycles, np.array([missing])) == clock.to_ns(cycles, np.array([stands_in]))


def test_thousands_of_sms() -> None:
    fitted = run(waves(6000, 3000, 5e3), steady(HZ), iterations=1)
    assert len(fitted.clock.sms) == 3000
    assert fitted.worst_ns() <= 32
    assert fitted.clock.clock_hz == pytest.approx(HZ, rel=1e-3)


def test_all_ctas_at_one_time() -> None:
    fitted = run([Work(sm, 500, 9_500) for sm in range(64)], steady(HZ))
    assert fitted.worst_ns() <= 32
    # Their readings are all late by the same.
    assert fitted.clock.rate_error >= 0.001
    assert abs(fitted.clock.clock_hz / HZ - 1) <= 3 * fitted.clock.rate_error


def many_readings(ctas: int, sms: int, rate_ns: float = 1e9 / HZ) -> tuple[Readings, NDArray[np.float64]]:
    """Those of CTAs of 20 µs that follow each other on each SM, and when they truly were."""
    random = np.random.default_rng(0)
    turn = np.arange(2 * ctas // sms) // 2
    side = np.where(np.arange(len(turn)) % 2 == 0, 1, -1).astype(np.int8)
    true_ns = (21_000 * turn + np.where(side > 0, 0, 20_000) + random.uniform(0, 900, (sms, len(turn)))).ravel()
    sides = np.tile(side, sms)
    shown_ns = np.floor(true_ns - np.where(sides > 0, 30, -28)).astype(np.int64)
    count = len(true_ns)
    readings = Readings(
        np.repeat(np.arange(sms, dtype=np.int32), len(turn)),
        np.rint(true_ns / rate_ns).astype(np.int64) + 1_000_000,
        (BEGIN_NS + shown_ns + 16) // 32 * 32,
        sides,
        np.full(count, 9.7, dtype=np.float32),
        np.zeros(count, dtype=np.float32),
        np.full(count, 20_000, dtype=np.float32),
        0.1,
        0.0,
        32,
    )
    return readings, true_ns


def worst_ns(clock: ClockFit, readings: Readings, true_ns: NDArray[np.float64]) -> float:
    found_ns = clock.to_ns(readings.cycles, readings.sm.astype(np.int64)) - BEGIN_NS
    return float(np.abs(found_ns - true_ns).max())


@pytest.mark.parametrize("sms", [1, 4, 1000])
def test_very_many_ctas(sms: int) -> None:
    readings, true_ns = many_readings(200_000, sms)
    clock = fit_clocks([(readings, 1.98e9)])[0]
    assert clock.clock_hz == pytest.approx(HZ, rel=1e-5)
    assert abs(clock.clock_hz / HZ - 1) <= 3 * clock.rate_error
    assert worst_ns(clock, readings, true_ns) <= 40


def test_the_work_takes_no_more_memory_than_the_readings() -> None:
    readings, _ = many_readings(500_000, 1)
    tracemalloc.start()
    try:
        clock = fit_clocks([(readings, 1.98e9)])[0]
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert clock.readings == 1_000_000
    # A curve's knot takes 16 bytes. Beside them: which counter, whether it is believed, how much it counts; and a part.
    assert kept <= 17 * clock.readings
    assert most <= 50 * clock.readings
