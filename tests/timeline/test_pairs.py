"""Records to scopes: by hand, against the truth that made the records, and against the slow decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from buffers import CLOCK_PERIOD, Cta, Entry, buffer_words, end, start, with_moved_stores
from decoded_records import decoded
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from slow_decoder import WarpLoss, decode_slowly

from kprof_inject.capture.buffer_layouts import LAYOUTS
from kprof_inject.timeline.pairs import ScopeRules, pair_records

# Ids 2 and 3 are two ends of one scope, 4 belongs to none.
SCOPE_OF_ID = {0: 0, 1: 1, 2: 2, 3: 2, 5: 3}
UNKNOWN = 4
# What stands in what, if the table of scopes says so.
PARENTS = (-1, 0, 1, 1)


class Paired(NamedTuple):
    """Scopes as (CTA, warp, scope, start, end), and the scopes of the records without a partner."""

    scopes: list[tuple[int, ...]]
    open_starts: Counter[int]
    stray_ends: Counter[int]
    incomplete: dict[tuple[int, int], WarpLoss]


def paired(
    words: NDArray[np.uint32], num_warps: int, parents: Sequence[int] = (), *, stores_moved: bool = False
) -> Paired:
    raw = LAYOUTS["timed"].read(words, num_warps, range(num_warps))
    records = decoded(raw, SCOPE_OF_ID, stores_moved=stores_moved)
    pairs = pair_records(records, ScopeRules(tuple(parents)))
    row, warp = np.divmod(records.group[pairs.start_at], num_warps)
    columns = (raw.cta[row], warp, pairs.scope, records.cycles[pairs.start_at], records.cycles[pairs.end_at])
    open_starts, stray_ends = (
        Counter(records.scope[places].tolist()) for places in (pairs.open_starts, pairs.stray_ends)
    )
    counts = [
        np.bincount(groups, minlength=len(raw.cta) * num_warps).reshape(-1, num_warps)
        for groups in (records.group[pairs.open_starts], records.group[pairs.stray_ends], records.damaged)
    ]
    lacking = np.stack([records.lost.reshape(-1, num_warps), *counts], axis=-1)
    incomplete = {
        (int(raw.cta[row]), warp): WarpLoss(*lacking[row, warp].tolist())
        for row, warp in np.argwhere(lacking.any(axis=-1)).tolist()
    }
    scopes = list(zip(*(column.tolist() for column in columns), strict=True))
    return Paired(scopes, open_starts, stray_ends, incomplete)


def scopes_of(entries: Sequence[Entry]) -> list[tuple[int, ...]]:
    """The scopes (scope, start, end) of a single warp that loses nothing."""
    words = buffer_words([Cta([entries])], slots=max(1, len(entries)))
    return [row[2:] for row in paired(words, 1).scopes]


@pytest.mark.parametrize("wrong", range(8))
def test_where_a_scope_does_not_take_turns_nobody_knows_which_record_is_wrong(wrong: int) -> None:
    turns = [(1, 2), (3, 4), (5, 6), (7, 8)]
    entries = [Entry(1, number % 2 == 1, number + 1) for number in range(8)]
    entries[wrong] = entries[wrong]._replace(is_end=not entries[wrong].is_end)
    near = {wrong // 2, (wrong - 1) // 2, (wrong + 1) // 2}
    assert scopes_of(entries) == [(1, *cycles) for turn, cycles in enumerate(turns) if turn not in near]


@pytest.mark.parametrize("between", [[], [start(1, 3), end(1, 4)]])
def test_two_damaged_entries_may_have_been_an_end_and_a_start(between: list[Entry]) -> None:
    entries = [start(0, 1), start(UNKNOWN, 2), *between, end(200, 5), end(0, 6)]
    result = paired(buffer_words([Cta([entries])], slots=8), 1)
    assert [row[2:] for row in result.scopes] == [(1, 3, 4)] * (len(between) // 2)
    assert result.incomplete == {(0, 0): WarpLoss(0, 1, 1, 2)}


class Stream(NamedTuple):
    """The records of one warp, and the scopes (scope, start, end) that made them, by start."""

    entries: list[Entry]
    scopes: list[tuple[int, int, int]]


@st.composite
def streams(draw: st.DrawFn, clock: int = 0, end_ids: Sequence[int] = (2, 3)) -> Stream:
    """Scopes in scopes and one after another, as a kernel without jumps makes them, from a clock value on. Those of
    id 2 end with one of ``end_ids``."""
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
            entries.append(end(draw(st.sampled_from(end_ids)) if inner == 2 else inner, clock))
            scopes.append((SCOPE_OF_ID[inner], began, clock))
    return Stream(entries, sorted(scopes, key=lambda scope: scope[1]))


clocks = st.sampled_from([0, (1 << 42) - 300, CLOCK_PERIOD - 300])


@st.composite
def sound_ctas(draw: st.DrawFn, end_ids: Sequence[int]) -> list[list[Stream]]:
    """The streams of two warps of some CTAs, all of one SM."""
    clock = draw(clocks)
    return draw(st.lists(st.lists(streams(clock, end_ids), min_size=2, max_size=2), min_size=1, max_size=4))


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_without_loss_the_pairs_are_the_scopes_that_ran(data: st.DataObject, stores_moved: bool) -> None:
    # A start's store is moved to the end of its own id.
    ctas = data.draw(sound_ctas([2] if stores_moved else [2, 3]))
    order = with_moved_stores if stores_moved else list
    made = [Cta([order(stream.entries) for stream in cta]) for cta in ctas]
    result = paired(buffer_words(made, slots=32), 2, stores_moved=stores_moved)

    truth = [(c, w, *scope) for c, cta in enumerate(ctas) for w, stream in enumerate(cta) for scope in stream.scopes]
    # The counter's first value may be a period away.
    shift = result.scopes[0][3] - truth[0][3] if truth else 0
    assert shift % CLOCK_PERIOD == 0
    assert result.scopes == [(c, w, scope, a + shift, b + shift) for c, w, scope, a, b in truth]
    assert (result.open_starts, result.stray_ends, result.incomplete) == ({}, {}, {})


any_word = st.integers(0, 0xFFFFFFFF)


@st.composite
def any_ctas(draw: st.DrawFn) -> list[Cta | None]:
    """CTAs of three warps with sound records, any records near a clock value, or both."""
    near = draw(clocks)
    any_entry = st.builds(
        Entry,
        st.sampled_from([0, 1, 2, 3, UNKNOWN, 5, 255]),
        st.booleans(),
        # Few values, so that many records share one; some just within the CTA's time and some just without.
        st.one_of(st.integers(near, near + 9), st.integers(near - 25_010, near + 25_010), st.integers(0, 1 << 43)),
    )
    in_order = st.lists(any_entry, max_size=20).map(lambda entries: sorted(entries, key=lambda entry: entry.cycles))
    any_warp = st.one_of(streams(near).map(lambda stream: stream.entries), in_order, st.lists(any_entry, max_size=20))
    any_cta = st.none() | st.builds(Cta, st.lists(any_warp, min_size=3, max_size=3), sm=st.integers(0, 2))
    return draw(st.lists(any_cta, min_size=1, max_size=4))


@pytest.mark.slow
@settings(deadline=None, max_examples=80)
@given(
    any_ctas(),
    st.integers(1, 12),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 200), any_word), max_size=6),
)
# A value that looks torn, and would be below 0 if it were.
@example([Cta([[start(0, 1), end(0, 2), start(0, 3), end(0, 4)], [], []])], 4, False, [(0, 1, 0xFFFFF000)])
def test_any_records_decode_as_one_by_one(
    ctas: list[Cta | None], slots: int, stores_moved: bool, corruption: list[tuple[int, int, int]]
) -> None:
    words = buffer_words([*ctas, Cta([[], [], []], sm=1)], slots)
    for row, column, word in corruption:
        # Past the header and the counts, which have tests of their own.
        if words[row % len(words), 0]:
            words[row % len(words), 13 + column % (words.shape[1] - 13)] = word

    result = paired(words, 3, PARENTS, stores_moved=stores_moved)
    slow = decode_slowly(words, 3, SCOPE_OF_ID, PARENTS, stores_moved=stores_moved)
    assert sorted(result.scopes) == slow.scopes
    assert result.open_starts == slow.open_starts
    assert result.stray_ends == slow.stray_ends
    assert result.incomplete == slow.incomplete
    assert [row[:2] for row in result.scopes] == sorted(row[:2] for row in result.scopes)
    assert all(begin <= ended for *_, begin, ended in result.scopes)
