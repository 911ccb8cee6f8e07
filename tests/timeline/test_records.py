"""Rings to records: which survive, in which order, and with which clock values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from buffers import CLOCK_PERIOD, Cta, Entry, end, start, with_moved_stores
from decoded_records import EVERY_ID, decoded, entries_of, lookup, read
from replacing import replace

from kprof_inject.timeline.records import record_decoder


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
