"""Records to scopes: by hand, against the truth that made the records, and against the slow decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from buffers import CLOCK_PERIOD, Cta, Entry, buffer_words, decode_slowly, end, start
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.capture.layouts import TimedLayout
from kprof_inject.timeline.pairs import Pairs, pair_records
from kprof_inject.timeline.records import decode_records

# Ids 2 and 3 are two ends of one scope, 4 belongs to none.
SCOPE_OF_ID = {0: 0, 1: 1, 2: 2, 3: 2, 5: 3}
SCOPES = 4


def pairs_of(words: NDArray[np.uint32], num_warps: int) -> tuple[Pairs, list[tuple[int, ...]]]:
    """The pairs, and as rows of CTA, warp, scope, start and end."""
    lookup = np.full(256, -1, dtype=np.int64)
    lookup[list(SCOPE_OF_ID)] = list(SCOPE_OF_ID.values())
    raw = TimedLayout().read(words, num_warps, range(num_warps))
    pairs = pair_records(decode_records(raw), lookup, SCOPES)
    columns = (raw.cta[pairs.row], pairs.warp, pairs.scope, pairs.start_cycles, pairs.end_cycles)
    return pairs, list(zip(*(column.tolist() for column in columns), strict=True))


def pairs_of_warp(entries: Sequence[Entry]) -> tuple[Pairs, list[tuple[int, ...]]]:
    """The same of a single warp that loses nothing, as rows of scope, start and end."""
    pairs, rows = pairs_of(buffer_words([Cta([entries])], slots=max(1, len(entries))), 1)
    return pairs, [row[2:] for row in rows]


def test_an_outer_scope_stands_before_the_ones_in_it() -> None:
    _, rows = pairs_of_warp([start(0, 1), start(1, 2), end(1, 3), start(1, 4), end(1, 5), end(0, 6)])
    assert rows == [(0, 1, 6), (1, 2, 3), (1, 4, 5)]


def test_an_outer_scope_stands_first_even_if_both_start_at_one_clock_value() -> None:
    _, rows = pairs_of_warp([start(1, 1), start(0, 1), end(0, 5), end(1, 9)])
    assert rows == [(1, 1, 9), (0, 1, 5)]


def test_scopes_that_cross_are_both_paired() -> None:
    _, rows = pairs_of_warp([start(0, 1), start(1, 2), end(0, 3), end(1, 4)])
    assert rows == [(0, 1, 3), (1, 2, 4)]


def test_open_starts_and_stray_ends_are_counted_by_scope() -> None:
    pairs, rows = pairs_of_warp(
        [end(1, 1), end(1, 2), start(0, 3), start(0, 4), end(0, 5), end(5, 6), start(1, 7), start(2, 8)]
    )
    assert rows == [(0, 4, 5)]
    assert pairs.open_starts.tolist() == [1, 1, 1, 0]
    assert pairs.stray_ends.tolist() == [0, 2, 0, 1]


def test_a_second_end_id_closes_the_scope_of_its_name() -> None:
    pairs, rows = pairs_of_warp([start(2, 1), end(3, 2), start(2, 3), end(2, 4)])
    assert rows == [(2, 1, 2), (2, 3, 4)]
    assert pairs.open_starts.tolist() == pairs.stray_ends.tolist() == [0, 0, 0, 0]


def test_an_unknown_id_is_counted_and_parts_no_pair() -> None:
    pairs, rows = pairs_of_warp([start(0, 1), start(4, 2), end(200, 3), end(0, 4)])
    assert rows == [(0, 1, 4)]
    assert pairs.unknown == 2


def test_scopes_of_neighbouring_warps_and_ctas_do_not_pair() -> None:
    only_start, only_end = [start(0, 1)], [end(0, 2)]
    ctas = [Cta([only_start, only_end]), Cta([only_end, only_start]), Cta([only_end, only_end])]
    pairs, rows = pairs_of(buffer_words(ctas, slots=2), 2)
    assert rows == []
    assert pairs.open_starts.tolist() == [2, 0, 0, 0]
    assert pairs.stray_ends.tolist() == [4, 0, 0, 0]


def test_no_records_make_no_pairs() -> None:
    pairs, rows = pairs_of(buffer_words([None, Cta([[]])], slots=4), 1)
    assert rows == []
    assert pairs.open_starts.tolist() == pairs.stray_ends.tolist() == [0, 0, 0, 0]
    assert pairs.unknown == 0


class Stream(NamedTuple):
    """The records of one warp, and the scopes (scope, start, end) that made them, by start."""

    entries: list[Entry]
    scopes: list[tuple[int, int, int]]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    """Scopes in scopes and one after another, as a kernel without jumps makes them."""
    clock = draw(st.sampled_from([0, 1 << 42, CLOCK_PERIOD - 100]))
    entries: list[Entry] = []
    scopes: list[tuple[int, int, int]] = []
    opened: list[tuple[int, int]] = []
    steps = draw(st.lists(st.tuples(st.sampled_from([0, 1, 2, 5]), st.integers(1, 40)), max_size=24))
    # The steps added close what the others left open.
    for scope_id, cycles in steps + [(0, 1)] * 4:
        clock += cycles
        # Deeper scopes have higher ids, so that no scope is open twice.
        if len(entries) < len(steps) and (not opened or scope_id > opened[-1][0]):
            opened.append((scope_id, clock))
            entries.append(start(scope_id, clock))
        elif opened:
            inner, began = opened.pop()
            entries.append(end(3 if inner == 2 and draw(st.booleans()) else inner, clock))
            scopes.append((SCOPE_OF_ID[inner], began, clock))
    return Stream(entries, sorted(scopes, key=lambda scope: scope[1]))


@settings(deadline=None)
@given(st.lists(st.tuples(streams(), streams()), min_size=1, max_size=4))
def test_without_loss_the_pairs_are_the_scopes_that_ran(ctas: list[tuple[Stream, Stream]]) -> None:
    # Every CTA has an SM of its own: the streams' clocks are not of one counter.
    made = [Cta([stream.entries for stream in cta], sm=number) for number, cta in enumerate(ctas)]
    pairs, rows = pairs_of(buffer_words(made, slots=32), 2)

    truth = [(c, w, *scope) for c, cta in enumerate(ctas) for w, stream in enumerate(cta) for scope in stream.scopes]
    starts_wrapped = [(c, w, scope, a % CLOCK_PERIOD, b % CLOCK_PERIOD) for c, w, scope, a, b in truth]
    assert [(c, w, scope, a % CLOCK_PERIOD, b % CLOCK_PERIOD) for c, w, scope, a, b in rows] == starts_wrapped
    assert (pairs.end_cycles - pairs.start_cycles).tolist() == [b - a for *_, a, b in truth]
    assert pairs.open_starts.sum() == pairs.stray_ends.sum() == pairs.unknown == 0


any_entry = st.builds(
    Entry,
    st.sampled_from([0, 1, 2, 3, 4, 5, 255]),
    st.booleans(),
    # Few values, so that many records share one; on both sides of the counter's wrap.
    st.one_of(st.integers(0, 9), st.integers(CLOCK_PERIOD - 9, CLOCK_PERIOD - 1), st.integers(0, CLOCK_PERIOD - 1)),
)
any_warp = st.one_of(streams().map(lambda stream: stream.entries), st.lists(any_entry, max_size=20))
any_cta = st.none() | st.builds(Cta, st.lists(any_warp, min_size=3, max_size=3), sm=st.integers(0, 2))
any_word = st.integers(0, 0xFFFFFFFF)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(any_cta, min_size=1, max_size=4),
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), any_word), max_size=6),
)
def test_any_records_decode_as_one_by_one(
    ctas: list[Cta | None], slots: int, corruption: list[tuple[int, int, int]]
) -> None:
    words = buffer_words([*ctas, Cta([[], [], []], sm=1)], slots)
    for row, column, word in corruption:
        # Past the header: counts, rings and what lies behind them.
        if words[row % len(words), 0]:
            words[row % len(words), 10 + column % (words.shape[1] - 10)] = word

    pairs, rows = pairs_of(words, 3)
    slow = decode_slowly(words, 3, SCOPE_OF_ID)
    assert sorted(rows) == slow.scopes
    assert pairs.open_starts.tolist() == [slow.open_starts[scope] for scope in range(SCOPES)]
    assert pairs.stray_ends.tolist() == [slow.stray_ends[scope] for scope in range(SCOPES)]
    assert pairs.unknown == slow.unknown
    assert (pairs.end_cycles >= pairs.start_cycles).all()
    order = np.lexsort((-pairs.end_cycles, pairs.start_cycles, pairs.warp, pairs.row))
    assert order.tolist() == list(range(len(rows)))
