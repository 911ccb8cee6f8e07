"""A host's call, brought to its device's clock."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Cta, Scope, save_launch
from hypothesis import given
from hypothesis import strategies as st
from ranks import BEGIN_NS, Timer
from replacing import replace

from kprof_inject.capture.capture_files import ClockRecord
from kprof_inject.capture.model import Launch
from kprof_inject.timeline.axis import HostClock, fit_host_clock, host_call

HOUR_NS = 3_600_000_000_000


def relation_of(timer: Timer) -> HostClock:
    """What two readings tell of a timer, an hour apart."""
    readings = [ClockRecord(0, at_ns, timer.at(at_ns), 500) for at_ns in (BEGIN_NS, BEGIN_NS + HOUR_NS)]
    relation = fit_host_clock(readings)
    assert relation is not None
    return relation


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    return save_launch(tmp_path_factory.mktemp("capture"), [Scope("kernel")], [Cta([[]])], slots=2)


@given(
    st.integers(-10 * HOUR_NS, 10 * HOUR_NS),
    st.integers(0, HOUR_NS),
    st.sampled_from([0.0, 3e-5, -9e-5]),
    st.sampled_from([0, 77_000_000_000, BEGIN_NS + 12_345]),
)
def test_a_call_on_its_device_is_where_it_was_on_its_host(
    launch: Launch, at_ns: int, lasting_ns: int, drift: float, begin_ns: int
) -> None:
    relation = relation_of(Timer(begin_ns, drift))
    start_ns = BEGIN_NS + at_ns
    call = host_call(replace(launch, host_ns=start_ns, host_end_ns=start_ns + lasting_ns), relation)
    assert call.end_ns is not None
    back_ns = relation.to_host_ns(np.array([call.start_ns, call.end_ns])) - [start_ns, start_ns + lasting_ns]
    assert np.abs(back_ns).max() <= 1
    assert call.error_ns == relation.error_ns(call.start_ns, call.end_ns)
