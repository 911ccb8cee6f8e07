"""Starts and ends of events: by hand, and against a slow matcher that follows the rules one event at a time."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from buffers import Cta, Entry, end, end_event, start, start_event
from decoded_records import lookup, read
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.event_pairs import match_events
from kprof_inject.timeline.pairs import ScopeRules, scopes_of
from kprof_inject.timeline.readings import tally_launch
from kprof_inject.timeline.records import RecordDecoder, record_decoder

SCOPE, EVENT, OTHER = range(3)
EVENTS = (EVENT, OTHER)

Pair = tuple[int, int, int, int]
"""Warp and clock of the start, and of the end."""


def decoder_of(ctas: Sequence[Cta], slots: int, *, stores_moved: bool = False) -> RecordDecoder:
    ids = lookup({scope: scope for scope in range(3)})
    return record_decoder(read(ctas, slots), ids, events=EVENTS, stores_moved=stores_moved)


class Matched(NamedTuple):
    pairs: list[Pair]
    open_starts: int
    stray_ends: int


def matched(warps: Sequence[Sequence[Entry]], slots: int = 16, event: int = EVENT) -> Matched:
    decoder = decoder_of([Cta(warps)], slots)
    records = decoder.decode(slice(0, 1))
    found = match_events(records, EVENTS, len(warps))
    ends = ((records.group[at].tolist(), records.cycles[at].tolist()) for at in (found.start_at, found.end_at))
    (start_warps, starts), (end_warps, ended) = ends
    rows = list(zip(found.scope.tolist(), start_warps, starts, end_warps, ended, strict=True))
    alone = (int(np.count_nonzero(records.scope[at] == event)) for at in (found.open_starts, found.stray_ends))
    return Matched([row[1:] for row in rows if row[0] == event], *alone)


def starts(*cycles: int) -> list[Entry]:
    return [start_event(EVENT, at) for at in cycles]


def ends(*cycles: int) -> list[Entry]:
    return [end_event(EVENT, at) for at in cycles]


def by_time(*entries: Entry) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.cycles)


def test_several_in_flight_end_in_the_order_in_which_they_started() -> None:
    pipelined = by_time(*starts(10, 20, 40, 60), *ends(30, 50, 70, 80))
    assert matched([pipelined]).pairs == [(0, 10, 0, 30), (0, 20, 0, 50), (0, 40, 0, 70), (0, 60, 0, 80)]


def test_an_event_starts_in_one_warp_and_ends_in_another() -> None:
    assert matched([starts(10, 20, 40), ends(15, 45, 50)]) == Matched(
        [(0, 10, 1, 15), (0, 20, 1, 45), (0, 40, 1, 50)], 0, 0
    )


def test_each_warp_ends_what_it_started() -> None:
    assert matched([by_time(*starts(10), *ends(40)), by_time(*starts(11), *ends(20))]).pairs == [
        (0, 10, 0, 40),
        (1, 11, 1, 20),
    ]


def test_all_warps_of_a_partition_end_what_one_started() -> None:
    found = matched([starts(10, 12), ends(20, 60), ends(40, 50)])
    assert found == Matched([(0, 10, 1, 20), (0, 10, 2, 40), (0, 12, 1, 60), (0, 12, 2, 50)], 0, 0)


def test_one_warp_ends_what_all_of_a_partition_started() -> None:
    found = matched([starts(10, 30), starts(12, 14), ends(20, 60)])
    assert found == Matched([(0, 10, 2, 20), (0, 30, 2, 60), (1, 12, 2, 20), (1, 14, 2, 60)], 0, 0)


def test_warps_that_take_turns_share_a_queue() -> None:
    assert sorted(matched([starts(10, 20, 30, 40), ends(15, 35), ends(25, 45)]).pairs) == [
        (0, 10, 1, 15),
        (0, 20, 2, 25),
        (0, 30, 1, 35),
        (0, 40, 2, 45),
    ]


def test_two_warps_hand_over_to_each_other() -> None:
    assert sorted(matched([by_time(*starts(10), *ends(40)), by_time(*ends(20), *starts(30))]).pairs) == [
        (0, 10, 1, 20),
        (1, 30, 0, 40),
    ]


def test_a_loop_that_ends_what_the_iteration_before_has_started() -> None:
    found = matched([by_time(*ends(at, at + 20, at + 40), *starts(at + 1, at + 21, at + 41)) for at in (10, 12)])
    assert found == Matched([(0, 11, 0, 30), (0, 31, 0, 50), (1, 13, 1, 32), (1, 33, 1, 52)], 2, 2)


def test_what_is_without_partner_is_counted() -> None:
    assert matched([starts(10, 20), ends(5, 15)]) == Matched([(0, 10, 1, 15)], 1, 1)
    assert matched([by_time(*starts(10, 20), *ends(30))]) == Matched([(0, 10, 0, 30)], 1, 0)


@pytest.mark.parametrize(
    "warps",
    [
        pytest.param([starts(10, 20, 30), ends(15, 25), ends(16, 26)], id="different numbers in several warps"),
        pytest.param([starts(10, 20, 30), ends(15, 25), ends(16)], id="an end too early"),
        pytest.param([starts(10), by_time(*starts(12), *ends(20)), ends(30)], id="a warp that does both"),
        pytest.param([starts(10, 20), ends(15, 16), ends(30, 31)], id="an end before its turn"),
    ],
)
def test_what_may_belong_together_otherwise_is_unknown(warps: list[list[Entry]]) -> None:
    sides = Counter(entry.is_end for warp in warps for entry in warp)
    assert matched(warps) == Matched([], sides[False], sides[True])


@pytest.mark.parametrize("slots", [2, 3])
def test_nothing_is_matched_where_a_ring_of_the_cta_lost_records(slots: int) -> None:
    """The three ends would otherwise go to the wrong starts, with no sign of it."""
    found = matched([starts(10, 20, 30, 40), ends(15, 25, 35, 45)], slots)
    assert found == Matched([], slots, slots)
    unrelated = [start(SCOPE, 1), end(SCOPE, 2), start(SCOPE, 3), end(SCOPE, 4)]
    assert matched([starts(10, 20)[:1], ends(15), unrelated], slots) == Matched([], 1, 1)


def test_other_ctas_are_matched_all_the_same() -> None:
    lossy, whole = [starts(10, 20, 30), ends(15, 25, 35)], [starts(10, 20), ends(15, 25)]
    decoder = decoder_of([Cta(lossy, sm=0), Cta(whole, sm=1)], 2)
    records = decoder.decode(slice(0, 2))
    found = match_events(records, EVENTS, 2)
    assert records.group[found.start_at].tolist() == [2, 2]
    assert (len(found.open_starts), len(found.stray_ends)) == (2, 2)


def test_a_damaged_record_leaves_the_events_of_its_cta_unmatched() -> None:
    for wrong in (start(EVENT, 12), start_event(SCOPE, 12), start(99, 12)):
        found = matched([by_time(*starts(10, 20), wrong), ends(15, 25)])
        assert found == Matched([], 2, 2), wrong


def test_events_with_different_ids_have_nothing_to_do_with_each_other() -> None:
    warps = [by_time(*starts(10), start_event(OTHER, 12)), by_time(end_event(OTHER, 14), *ends(20))]
    assert matched(warps).pairs == [(0, 10, 1, 20)]
    assert matched(warps, event=OTHER).pairs == [(0, 12, 1, 14)]


def test_scopes_are_what_they_are_without_the_events_among_them() -> None:
    scopes = [start(SCOPE, 5), end(SCOPE, 25), start(SCOPE, 45), end(SCOPE, 65)]
    events = [*starts(10, 20, 50), *ends(30, 60, 70)]
    decoder = decoder_of([Cta([by_time(*scopes, *events)])], 16)
    records, pairs = scopes_of(decoder.decode(slice(0, 1)), ScopeRules(events=EVENTS))
    assert records.cycles[pairs.start_at].tolist() == [5, 45]
    assert records.cycles[pairs.end_at].tolist() == [25, 65]
    assert pairs.open_starts.size == pairs.stray_ends.size == 0
    tally = tally_launch(decoder, 3, ScopeRules(events=EVENTS))
    assert (tally.scopes, tally.lanes.tolist()) == (2, [0, 0, 0])
    assert tally.open_starts.sum() == tally.stray_ends.sum() == 0


def test_unmatched_events_are_counted_by_scope_and_by_warp() -> None:
    decoder = decoder_of([Cta([starts(10, 20, 30), ends(5, 15)])], 16)
    tally = tally_launch(decoder, 3, ScopeRules(events=EVENTS))
    assert (tally.open_starts.tolist(), tally.stray_ends.tolist()) == ([0, 2, 0], [0, 1, 0])
    assert (tally.warps.open_starts.tolist(), tally.warps.stray_ends.tolist()) == ([[2, 0]], [[0, 1]])


def test_stores_of_events_are_not_moved() -> None:
    """As Triton 3.9 writes them: the start of the scope is right before its end, and events are where they were."""
    written = [start_event(EVENT, 22), end_event(EVENT, 28), start(SCOPE, 26), end(SCOPE, 32)]
    decoder = decoder_of([Cta([written])], 16, stores_moved=True)
    records, pairs = scopes_of(decoder.decode(slice(0, 1)), ScopeRules(events=EVENTS))
    assert records.damaged.size == 0
    assert records.cycles.tolist() == [22, 26, 28, 32]
    assert (records.cycles[pairs.start_at].tolist(), records.cycles[pairs.end_at].tolist()) == ([26], [32])
    found = match_events(records, EVENTS, 1)
    assert (records.cycles[found.start_at].tolist(), records.cycles[found.end_at].tolist()) == ([22], [28])


@pytest.mark.parametrize(
    ("warps", "pairs"),
    [
        pytest.param(
            [by_time(*starts(110, 140), *ends(120, 155))], [(0, 110, 0, 120), (0, 140, 0, 155)], id="one warp"
        ),
        pytest.param([starts(110, 120), ends(115, 165)], [(0, 110, 1, 115), (0, 120, 1, 165)], id="another warp"),
        pytest.param(
            [by_time(*starts(110), *ends(120)), by_time(*starts(111), *ends(165))],
            [(0, 110, 0, 120), (1, 111, 1, 165)],
            id="each its own",
        ),
        pytest.param([starts(110), ends(105, 165)], [(0, 110, 1, 165)], id="an end too early"),
        pytest.param([starts(110, 130), ends(115)], [(0, 110, 1, 115)], id="a start without end"),
        pytest.param([starts(100), starts(105), ends(120, 122)], [(0, 100, 2, 120), (1, 105, 2, 122)], id="a queue"),
        pytest.param([starts(100, 120), ends(110), ends(130)], [(0, 100, 1, 110), (0, 120, 2, 130)], id="in turns"),
        pytest.param(
            [by_time(*starts(100), *ends(140)), by_time(*ends(120), *starts(130))],
            [(0, 100, 1, 120), (1, 130, 0, 140)],
            id="to each other",
        ),
        pytest.param([starts(100), ends(100)], [(0, 100, 1, 100)], id="no time"),
    ],
)
def test_with_one_in_flight_pairs_are_those_of_protons_parser(warps: list[list[Entry]], pairs: list[Pair]) -> None:
    """Expected is what ``readCircularLayoutTrace`` of Triton 3.9.0's ``libproton.so`` made of the same buffers."""
    assert sorted(matched(warps).pairs) == pairs


def slowly(warps: Sequence[Sequence[Entry]]) -> list[Pair]:
    """The pairs of one event of a CTA that lost nothing."""
    lines = [[(entry.cycles, entry.is_end, warp) for entry in entries] for warp, entries in enumerate(warps)]
    queued = [_queue(line) for line in lines]
    is_late = [line[0][1] and len(line) > 1 and not _queue(line[1:])[1] for line in lines if line]
    if not any(stray for _, stray, _ in queued) or all(is_late):
        return sorted(pair for pairs, _, _ in queued for pair in pairs)
    started = [[entry.cycles for entry in entries if not entry.is_end] for entries in warps]
    ended = [[entry.cycles for entry in entries if entry.is_end] for entries in warps]
    starters = [warp for warp, cycles in enumerate(started) if cycles]
    enders = [warp for warp, cycles in enumerate(ended) if cycles]
    lengths = {len(started[warp]) for warp in starters} | {len(ended[warp]) for warp in enders}
    if 1 in (len(starters), len(enders)) and len(starters) != len(enders) and len(lengths) == 1:
        turns = [
            (one, at, other, until)
            for one in starters
            for other in enders
            for at, until in zip(started[one], ended[other], strict=True)
        ]
        return sorted(turns) if all(at <= until for _, at, _, until in turns) else []
    pairs, stray, peak = _queue(sorted(record for line in lines for record in line))
    if len(starters) == len(enders) == 1:
        return sorted(pairs)
    is_whole = not stray and sum(map(len, started)) == sum(map(len, ended))
    is_mixed = bool({*starters} & {*enders})
    return sorted(pairs) if is_whole and not (is_mixed and peak > 1) else []


def _queue(records: Sequence[tuple[int, bool, int]]) -> tuple[list[Pair], bool, int]:
    """The pairs, whether an end came too early, and the most in flight if each end counts."""
    flying: deque[tuple[int, int]] = deque()
    pairs, stray, level, peak = [], False, 0, 0
    for cycles, is_end, warp in records:
        level += -1 if is_end else 1
        peak = max(peak, level)
        if not is_end:
            flying.append((warp, cycles))
        elif flying:
            pairs.append((*flying.popleft(), warp, cycles))
        else:
            stray = True
    return pairs, stray, peak


@st.composite
def cta_of_events(draw: st.DrawFn) -> list[list[Entry]]:
    warps = draw(st.integers(1, 3))
    roles = draw(st.lists(st.sampled_from([(False,), (True,), (False, True)]), min_size=warps, max_size=warps))
    entries: list[list[Entry]] = [[] for _ in range(warps)]
    for at, warp in enumerate(draw(st.lists(st.integers(0, warps - 1), max_size=12)), 1):
        is_end = draw(st.sampled_from(roles[warp]))
        entries[warp].append((end_event if is_end else start_event)(EVENT, 10 * at))
    return entries


@given(cta_of_events())
def test_pairs_are_those_of_the_slow_matcher(warps: list[list[Entry]]) -> None:
    found = matched(warps)
    assert sorted(found.pairs) == slowly(warps)
    of_start, of_end = {pair[:2] for pair in found.pairs}, {pair[2:] for pair in found.pairs}
    sides = Counter(entry.is_end for warp in warps for entry in warp)
    assert (found.open_starts, found.stray_ends) == (sides[False] - len(of_start), sides[True] - len(of_end))


@given(st.lists(cta_of_events(), min_size=2, max_size=4))
def test_ctas_are_matched_each_by_itself(ctas: list[list[list[Entry]]]) -> None:
    width = max(map(len, ctas))
    padded = [[*warps, *([[]] * (width - len(warps)))] for warps in ctas]
    decoder = decoder_of([Cta(warps, sm=number) for number, warps in enumerate(padded)], 16)
    records = decoder.decode(slice(0, len(ctas)))
    found = match_events(records, EVENTS, width)
    pairs = zip(found.start_at.tolist(), found.end_at.tolist(), strict=True)
    expected = sum(len(slowly(warps)) for warps in padded)
    assert all(records.group[one] // width == records.group[other] // width for one, other in pairs)
    assert len(found.start_at) == expected


def test_a_launch_without_events_needs_no_rules() -> None:
    decoder = decoder_of([Cta([[start(SCOPE, 1), end(SCOPE, 2)]])], 4)
    assert match_events(decoder.decode(slice(0, 1)), (), 1).start_at.size == 0
