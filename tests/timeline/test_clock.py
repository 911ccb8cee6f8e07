"""The clock fit against launches whose truth is known: how far the timeline may be from it.

Each CTA has two readings, and each is off by up to half a step of the timer, which is 32 ns. The ends of a function are
held within one step, whatever the clock does. Between them only the curve is left, and its bound is looser: it follows
the steps' error of readings close together, and does not know what the clock does within a CTA that is alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from buffers import CLOCK_PERIOD, SM_CLOCK_HZ, Cta, buffer_words, end, start
from known_clocks import (
    BEGIN_NS,
    FUNC,
    ITER,
    STEP_NS,
    Counter,
    Work,
    decoder_of,
    fitted_clock,
    run,
    slowing,
    steady,
    unequal,
    waves,
)

from kprof_inject.capture.buffer_layouts import LAYOUTS
from kprof_inject.timeline import rate
from kprof_inject.timeline.clock import ClockSource

# CTAs, SMs, CTAs at once on an SM, the time of one in nanoseconds, and how far any record may be from the truth.
LAUNCHES = {
    "one CTA": (1, 1, 1, 100e3, 32),
    "one short CTA": (1, 1, 1, 3e3, 32),
    "seven SMs": (7, 7, 1, 50e3, 32),
    "one CTA on each SM": (132, 132, 1, 100e3, 32),
    "two CTAs on some SMs": (200, 132, 1, 50e3, 256),
    "short CTAs": (200, 132, 1, 3e3, 64),
    "one SM": (200, 1, 1, 5e3, 64),
    "long waves": (40, 20, 1, 1e6, 1024),
    "many at once": (200, 4, 8, 20e3, 256),
}


@pytest.mark.parametrize("hz", [1.0e9, 1.5e9, 1.98e9])
@pytest.mark.parametrize("name", LAUNCHES)
def test_a_steady_clock(name: str, hz: float) -> None:
    ctas, sms, at_once, work_ns, bound_ns = LAUNCHES[name]
    for seed in range(2):
        fitted = run(waves(ctas, sms, work_ns, at_once=at_once, seed=seed), steady(hz), seed=seed)
        assert fitted.worst_ns(fitted.at_function) <= 32
        assert fitted.worst_ns() <= bound_ns
        assert fitted.clock.residual_ns <= 16
        assert fitted.is_monotonic
        rate_error = abs(fitted.clock.clock_hz / hz - 1)
        assert rate_error <= 0.01
        assert rate_error <= 4 * fitted.clock.rate_error


@pytest.mark.parametrize("offset_cycles", [0, 1 << 42, CLOCK_PERIOD - 100_000])
def test_a_counter_from_zero_to_where_it_wraps(offset_cycles: int) -> None:
    fitted = run(waves(20, 4, 20e3), steady(1.98e9), offset_cycles=offset_cycles)
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert fitted.is_monotonic


@pytest.mark.parametrize("name", ["one CTA on each SM", "two CTAs on some SMs", "short CTAs", "many at once"])
def test_sms_with_rates_of_their_own(name: str) -> None:
    ctas, sms, at_once, work_ns, _ = LAUNCHES[name]
    fitted = run(waves(ctas, sms, work_ns, at_once=at_once), unequal(1.5e9))
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert fitted.worst_ns() <= 256
    assert fitted.is_monotonic
    assert 1.5e9 <= fitted.clock.clock_hz <= 1.545e9


@pytest.mark.parametrize(("sms", "at_once", "work_ns"), [(4, 1, 4e3), (20, 1, 18e3), (40, 1, 36e3), (4, 4, 16e3)])
def test_a_clock_that_slows_under_many_ctas(sms: int, at_once: int, work_ns: float) -> None:
    fitted = run(waves(200, sms, work_ns, at_once=at_once), slowing)
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert fitted.worst_ns() <= 256
    assert fitted.is_monotonic
    assert 1.6e9 <= fitted.clock.clock_hz <= 1.8e9


@pytest.mark.parametrize("ctas", [1, 132])
def test_a_clock_that_slows_within_ctas_alone_on_their_sm(ctas: int) -> None:
    fitted = run(waves(ctas, ctas, 180e3), slowing)
    assert fitted.worst_ns(fitted.at_function) <= 32
    # A rate that falls by a tenth bends the time by an eightieth in the CTA's middle, and no reading tells of it.
    assert 1000 < fitted.worst_ns() <= 3000
    assert fitted.is_monotonic


@pytest.mark.parametrize("name", ["two CTAs on some SMs", "one SM", "many at once"])
def test_a_reading_far_too_late_moves_nothing_where_there_are_others(name: str) -> None:
    ctas, sms, at_once, work_ns, bound_ns = LAUNCHES[name]
    works = waves(ctas, sms, work_ns, at_once=at_once)
    works[7] = works[7]._replace(final_late_ns=50e3)
    assert sum(work.sm == works[7].sm for work in works) > 1
    fitted = run(works, steady(1.7e9))
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert fitted.worst_ns() <= bound_ns
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert fitted.is_monotonic


def test_a_reading_far_too_late_on_an_sm_of_its_own_moves_no_other_sm() -> None:
    works = waves(132, 132, 100e3)
    works[7] = works[7]._replace(final_late_ns=50e3)
    fitted = run(works, steady(1.7e9))
    assert fitted.worst_ns(fitted.sm != works[7].sm) <= 32
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)
    assert fitted.is_monotonic


@pytest.mark.parametrize("ctas", [16, 132])
@pytest.mark.parametrize("iterations", [40, 200])
def test_lost_records_on_sms_with_one_cta_leave_the_rate(ctas: int, iterations: int) -> None:
    fitted = run(waves(ctas, ctas, 100e3), steady(1.7e9), iterations=iterations, loop=(0.001, 0.999), slots=64)
    # Only the ends of the function survive.
    assert fitted.at_function.sum() == 2 * ctas
    assert fitted.worst_ns(fitted.at_function) <= 32
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.1)
    assert fitted.is_monotonic


@pytest.mark.parametrize("apart_cycles", [0, 1500])
def test_lost_iterations_that_took_longer_than_those_that_are_left(apart_cycles: int) -> None:
    """Warps that take turns go fast while others wait: seen on an H100, where one warp after the other did its last 30
    of 100 iterations in 125 cycles each, at the SM's full rate, after slower ones. What is reckoned of the others then
    contradicts it."""
    hz, slow_cycles = 1.7e9, 350
    warps = []
    for warp in range(8):
        begins = np.cumsum([50, *[slow_cycles + warp * apart_cycles // 70] * 70, *[125] * 30]).tolist()
        turns = [(end if at else start)(ITER, cycles) for cycles in begins for at in (1, 0)][1:-1]
        warps.append([start(FUNC, 0), *turns, end(FUNC, begins[-1] + 50)])
    last_cycles = max(warp[-1].cycles for warp in warps)
    ctas = [
        Cta(warps, sm, BEGIN_NS - 30, BEGIN_NS + round(1e9 * last_cycles / hz) + 28, BEGIN_NS + 100_000)
        for sm in range(66)
    ]
    clock = fitted_clock(decoder_of(LAYOUTS["timed"].read(buffer_words(ctas, slots=64), 8, range(8))), 1.98e9)
    if apart_cycles:
        assert (clock.source, clock.clock_hz) == (ClockSource.ASSUMED, pytest.approx(1.98e9))
    else:
        assert clock.source == ClockSource.FITTED


def test_lost_records_do_not_matter_where_an_sm_ran_several_ctas() -> None:
    fitted = run(waves(200, 20, 20e3), steady(1.7e9), iterations=100, slots=64)
    assert fitted.worst_ns() <= 64
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=0.001)


@pytest.mark.parametrize(("nominal_hz", "expected_hz"), [(1.2e9, 1.2e9), (0, 1.5e9)])
@pytest.mark.parametrize("cta", [None, Cta([[], []], sm=3)], ids=["never ran", "recorded nothing"])
def test_without_readings_the_clock_is_the_nominal_one(cta: Cta | None, nominal_hz: float, expected_hz: float) -> None:
    raw = LAYOUTS["timed"].read(buffer_words([cta], slots=4), 2, range(2))
    clock = fitted_clock(decoder_of(raw), nominal_hz)
    assert clock.clock_hz == pytest.approx(expected_hz)
    assert (clock.readings, clock.residual_ns) == (0, 0.0)
    assert (clock.source, clock.rate_error) == ("assumed", 0.25)
    assert clock.to_ns(np.array([], dtype=np.int64), np.array([], dtype=np.int64)).size == 0


@pytest.mark.parametrize("counter", [steady(1.7e9), unequal(1.7e9), slowing])
@pytest.mark.parametrize(("around_ns", "worst_ns"), [((230.0, 228.0), 32), ((30.0, 428.0), 232)])
def test_a_busy_memory_that_delays_the_readings_bends_no_curve(
    counter: Counter, around_ns: tuple[float, float], worst_ns: float
) -> None:
    """If only one side is delayed, all times are off by half of that, and durations are right."""
    fitted = run(waves(500, 20, 5e3), counter, around_ns=around_ns)
    at_function = fitted.error_ns[fitted.at_function]
    assert np.abs(at_function).max() <= worst_ns
    assert np.ptp(at_function) <= 2 * 32


def test_of_many_readings_both_sides_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """An even stride would leave only the begins of an SM, or only its ends."""
    monkeypatch.setattr(rate, "PART", 1 << 13)
    fitted = run(waves(8_000, 132, 5e3), steady(1.7e9), around_ns=(230.0, 228.0), iterations=1)
    assert np.abs(fitted.error_ns[fitted.at_function]).max() <= 32


def test_a_launch_too_short_for_its_readings_has_an_assumed_rate_and_begins_where_it_did() -> None:
    # 105 cycles in CTAs whose timer readings leave less than nothing for them.
    entries = [start(FUNC, 1_980_000), end(FUNC, 1_980_105)]
    ctas = [
        Cta([entries] * 4, sm=sm, init_ns=BEGIN_NS, pre_final_ns=BEGIN_NS + 52, post_final_ns=BEGIN_NS + 150)
        for sm in range(16)
    ]
    raw = LAYOUTS["timed"].read(buffer_words(ctas, 8), 4, (0, 1, 2, 3))
    fit = fitted_clock(decoder_of(raw), SM_CLOCK_HZ)
    assert fit.source == "assumed"
    assert fit.clock_hz == pytest.approx(SM_CLOCK_HZ)
    cycles, sm = np.array([1_980_000, 1_980_105]), np.array([3, 3])
    begin, finish = fit.to_ns(cycles, sm) - BEGIN_NS
    assert -STEP_NS <= begin <= finish <= 52 + STEP_NS


@pytest.mark.parametrize("around_ns", [(20.0, 20.0), (45.0, 35.0)])
def test_records_that_are_elsewhere_than_on_an_h200_are_within_the_error(around_ns: tuple[float, float]) -> None:
    for ctas, sms in ((1, 1), (132, 132), (300, 40)):
        fitted = run(waves(ctas, sms, 3e3), steady(1.7e9), around_ns=around_ns, step_ns=1)
        assert abs(fitted.clock.clock_hz / 1.7e9 - 1) <= 3 * fitted.clock.rate_error
        assert fitted.worst_ns() <= 32


def test_without_a_scope_around_the_function_the_launch_tells_how_far_its_records_are_from_the_readings() -> None:
    # CTAs of many lengths: only one distance fits all of them.
    works = [work for seed in range(3) for work in waves(200, 40, 5e3 * (1 + 3 * seed), seed=seed)]
    works = [
        work._replace(begin_ns=work.begin_ns + 1e6 * (at // 200), end_ns=work.end_ns + 1e6 * (at // 200))
        for at, work in enumerate(works)
    ]
    fitted = run(works, steady(1.7e9), around_ns=(230, 228), spans_function=False, iterations=2)
    assert fitted.worst_ns() <= 100
    assert fitted.clock.clock_hz == pytest.approx(1.7e9, rel=1e-3)


@pytest.mark.parametrize("around_ns", [(20e3, 5e3), (3e3, 0.5e3)])
def test_records_deep_within_ctas_that_are_all_alike_do_not_tell_the_rate(around_ns: tuple[float, float]) -> None:
    # Nobody knows what part of a CTA they span: taken for all of it, the first clock would run at 1.3 GHz.
    alike = [Work(sm, 0.0, 100e3) for sm in range(132)]
    fitted = run(alike, steady(1.755e9), around_ns=around_ns, spans_function=False)
    assert fitted.clock.source == "assumed"
    assert fitted.clock.clock_hz == pytest.approx(SM_CLOCK_HZ)
    # Durations are what that rate makes of the cycles, and the records stand in the middle of their CTAs.
    shown_ns = np.diff(fitted.clock.to_ns(fitted.cycles, fitted.sm))
    expected_ns = np.diff(fitted.cycles) / (SM_CLOCK_HZ / 1e9)
    same = np.diff(fitted.sm) == 0
    assert np.abs(shown_ns - expected_ns)[same].max() <= 2
    assert fitted.error_ns.mean() == pytest.approx((around_ns[1] - around_ns[0]) / 2, abs=1500)


_THREE_WAVES = [Work(sm, at * 10e3, at * 10e3 + 9e3) for sm in range(132) for at in range(3)]


@pytest.mark.parametrize("works", [waves(132, 132, 100e3), _THREE_WAVES], ids=["uneven CTAs", "several waves"])
def test_records_deep_within_other_ctas_do(works: list[Work]) -> None:
    fitted = run(works, steady(1.755e9), around_ns=(3e3, 0.5e3), spans_function=False)
    assert fitted.clock.source == "fitted"
    assert fitted.clock.clock_hz == pytest.approx(1.755e9, rel=5e-3)
    assert fitted.clock.clock_hz == pytest.approx(1.755e9, rel=fitted.clock.rate_error)
