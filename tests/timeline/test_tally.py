"""What a launch's records add up to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from buffers import Cta, Entry, end, start, with_moved_stores
from decoded_records import lookup, read
from replacing import replace

from kprof_inject.timeline.columns import NO_LARGEST, NO_SMALLEST
from kprof_inject.timeline.readings import Tally, tally_launch
from kprof_inject.timeline.records import record_decoder

SCOPES = {scope: scope for scope in range(3)}
FUNC, LOOP, ITER = SCOPES


def tally(ctas: Sequence[Cta | None], slots: int = 64, *, stores_moved: bool = False) -> Tally:
    return tally_launch(record_decoder(read(ctas, slots), lookup(SCOPES), stores_moved=stores_moved), len(SCOPES))


def iterating(iterations: int, gap: int = 10) -> list[Entry]:
    """A function that does nothing but iterate; its records are so many cycles apart."""
    scopes = [FUNC, *[ITER] * (2 * iterations), FUNC]
    opened: set[int] = set()
    entries = []
    for number, scope in enumerate(scopes):
        entries.append(Entry(scope, scope in opened, 100 + gap * number))
        opened ^= {scope}
    return entries


def test_records_and_scopes_are_counted() -> None:
    found = tally([Cta([iterating(3), []]), None, Cta([[], iterating(1)], sm=4)])
    warps = found.warps
    assert found.scopes == 6
    assert warps.kept.tolist() == [[8, 0], [0, 4]]
    assert warps.first_cycles.tolist() == [[100, NO_SMALLEST], [NO_SMALLEST, 100]]
    assert warps.last_cycles.tolist() == [[170, NO_LARGEST], [NO_LARGEST, 130]]
    assert warps.oldest_cycles.tolist() == warps.first_cycles.tolist()
    for nothing in (warps.lost, warps.lost_cycles, warps.damaged, warps.open_starts, warps.stray_ends):
        assert nothing.tolist() == [[0, 0], [0, 0]]


def test_lost_records_took_as_long_as_the_others_in_the_mean() -> None:
    warps = tally([Cta([iterating(40), iterating(2)])], slots=16).warps
    assert warps.lost.tolist() == [[66, 0]]
    assert warps.lost_cycles.tolist() == [[660.0, 0.0]]
    assert warps.oldest_cycles.tolist() == warps.first_cycles.tolist() == [[760, 100]]


def test_what_follows_a_loop_does_not_count_for_the_mean() -> None:
    entries = iterating(100)
    entries[-1] = end(FUNC, 100_000)
    assert tally([Cta([entries], pre_final_ns=100_000)], slots=64).warps.lost_cycles.tolist() == [[138 * 10.0]]


def test_no_lost_record_took_longer_than_a_cta_can() -> None:
    raw = read([Cta([[start(ITER, 0), end(ITER, 1 << 37)]])], slots=2)
    raw.written_words[:] = 1 << 31
    untimed = replace(raw, timed=False)
    warps = tally_launch(record_decoder(untimed, lookup(SCOPES)), len(SCOPES)).warps
    assert warps.lost_cycles.tolist() == [[float(1 << 42)]]


def test_where_stores_were_moved_nothing_was_lost_before_a_scope_that_is_older() -> None:
    entries = with_moved_stores(iterating(10))
    warps = tally([Cta([entries])], slots=8, stores_moved=True).warps
    assert warps.lost.tolist() == [[14]]
    assert (warps.first_cycles.tolist(), warps.oldest_cycles.tolist()) == ([[100]], [[100 + 10 * 16]])
    assert warps.lost_cycles.tolist() == [[0.0]]


def test_where_stores_were_moved_iterations_alone_were_lost_as_others() -> None:
    entries = with_moved_stores(iterating(10)[1:-1])
    warps = tally([Cta([entries])], slots=8, stores_moved=True).warps
    assert (warps.first_cycles.tolist(), warps.oldest_cycles.tolist()) == ([[230]], [[240]])
    assert warps.lost_cycles.tolist() == [[120.0]]


@pytest.mark.parametrize("repeats", [1, 30_000])
def test_scopes_that_cross_anywhere_in_a_launch_have_lanes_of_their_own(repeats: int) -> None:
    """In the first CTA and the last, which are not in one block if there are many."""
    first = [start(LOOP, 100), start(ITER, 110), end(LOOP, 120), end(ITER, 130)]
    first += [start(FUNC, 140), start(ITER, 150), end(FUNC, 160), end(ITER, 170)]
    last = [start(FUNC, 100), start(LOOP, 110), end(FUNC, 120), end(LOOP, 130)]
    plain = [start(FUNC, 100), end(FUNC, 200)]
    found = tally([Cta([first]), *[Cta([plain])] * repeats, Cta([last])], slots=8)
    assert found.lanes.tolist() == [0, 1, 2]
