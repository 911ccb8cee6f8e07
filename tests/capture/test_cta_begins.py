"""When CTAs began that left only their end: as an SM starts them."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import estimated_begins, rows_of
from kprof_inject.capture.cta_samples import CtaSample

START_NS = 1_795_000_000_000_000_000
Launch = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def launch(ctas: int, sms: int, slots: int, seed: int, gap_ns: int = 700, spread: float = 0.5) -> Launch:
    """Number, SM, begin and end of each CTA, as a device starts them: in order, each where there is room first."""
    random = np.random.default_rng(seed)
    lasts_ns = (4_000 * np.exp(spread * random.standard_normal(ctas))).astype(np.int64)
    free = [(START_NS + slot * sms + sm, sm) for sm in range(sms) for slot in range(slots)]
    heapq.heapify(free)
    sm, begin_ns = np.empty(ctas, np.int64), np.empty(ctas, np.int64)
    for cta in range(ctas):
        at_ns, sm[cta] = heapq.heappop(free)
        begin_ns[cta] = at_ns
        heapq.heappush(free, (at_ns + int(lasts_ns[cta]) + gap_ns, int(sm[cta])))
    return np.arange(ctas), sm, begin_ns, begin_ns + lasts_ns


@pytest.mark.parametrize(("sms", "slots"), [(132, 16), (132, 1), (16, 32), (4, 5)])
def test_begins_are_estimated_from_ends(sms: int, slots: int) -> None:
    cta, sm, begin_ns, end_ns = launch(8000, sms, slots, seed=1)
    known = rows_of(CtaSample(8000, 1, 4), cta) >= 0
    assert 0.05 < known.mean() < 0.07
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    errors_ns = np.abs(found_ns - begin_ns[~known])
    assert np.median(errors_ns) <= 32
    assert np.percentile(errors_ns, 99) < 2_500


@given(st.integers(2, 300), st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_a_cta_never_ends_before_it_begins(ctas: int, sms: int, slots: int, seed: int) -> None:
    cta, sm, begin_ns, end_ns = launch(ctas, sms, slots, seed)
    known = np.random.default_rng(seed).random(ctas) < 0.2
    known[seed % ctas] = True
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    assert found_ns.shape == (int((~known).sum()),) and (found_ns <= end_ns[~known]).all()


@given(st.integers(2, 300), st.integers(1, 8), st.integers(1, 8), st.integers(0, 1000))
def test_no_cta_begins_before_the_first_that_records_unless_it_ended_before(
    ctas: int, sms: int, slots: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    cta, sm, begin_ns, end_ns = launch(ctas, sms, slots, seed)
    known = random.random(ctas) < 0.2
    known[seed % ctas] = True
    end_ns = np.where(known, end_ns, end_ns - random.integers(0, 20_000, ctas))
    recorded = np.stack((cta, sm, begin_ns, end_ns))[:, known]
    found_ns = estimated_begins(recorded, np.stack((cta, sm, end_ns))[:, ~known])
    assert (found_ns >= np.minimum(end_ns[~known], begin_ns[known].min())).all()
