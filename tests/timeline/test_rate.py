"""The rate of a clock that readings without noise determine, its error, and when it is assumed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from replacing import replace

from kprof_inject.timeline.clock import agreement
from kprof_inject.timeline.rate import (
    ClockRate,
    RateSample,
    fit_rates,
    nominal_rate,
    reading_errors,
    straight_lines,
)
from kprof_inject.timeline.readings import Readings

NOMINAL_HZ = 2e9
BEGIN_NS = 1_764_000_000_000_000_113


def fit_rate(readings: Readings, counter: NDArray[np.int32], rough_ns: float, nominal_hz: float) -> ClockRate:
    """The rate of one launch."""
    return fit_rates([RateSample(readings, counter, rough_ns, nominal_hz)])[0]


def readings_of(
    cycles: Sequence[int],
    ns: Sequence[int],
    side: Sequence[int],
    *,
    error_ns: float = 60.0,
    estimated_error_cycles: float = 0.0,
    more_shift_ns: float = 0.1,
    min_hz: float = 0.0,
) -> Readings:
    """At these times, records read the counter; the timer is read before init and after pre-final."""
    count = len(cycles)
    late_ns = np.where(np.array(side) > 0, 30, -28)
    return Readings(
        sm=np.zeros(count, dtype=np.int32),
        cycles=np.array(cycles),
        ns=BEGIN_NS + np.array(ns) - late_ns,
        side=np.array(side, dtype=np.int8),
        error_ns=np.full(count, error_ns, dtype=np.float32),
        estimated_error_cycles=np.full(count, estimated_error_cycles, dtype=np.float32),
        cta_ns=np.full(count, max(ns) - min(ns), dtype=np.float32),
        more_shift_ns=more_shift_ns,
        max_shift_ns=10 * more_shift_ns,
        step_ns=1,
        min_hz=min_hz,
    )


def of_cta(cycles: int, rate_ns: float, **more: float) -> Readings:
    """The two readings of a CTA."""
    return readings_of([5_000, 5_000 + cycles], [0, round(cycles * rate_ns)], [1, -1], **more)


def fitted(readings: Readings, nominal_hz: float = NOMINAL_HZ, rough_ns: float = 0.5) -> ClockRate:
    return fit_rate(readings, np.zeros(len(readings.cycles), dtype=np.int32), rough_ns, nominal_hz)


@pytest.mark.parametrize("more_shift_ns", [0.1, 50.0])
@pytest.mark.parametrize("estimated_error_cycles", [0.0, 40.0])
def test_the_rate_of_a_cta_and_its_error(more_shift_ns: float, estimated_error_cycles: float) -> None:
    cycles = 1_000_000
    rate = fitted(
        of_cta(cycles, 0.6, more_shift_ns=more_shift_ns, estimated_error_cycles=estimated_error_cycles), rough_ns=0.6
    )
    assert (rate.fitted, rate.constant) == (True, False)
    assert rate.ns == pytest.approx(0.6, rel=1e-6)
    own = reading_errors(of_cta(cycles, 0.6, estimated_error_cycles=estimated_error_cycles), 0.6)[0]
    # All readings share 10 ns, and what is unknown of the time to the first record and after the last.
    ends_ns = np.array([np.sqrt(2) * own, 2 * 10.0, 2 * more_shift_ns])
    assert rate.error == pytest.approx(np.linalg.norm(ends_ns) / cycles / 0.6, rel=1e-3)


def test_launches_are_fitted_together_as_they_are_alone() -> None:
    all_readings = [of_cta(1_000_000, 0.6), of_cta(1_000_000, 0.9), of_cta(50_000, 0.7)]
    counter = np.zeros(2, dtype=np.int32)
    together = fit_rates([RateSample(readings, counter, 0.5, NOMINAL_HZ) for readings in all_readings])
    assert [rate.ns for rate in together] == pytest.approx([fitted(readings).ns for readings in all_readings])


@pytest.mark.parametrize(("rate_ns", "is_constant"), [(9.956, False), (9.958, True), (10.042, True), (10.044, False)])
def test_a_counter_that_is_not_quite_of_100_mhz_may_be_any(rate_ns: float, is_constant: bool) -> None:
    """At 4.3 thousandths from it, being any clock from 0 to 100 ns is as likely."""
    rate = fitted(of_cta(1_000_000, rate_ns), rough_ns=rate_ns)
    assert (rate.fitted, rate.constant) == (True, is_constant)


@pytest.mark.parametrize(
    ("rate_ns", "nominal_hz", "is_fitted"),
    [
        (3.0, NOMINAL_HZ, True),
        (0.6, 0.0, True),
        (99.0, NOMINAL_HZ, True),
        # No SM's clock is faster than the nominal one; readings of busy devices may be off by a hundredth.
        (0.494, NOMINAL_HZ, False),
        (0.4, NOMINAL_HZ, False),
        (0.12, 0.0, False),
    ],
)
def test_a_rate_that_a_device_can_have_is_believed(rate_ns: float, nominal_hz: float, is_fitted: bool) -> None:
    rate = fitted(of_cta(10_000_000, rate_ns), nominal_hz, rate_ns)
    assert rate.fitted == is_fitted
    assert rate.ns == pytest.approx(rate_ns if is_fitted else nominal_rate(nominal_hz), rel=1e-4)


@pytest.mark.parametrize("rate_ns", [0.4998, 0.499, 0.4955])
def test_a_rate_above_the_maximum_within_its_error_is_the_maximum(rate_ns: float) -> None:
    rate = fitted(of_cta(10_000_000, rate_ns))
    assert (rate.ns, rate.fitted) == (0.5, True)
    assert rate.error == pytest.approx(0.5 / rate_ns - 1, rel=1e-3)


def test_time_outside_of_the_records_makes_a_rate_uncertain() -> None:
    cycles = 1_000_000
    # Of the CTA's time at this rate, records span 96 %: the rest may be on either side.
    sure, unsure = (fitted(of_cta(cycles, 0.6, min_hz=min_hz)) for min_hz in (0.0, 1.6e9))
    outside_ns = (1 - 1.6 * 0.6) * cycles * 0.6
    assert unsure.error * 0.6 == pytest.approx(np.hypot(sure.error * 0.6, outside_ns / cycles), rel=0.05)
    # A tenth of the rate is too much.
    assert not fitted(of_cta(cycles, 0.6, min_hz=1.2e9)).fitted


def least_squares(readings: Readings, counter: NDArray[np.int32]) -> tuple[float, float]:
    """The rate and the shift of all readings that fit best."""
    true_ns = (readings.ns - BEGIN_NS) + np.where(readings.side > 0, 30, -28)
    lines = np.equal.outer(counter, np.unique(counter)).astype(float)
    columns = np.column_stack([readings.cycles, -readings.side.astype(float), lines])
    weight = 1 / reading_errors(readings, 0.5)
    prior = np.zeros(columns.shape[1])
    prior[1] = 1 / readings.more_shift_ns
    matrix, wanted = np.vstack([columns * weight[:, None], prior]), np.append(true_ns * weight, 0.0)
    found, *_ = np.linalg.lstsq(matrix, wanted, rcond=None)
    return float(found[0]), float(found[1])


def noisy(shift_ns: float, **more: float) -> Readings:
    """CTAs of several lengths on two counters, whose records are ``shift_ns`` further inside than known."""
    random = np.random.default_rng(3)
    begins = np.repeat(np.arange(40) * 60_000, 2)
    cycles = begins + np.where(np.arange(80) % 2, random.integers(2_000, 50_000, 80), 0)
    side = np.where(np.arange(80) % 2, -1, 1)
    error_ns = random.choice([5.0, 50.0], 80)
    ns = 0.55 * cycles - shift_ns * side + error_ns * np.clip(random.normal(size=80), -1.5, 1.5)
    readings = readings_of(cycles.tolist(), np.rint(ns).astype(int).tolist(), side.tolist(), **more)
    return replace(readings, error_ns=error_ns.astype(np.float32))


COUNTER = (np.arange(80) // 40).astype(np.int32)


@pytest.mark.parametrize(("shift_ns", "likely_ns"), [(100.0, 200.0), (-100.0, 200.0), (2.0, 0.5)])
def test_the_fit_is_that_of_weighted_least_squares(shift_ns: float, likely_ns: float) -> None:
    readings = noisy(shift_ns, more_shift_ns=likely_ns)
    rate = fit_rate(readings, COUNTER, 0.5, NOMINAL_HZ)
    assert rate.fitted
    rate_ns, expected_ns = least_squares(readings, COUNTER)
    assert rate.ns == pytest.approx(rate_ns, rel=1e-5)
    assert rate.more_shift_ns == pytest.approx(expected_ns, abs=0.3)
    assert abs(rate.more_shift_ns - shift_ns) < 20


HALF = ClockRate(0.5, 1e-6, 0.0, fitted=True, constant=False)


def bases_of(*counters: Sequence[tuple[int, float, bool]], errors: Sequence[float] = ()) -> list[int]:
    """The times of lines of half a nanosecond a cycle, through readings (cycles, ns above cycles / 2, plausible).

    Times are since ``BEGIN_NS``. Each counter is at 0 cycles first.
    """
    cycles, above_ns, plausible = zip(*(row for rows in counters for row in rows), strict=True)
    times = [round(count / 2 + above) for count, above in zip(cycles, above_ns, strict=True)]
    readings = readings_of(cycles, times, [1] * len(cycles))
    if errors:
        readings = replace(readings, error_ns=np.array(errors, dtype=np.float32))
    counter = np.repeat(np.arange(len(counters), dtype=np.int32), [len(rows) for rows in counters])
    lines = straight_lines(readings, counter, np.array(plausible), HALF)
    assert lines.base_cycles.tolist() == [rows[0][0] for rows in counters]
    return [int(base - BEGIN_NS) for base in lines.base_ns]


def test_a_line_is_the_mean_of_its_plausible_readings_by_their_errors() -> None:
    first = [(0, 700.0, True), (2000, 1000.0, True), (4000, 640.0, True), (6000, 9e6, False)]
    second = [(0, 5000.0, False), (1000, 5100.0, True), (9000, 5160.0, True)]
    errors = [60.0, 120.0, 60.0, 1.0, 1.0, 100.0, 200.0]
    # With a quarter of the weight, 1000 counts as 0.25 readings.
    assert bases_of(first, second, errors=errors) == [round((700 + 250 + 640) / 2.25), round((5100 + 5160 / 4) / 1.25)]


def test_a_reading_with_which_half_of_its_neighbours_agree_is_plausible() -> None:
    readings = readings_of([0, 1_000, 2_000], [0, 500, 60_000_000_000], [1, 1, 1])
    assert agreement(readings, 0.5)[1].tolist() == [True, True, False]
