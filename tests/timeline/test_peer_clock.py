"""The relation of two GPUs' timers, from comparisons before a run and after it."""

from __future__ import annotations

import numpy as np
import pytest

from kprof_inject.capture.peer_clocks import PeerReading
from kprof_inject.timeline.peer_clock import fit_peer_clock

BEGIN_NS, S = 1_764_000_000_000_000_000, 1_000_000_000
REFERENCE, DEVICE = "a", "b"
OFFSET_NS, DRIFT = 50_000, 1e-6


def reading(second: float, device: str = DEVICE, error_ns: int = 500, wrong_ns: int = 0) -> PeerReading:
    since_ns = round(second * S)
    device_ns = BEGIN_NS + since_ns + OFFSET_NS + round(since_ns * DRIFT) + wrong_ns
    return PeerReading(
        reference=REFERENCE, device=device, reference_ns=BEGIN_NS + since_ns, device_ns=device_ns, error_ns=error_ns
    )


def test_the_gpu_that_others_compare_with_is_its_own_reference() -> None:
    clock = fit_peer_clock(REFERENCE, [reading(0), reading(10)])
    assert clock is not None
    assert (clock.reference, clock.relation, clock.error_ns(0, S)) == (REFERENCE, None, 0)


def test_a_gpu_without_a_comparison_has_no_relation() -> None:
    assert fit_peer_clock("c", [reading(0)]) is None
    assert fit_peer_clock(DEVICE, []) is None


@pytest.mark.parametrize(("second", "max_ns"), [(0.0, 540), (10.0, 540), (9.0, 750), (5.0, 1_120)])
def test_between_two_readings_a_time_is_known_but_for_a_change_of_the_drift(second: float, max_ns: int) -> None:
    clock = fit_peer_clock(DEVICE, [reading(0), reading(10)])
    assert clock is not None and clock.relation is not None
    at_ns = reading(second).device_ns
    (reference_ns,) = clock.relation.to_host_ns(np.array([at_ns]))
    assert abs(reference_ns - reading(second).reference_ns) <= 20
    assert 500 <= clock.error_ns(at_ns, at_ns) <= max_ns
    assert clock.error_ns(at_ns, at_ns) <= clock.error_ns(at_ns, at_ns + S)


def test_after_a_run_alone_the_error_grows_with_the_time_before() -> None:
    """Two timers may drift apart by 200 ppm."""
    clock = fit_peer_clock(DEVICE, [reading(10)])
    assert clock is not None
    at_ns = reading(9).device_ns
    assert clock.error_ns(at_ns, at_ns) == pytest.approx(200_000, rel=0.02)
