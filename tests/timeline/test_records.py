"""Rings to records: which survive, in which order, and with which clock values."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from buffers import CLOCK_PERIOD, Cta, Entry, buffer_words, end, num_warps_of, start

from kprof_inject.capture.layouts import RawCtas, TimedLayout
from kprof_inject.timeline.records import decode_records, lost_records


def read(ctas: Sequence[Cta | None], slots: int) -> RawCtas:
    return TimedLayout().read(buffer_words(ctas, slots), num_warps_of(ctas), range(num_warps_of(ctas)))


def entries_of(raw: RawCtas, row: int = 0, warp: int = 0) -> list[Entry]:
    """What was decoded for one warp."""
    records = decode_records(raw)
    mine = (records.row == row) & (records.warp == warp)
    return [
        Entry(*values)
        for values in zip(
            records.scope_id[mine].tolist(), records.is_end[mine].tolist(), records.cycles[mine].tolist(), strict=True
        )
    ]


def test_an_entry_is_split_into_its_fields() -> None:
    raw = read([Cta([[start(0, 0)] * 3])], slots=3)
    # Bits 22 to 11 are no field; here one entry has them clear, one set.
    raw.entries[0, 0] = [[0x80000400, 0x00000001], [0xC0800401, 0xFFFFFFFE], [0x7FFFFFFF, 0x00000000]]
    assert entries_of(raw) == [
        Entry(0x00, True, 0x400_00000001),
        Entry(0x81, True, 0x401_FFFFFFFE),
        Entry(0xFF, False, 0x7FF_00000000),
    ]


# Below, equal to, just above and many times the ring of four.
@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 7, 8, 9, 41])
def test_the_newest_records_survive_in_order(count: int) -> None:
    written = [Entry(n % 256, n % 2 == 1, 100 + 7 * n) for n in range(count)]
    raw = read([Cta([written])], slots=4)
    assert entries_of(raw) == written[-4:]
    assert lost_records(raw).tolist() == [[max(0, count - 4)]]


def test_each_warp_has_its_own_ring_and_count() -> None:
    first, second, third = [start(1, 5)], [], [start(2, 10 + n) for n in range(6)]
    raw = read([None, Cta([first, second, third], sm=1), Cta([third, first, second], sm=2)], slots=2)

    assert [[entries_of(raw, row, warp) for warp in range(3)] for row in range(2)] == [
        [first, [], third[-2:]],
        [third[-2:], first, []],
    ]
    assert lost_records(raw).tolist() == [[0, 0, 4], [4, 0, 0]]


def test_records_stand_in_order_of_row_warp_and_clock() -> None:
    raw = read([Cta([[start(0, 9), end(0, 12)], [start(0, 1), end(0, 30)]], sm=sm) for sm in (5, 2)], slots=2)
    records = decode_records(raw)
    assert records.row.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert records.warp.tolist() == [0, 0, 1, 1, 0, 0, 1, 1]
    assert records.cycles.tolist() == [9, 12, 1, 30, 9, 12, 1, 30]


def test_the_clock_decides_where_stores_were_moved() -> None:
    written = [start(0, 100), end(1, 130), start(1, 120), start(2, 110), end(2, 140), end(0, 150)]
    in_order = [start(0, 100), start(2, 110), start(1, 120), end(1, 130), end(2, 140), end(0, 150)]
    assert entries_of(read([Cta([written])], slots=8)) == in_order


def test_the_clock_decides_where_stores_were_moved_across_the_seam_of_a_full_ring() -> None:
    written = [start(0, 10), start(1, 40), start(2, 30), end(2, 60), end(1, 50), end(0, 70)]
    # What is lost is what was overwritten, even if its clock value is not the oldest.
    assert entries_of(read([Cta([written])], slots=4)) == [start(2, 30), end(1, 50), end(2, 60), end(0, 70)]


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7])
def test_at_one_clock_value_the_order_of_writing_decides(count: int) -> None:
    written = [start(n, 100) for n in range(count)]
    assert entries_of(read([Cta([written])], slots=4)) == written[-4:]


def test_a_counter_that_wraps_goes_on_counting() -> None:
    edge = CLOCK_PERIOD
    before, after = [start(0, edge - 50), start(1, edge - 20)], [end(1, edge), end(0, edge + 30)]
    assert entries_of(read([Cta([before + after])], slots=4)) == before + after


def test_a_wrapped_ring_and_a_wrapped_counter_at_once() -> None:
    written = [Entry(n % 2, n % 3 == 0, CLOCK_PERIOD - 55 + 10 * n) for n in range(11)]
    assert entries_of(read([Cta([written])], slots=8)) == written[-8:]


def test_the_counter_wraps_for_each_sm_alone_and_for_all_its_ctas() -> None:
    edge = CLOCK_PERIOD
    early = Cta([[start(0, edge - 900), end(0, edge - 500)]], sm=3)
    late = Cta([[start(0, edge + 100), end(0, edge + 200)]], sm=3)
    apart = Cta([[start(0, 100), end(0, 200)]], sm=4)
    high = Cta([[start(0, edge - 300), end(0, edge - 200)]], sm=0)
    raw = read([late, apart, early, high], slots=2)

    assert decode_records(raw).cycles.reshape(-1, 2).tolist() == [
        [edge + 100, edge + 200],
        [100, 200],
        [edge - 900, edge - 500],
        [edge - 300, edge - 200],
    ]


def test_a_launch_that_never_ran_has_no_records() -> None:
    raw = read([None, None], slots=4)
    assert decode_records(raw).cycles.size == 0
    assert lost_records(raw).shape == (0, 1)


def test_a_launch_that_recorded_nothing_has_no_records() -> None:
    raw = read([Cta([[], []])], slots=4)
    assert decode_records(raw).cycles.size == 0
    assert lost_records(raw).tolist() == [[0, 0]]
