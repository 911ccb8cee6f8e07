"""The clock of a recorded launch whose records do not span the kernel's body: it is right, or not claimed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from decoded_records import lookup
from programs.child import REPO
from replacing import replace

from kprof_inject.capture.buffer_layouts import RawCtas
from kprof_inject.capture.reader import read_capture
from kprof_inject.timeline.clock import ClockFit, fit_clocks
from kprof_inject.timeline.pairs import ScopeRules
from kprof_inject.timeline.readings import readings_of, tally_launch
from kprof_inject.timeline.records import read_raw, record_decoder

DEMO = REPO / "tests/captures/matmul"


def without(ctas: RawCtas, ids: Sequence[int]) -> RawCtas:
    """The rings as they would be had these scopes not been recorded; none of them lost a record."""
    entries, written = ctas.entries.copy(), ctas.written_words.copy()
    for place in np.ndindex(written.shape):
        mine = entries[place][: written[place] // 2]
        left = mine[~np.isin(mine[:, 0] >> 23 & 0xFF, ids)]
        entries[place][: len(left)] = left
        written[place] = 2 * len(left)
    return replace(ctas, entries=entries, written_words=written)


def clock_without(*scopes: str) -> ClockFit:
    (launch,) = read_capture(DEMO).launches
    kernel = launch.kernel
    index = {scope.record: number for number, scope in enumerate(kernel.scopes.scopes)}
    ids = {scope_id: index[record] for scope_id, record in kernel.scope_ids.items()}
    ctas = without(read_raw(launch), [scope_id for scope_id, record in kernel.scope_ids.items() if record in scopes])
    decoder = record_decoder(ctas, lookup(ids), clock_hz=kernel.sm_clock_hz)
    tally = tally_launch(decoder, len(index), ScopeRules.of(kernel.scopes))
    return fit_clocks([(readings_of(ctas, tally.warps, spans_function="func" not in scopes), kernel.sm_clock_hz)])[0]


@pytest.mark.parametrize("scopes", [("func",), ("func", "loop[0]"), ("func", "iter[0]")])
def test_a_clock_that_nobody_can_know_is_assumed(scopes: tuple[str, ...]) -> None:
    """The CTAs take as long before the loop as their SM is slow in it: by the loop alone the SM seems to be faster."""
    known, clock = clock_without(), clock_without(*scopes)
    assert (known.source, clock.source) == ("fitted", "assumed")
    assert known.clock_hz == pytest.approx(1.588e9, rel=1e-3)
    assert clock.clock_hz == pytest.approx(known.clock_hz, rel=clock.rate_error)
