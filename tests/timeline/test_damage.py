"""Entries that no warp can have written."""

from __future__ import annotations

import numpy as np
import pytest
from buffers import Cta, end, start
from decoded_records import decoded, entries_of, read
from replacing import replace

from kprof_inject.timeline.records import contradicted_records
from kprof_inject.timeline.unwrap import far_records, max_launch_cycles

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
