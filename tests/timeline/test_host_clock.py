"""How a device's timer stands to the host's clock: the estimate, and that the truth is never further off than said."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.timeline.axis import HostClock, fit_host_clock

DEVICE_NS = 1_800_000_000_000_000_000
OFFSET_NS = -123_456_789_012
SECOND_NS = 1_000_000_000
# A timer that moves in steps of 32 ns, and rounding.
SMALL_NS = 33


def reading(after_ns: int, *, drift: float = 0.0, late_ns: int = 0, error_ns: int = 1_000) -> ClockRecord:
    """A reading of a timer whose host clock is ``OFFSET_NS`` ahead and gains ``drift``, ``late_ns`` off that truth."""
    host_ns = DEVICE_NS + after_ns + OFFSET_NS + round(drift * after_ns)
    return ClockRecord(0, host_ns + late_ns, DEVICE_NS + after_ns, error_ns)


def fitted(*readings: ClockRecord) -> HostClock:
    clock = fit_host_clock(readings)
    assert clock is not None
    return clock


def offset_ns(clock: HostClock, after_ns: int) -> int:
    """Host time less device time, at ``after_ns``."""
    at = np.array([DEVICE_NS + after_ns])
    return int((clock.to_host_ns(at) - at)[0])


def error_ns(clock: HostClock, after_ns: int) -> int:
    return clock.error_ns(DEVICE_NS + after_ns, DEVICE_NS + after_ns)


def test_without_readings_there_is_no_relation() -> None:
    assert fit_host_clock([]) is None


def test_one_reading_gives_an_offset_whose_error_grows_with_the_distance() -> None:
    clock = fitted(reading(0))
    assert (clock.drift, clock.contradicted) == (0.0, False)
    assert offset_ns(clock, 0) == offset_ns(clock, -SECOND_NS) == OFFSET_NS
    assert error_ns(clock, 0) == 1_000 + SMALL_NS
    # Two quartz clocks, each within 100 ppm.
    assert error_ns(clock, SECOND_NS) == error_ns(clock, -SECOND_NS) == pytest.approx(1_033 + 200_000, abs=1)


def test_readings_of_one_moment_narrow_the_offset_down() -> None:
    # [-500, 1500], [-1500, 500]: the truth lies within 500 of none.
    clock = fitted(reading(0, late_ns=500), reading(0, late_ns=-500))
    assert offset_ns(clock, 0) == OFFSET_NS
    assert error_ns(clock, 0) == 500 + SMALL_NS


def test_readings_at_begin_and_end_show_a_drift() -> None:
    clock = fitted(reading(0, drift=2e-5), reading(60 * SECOND_NS, drift=2e-5))
    assert clock.drift == pytest.approx(2e-5, rel=1e-3)
    for after_ns in (0, 30 * SECOND_NS, 60 * SECOND_NS):
        assert abs(offset_ns(clock, after_ns) - OFFSET_NS - round(2e-5 * after_ns)) <= 1
        assert error_ns(clock, after_ns) <= 1_000 + SMALL_NS + 1


def test_a_drift_that_nothing_proves_is_none() -> None:
    # Whether clocks that were read a millisecond apart differ by 1 µs, or not at all, nobody knows.
    clock = fitted(reading(0), reading(SECOND_NS // 1000, late_ns=1_000))
    assert clock.drift == 0.0


def test_readings_that_contradict_each_other_widen_the_error() -> None:
    # The host's clock was set by 50 µs in the same second: no quartz does that.
    clock = fitted(reading(0), reading(SECOND_NS // 10, late_ns=50_000))
    assert clock.contradicted
    for after_ns, truth_ns in ((0, 0), (SECOND_NS // 10, 50_000)):
        assert abs(offset_ns(clock, after_ns) - OFFSET_NS - truth_ns) <= error_ns(clock, after_ns)


def test_a_wild_reading_is_survived() -> None:
    wild = structs.replace(reading(0), device_ns=5, error_ns=0)
    clock = fitted(reading(0), wild, reading(SECOND_NS))
    assert clock.contradicted
    assert math.isfinite(error_ns(clock, 0))


@given(
    drift=st.floats(-1.9e-4, 1.9e-4),
    points=st.lists(st.tuples(st.integers(0, 3600), st.floats(-1, 1), st.integers(0, 10**6)), min_size=1, max_size=8),
    after_s=st.integers(-600, 4200),
)
def test_the_truth_is_never_further_off_than_the_error(
    drift: float, points: list[tuple[int, float, int]], after_s: int
) -> None:
    readings = [
        reading(second * SECOND_NS, drift=drift, late_ns=int(part * error), error_ns=error)
        for second, part, error in points
    ]
    clock = fitted(*readings)
    assert not clock.contradicted
    after_ns = after_s * SECOND_NS
    truth_ns = OFFSET_NS + round(drift * after_ns)
    assert abs(offset_ns(clock, after_ns) - truth_ns) <= error_ns(clock, after_ns)
    # And it holds over any span what it holds at each of its times.
    assert error_ns(clock, after_ns) <= clock.error_ns(DEVICE_NS, DEVICE_NS + after_ns)
