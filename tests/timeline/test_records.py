"""Rings to records: which survive, in which order, and with which clock values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import pytest
from buffers import CLOCK_PERIOD, Cta, Entry, end, start, with_moved_stores
from decoded_records import EVERY_ID, decoded, entries_of, lookup, read
from hypothesis import given
from hypothesis import strategies as st
from replacing import replace

from kprof_inject.timeline.columns import never_falling
from kprof_inject.timeline.records import contradicted_records, record_decoder
from kprof_inject.timeline.unwrap import far_records, max_launch_cycles


def survivors(written: Sequence[Entry], slots: int, *, stores_moved: bool = False) -> list[Entry]:
    """What is decoded of a single warp."""
    return entries_of(decoded(read([Cta([written])], slots), stores_moved=stores_moved), 0)


def test_an_entry_is_split_into_its_fields() -> None:
    raw = read([Cta([[start(0, 0)]], sm=sm) for sm in range(3)], slots=1)
    # Bits 22 to 11 are no field; here one entry has them clear, one set.
    raw.entries[:, 0, 0] = [[0x80000400, 0x00000001], [0xC0800401, 0xFFFFFFFE], [0x7FFFFFFF, 0x00000000]]
    assert [entries_of(decoded(raw), row) for row in range(3)] == [
        [Entry(0x00, True, 0x400_00000001)],
        [Entry(0x81, True, 0x401_FFFFFFFE)],
        [Entry(0xFF, False, 0x7FF_00000000)],
    ]


# Below, equal to, just above and many times the ring of four.
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 7, 8, 9, 41])
def test_the_newest_records_survive_in_order(count: int) -> None:
    written = [Entry(n % 256, n % 2 == 1, 100 + 7 * n) for n in range(count)]
    raw = read([Cta([written])], slots=4)
    records = decoded(raw)
    assert entries_of(records, 0) == written[-4:]
    assert records.number.tolist() == list(range(count))[-4:]
    assert raw.records_lost.tolist() == [[max(0, count - 4)]]
    assert records.lost.tolist() == [max(0, count - 4)]


def test_each_warp_has_its_own_ring_and_count() -> None:
    first, third = [start(1, 5)], [start(2, 10 + n) for n in range(6)]
    second: list[Entry] = []
    raw = read([None, Cta([first, second, third], sm=1), Cta([third, first, second], sm=2)], slots=2)

    assert [entries_of(decoded(raw), group) for group in range(6)] == [first, [], third[-2:], third[-2:], first, []]
    assert raw.records_lost.tolist() == [[0, 0, 4], [4, 0, 0]]


def test_the_rows_of_a_block_decode_as_they_do_with_all() -> None:
    ctas = [Cta([[start(n, 50 * n), end(n, 50 * n + warp)] * 2 for warp in (1, 2)], sm=n % 2) for n in range(5)]
    decoder = record_decoder(read(ctas, slots=3), lookup(EVERY_ID))
    whole, part = decoder.decode(slice(0, 5)), decoder.decode(slice(2, 4))
    assert (part.first_group, part.lost.tolist()) == (4, [1, 1, 1, 1])
    for group in range(4, 8):
        assert entries_of(part, group) == entries_of(whole, group) != []


@pytest.mark.parametrize(("warps", "written"), [(1, 1), (1, 2), (2, 3), (3, 0)])
def test_a_block_has_as_many_ctas_as_fit_its_records(warps: int, written: int) -> None:
    raw = read([Cta([[start(0, at) for at in range(written)] for _ in range(warps)])], slots=3)
    ctas = 1 << 17
    names = ("sm", "init_ns", "pre_final_ns", "written_words", "entries")
    columns = {name: np.repeat(getattr(raw, name), ctas, axis=0) for name in names}
    first, *_ = record_decoder(replace(raw, **columns), lookup(EVERY_ID)).blocks()

    of_cta = max(warps * written, 1)
    assert first.stop * of_cta <= 1 << 16 < (first.stop + 1) * of_cta


def test_a_cta_of_more_records_than_a_block_has_is_a_block_of_its_own() -> None:
    warp = [start(0, at) for at in range(40_000)]
    raw = read([Cta([warp, warp])] * 2, slots=len(warp))
    assert list(record_decoder(raw, lookup(EVERY_ID)).blocks()) == [slice(0, 1), slice(1, 2)]


NESTED = [
    *[start(0, 100), start(1, 110), start(2, 120), end(2, 130), start(2, 140), end(2, 150), end(1, 160)],
    *[start(3, 170), end(3, 180), end(0, 190)],
]


def test_the_clock_decides_where_stores_were_moved() -> None:
    written = with_moved_stores(NESTED)
    assert written != NESTED
    assert survivors(written, 16, stores_moved=True) == NESTED


def test_a_ring_with_moved_stores_loses_the_scopes_that_ended_first() -> None:
    written = with_moved_stores(NESTED)
    raw = read([Cta([written])], slots=7)
    records = decoded(raw, stores_moved=True)
    # Its end is written, its start was overwritten.
    assert entries_of(records, 0) == [entry for entry in NESTED if entry not in written[:3]]
    assert records.number.tolist() == [3, 4, 5, 6, 7, 8, 9]
    # What was lost ended before the oldest entry in the ring did; the function began before that.
    assert records.oldest.tolist() == [[150], [150]]


def test_records_whose_stores_were_moved_are_numbered_after_the_lost_and_the_damaged_ones() -> None:
    written = with_moved_stores(NESTED)
    damaged = [*written[:6], start(200, 155), *written[6:]]
    ctas = [Cta([[]] * 2), Cta([damaged, written]), Cta([written, damaged])]
    decoder = record_decoder(read(ctas, slots=9), lookup({scope: scope for scope in range(4)}), stores_moved=True)

    # Each ring keeps nine entries.
    two_lost_and_one_damaged, one_lost = [*range(3, 11)], [*range(1, 10)]
    first, second = decoder.decode(slice(1, 2)), decoder.decode(slice(2, 3))
    assert (first.lost.tolist(), first.number.tolist()) == ([2, 1], two_lost_and_one_damaged + one_lost)
    assert (second.lost.tolist(), second.number.tolist()) == ([1, 2], one_lost + two_lost_and_one_damaged)


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_at_one_clock_value_the_order_of_writing_decides(count: int) -> None:
    written = [start(n, 100) for n in range(count)]
    assert survivors(written, 4) == written[-4:]


def test_the_counter_wraps_for_each_sm_alone_and_for_all_its_ctas() -> None:
    edge = CLOCK_PERIOD
    early = Cta([[start(0, edge - 900), end(0, edge - 500)]], sm=3)
    late = Cta([[start(0, edge + 100), end(0, edge + 200)]], sm=3)
    apart = Cta([[start(0, 100), end(0, 200)]], sm=4)
    high = Cta([[start(0, edge - 300), end(0, edge - 200)]], sm=0)
    raw = read([late, apart, early, high], slots=2)

    assert decoded(raw).cycles.reshape(-1, 2).tolist() == [
        [edge + 100, edge + 200],
        [100, 200],
        [edge - 900, edge - 500],
        [edge - 300, edge - 200],
    ]


@pytest.mark.parametrize("bit", range(43))
def test_a_damaged_clock_value_lets_no_counter_wrap(bit: int) -> None:
    # The launch goes on where the damaged value is just half a period away.
    base = 1 << 42
    ctas = [Cta([[start(0, base + at), end(0, base + at + 30)]]) for at in (-90, -40, 60, 1200)]
    raw = read(ctas, slots=2)
    raw.entries[1, 0, 1, bit < 32] ^= 1 << bit % 32
    records = decoded(raw)
    for row in (0, 2, 3):
        assert entries_of(records, row) == list(ctas[row].warps[0])


# Rings whose stores were moved: which starts have no end beside them, and the order of time.


def decoded_warp(written: Sequence[Entry]) -> tuple[list[Entry], int]:
    """What a warp's records are in order of time, and how many were left out."""
    records = decoded(read([Cta([written])], 64), {scope: scope for scope in range(4)}, stores_moved=True)
    return entries_of(records, 0), records.damaged.size


PAIR, OTHER = [start(0, 10), end(0, 20)], [start(1, 30), end(1, 40)]


@pytest.mark.parametrize(
    ("written", "damaged"),
    [
        ([*PAIR, *OTHER], 0),
        # An end that is alone may have lost its start, or never had one: its function has two returns.
        ([end(1, 5), *PAIR, *OTHER], 0),
        ([*PAIR, end(2, 25), *OTHER], 0),
        # A start is never alone, or it is none.
        ([start(2, 5), *PAIR, *OTHER], 1),
        ([*PAIR, start(1, 25), *OTHER], 1),
        ([*PAIR, *OTHER, start(2, 50)], 1),
        ([*PAIR, start(2, 22), end(3, 25), *OTHER], 1),
        ([*PAIR, start(2, 27), end(2, 25), *OTHER], 1),
        ([*PAIR, start(2, 22), end(77, 25), *OTHER], 2),
        # Of two ends out of order, nobody knows which one is wrong.
        ([*PAIR, start(2, 22), end(2, 50), *OTHER], 4),
    ],
)
def test_a_start_that_its_end_does_not_follow_is_damaged(written: list[Entry], damaged: int) -> None:
    left, found = decoded_warp(written)
    assert found == damaged
    assert left == [entry for entry in sorted(written, key=lambda entry: entry.cycles) if entry in left]
    assert len(left) == len(written) - damaged
    if damaged < 4:
        assert set(PAIR + OTHER) <= set(left)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30),
    st.booleans(),
)
def test_the_order_of_time_is_found_again(steps: list[tuple[int, int]], crossing: bool) -> None:
    """Scopes that nest, or cross as they like, with many records at one clock value; none that takes no time at the
    very begin of another: that may as well stand before it."""
    clock = 100
    entries: list[Entry] = []
    opened: list[int] = []
    for scope, cycles in steps:
        clock += cycles
        if scope in opened:
            inner = scope if crossing else opened[-1]
            entries.append(end(inner, clock + 1))
            opened.remove(inner)
            clock += 1
        else:
            entries.append(start(scope, clock + crossing))
            clock += crossing
            opened.append(scope)
    entries += [end(scope, clock + 1 + number) for number, scope in enumerate(opened[::-1])]

    assert decoded_warp(with_moved_stores(entries)) == (entries, 0)


# Entries that no warp can have written.


# What a CTA of 1 µs may have counted: 5 GHz, and 2 µs more at either end.
MOST = 25_000


def times_of(*times_ns: tuple[int, int]) -> list[Cta]:
    return [Cta([[]], init_ns=begin, pre_final_ns=done, post_final_ns=done) for begin, done in times_ns]


def far(cycles: list[list[int]], most: int, unusable: tuple[int, ...] = ()) -> list[int]:
    """Which of the records of some CTAs are, counted through."""
    row = np.repeat(np.arange(len(cycles)), [len(values) for values in cycles])
    usable = ~np.isin(np.arange(len(row)), unusable)
    flat = np.array([value for values in cycles for value in values], dtype=np.int64)
    return np.flatnonzero(far_records(row, flat, usable, most)).tolist()


def contradicted(cycles: list[list[int]], unusable: tuple[int, ...] = ()) -> list[int]:
    """The same, of warps."""
    group = np.repeat(np.arange(len(cycles)), [len(values) for values in cycles])
    usable = ~np.isin(np.arange(len(group)), unusable)
    flat = np.array([value for values in cycles for value in values], dtype=np.int64)
    return np.flatnonzero(contradicted_records(group, flat, usable)).tolist()


def test_a_launch_has_as_many_cycles_as_its_time_allows() -> None:
    raw = read(times_of((1_000, 2_000), (1_000, 1_000), (5_000, 1_005_000)), slots=1)
    assert max_launch_cycles(raw) == 5 * (1_004_000 + 4_000)


def test_no_time_is_so_long_that_its_cycles_overflow() -> None:
    raw = read(times_of((0, 1_000)), slots=1)
    longest = replace(raw, init_ns=np.array([0, 1 << 62]), pre_final_ns=np.array([(1 << 63) - 1, 0]))
    assert 1 << 50 < max_launch_cycles(longest) < 1 << 62
    backward = replace(raw, init_ns=np.array([1 << 62]), pre_final_ns=np.array([0]))
    assert max_launch_cycles(backward) == 20_000


def test_without_a_timer_a_launch_may_take_a_minute() -> None:
    untimed = replace(read(times_of((0, 0)), slots=1), timed=False)
    assert max_launch_cycles(untimed) == 5 * 60_000_000_000


def test_a_warp_may_begin_long_before_the_one_that_reads_the_timer() -> None:
    early = [start(0, 0), end(0, 500_000)]
    late = [start(0, 499_900), end(0, 500_000)]
    ctas = [
        Cta([late, early], init_ns=100_000, pre_final_ns=101_000),
        Cta([late, early], init_ns=0, pre_final_ns=101_000),
    ]
    assert not decoded(read(ctas, slots=2), {0: 0}).damaged.size


def test_far_is_what_is_further_from_the_middle_than_the_ctas_time() -> None:
    assert far([[100, 200, 300, 401, 0]], 200) == [3]
    assert far([[100, 200, 300, 400]], 300) == []
    assert far([[0, 100, 200, 300, 1 << 42]], 300) == [4]


@pytest.mark.parametrize(
    ("cycles", "found"),
    [
        ([1, 2, 3], []),
        ([1, 1, 1], []),
        ([1, 5, 2, 3], [1, 2]),
        ([5, 1, 6], [0, 1]),
        # Without the two in the middle, the others contradict each other.
        ([1, 9, 7, 3, 8, 10], [1, 2, 3]),
        ([4, 9, 3, 5, 2, 8], [1, 2, 3, 4]),
        ([6, 9, 3, 5], [0, 1, 2, 3]),
    ],
)
def test_neighbours_that_contradict_each_other(cycles: list[int], found: list[int]) -> None:
    assert contradicted([cycles]) == found
    assert contradicted([[0], cycles, [100, 200]]) == [place + 1 for place in found]


@pytest.mark.parametrize(("older", "left"), [(1, 19), (8, 12), (9, 0), (20, 0)])
def test_of_a_warp_whose_order_is_wrong_nothing_is_left(older: int, left: int) -> None:
    # As of a ring that is read from a wrong place on: what stands behind was written before.
    turned = [*range(100, 120), *range(older)]
    found = contradicted([[1, 2, 3], turned, [1, 2, 3]])
    assert found == list(range(3 + left, 23 + older))


def test_damaged_entries_are_left_out_and_counted_for_their_warp() -> None:
    warps = [
        [start(0, 500), start(77, 510), end(0, 520)],
        [start(0, 500), end(0, 600), start(0, 550), end(0, 650)],
        [start(0, 500), end(0, 520), start(0, 600 + MOST), end(0, 540)],
    ]
    records = decoded(read([Cta(warps)], slots=4), {0: 0})
    assert entries_of(records, 0) == [start(0, 500), end(0, 520)]
    assert entries_of(records, 1) == [start(0, 500), end(0, 650)]
    assert entries_of(records, 2) == [start(0, 500), end(0, 520), end(0, 540)]
    assert records.damaged.tolist() == [0, 1, 1, 2]
    assert records.number.tolist() == [0, 2, 0, 3, 0, 1, 3]


# Values that may not fall within their group.


rows = st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), max_size=30).map(
    lambda pairs: sorted(pairs, key=lambda pair: pair[0])
)


@given(rows)
def test_no_value_falls_below_those_before_it(rows: list[tuple[int, int]]) -> None:
    group, values = (np.array([row[at] for row in rows], dtype=np.int64) for at in (0, 1))
    expected = []
    for _, mine in groupby(rows, key=lambda row: row[0]):
        found = [value for _, value in mine]
        expected += [max(found[: at + 1]) for at in range(len(found))]
    assert never_falling(values, group).tolist() == expected
