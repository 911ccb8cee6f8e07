"""Rings whose stores were moved: which starts have no end beside them, and the order of time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from buffers import Cta, Entry, end, start, with_moved_stores
from decoded_records import decoded, entries_of, read
from hypothesis import given
from hypothesis import strategies as st


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
