"""Depths and iteration numbers, what is left of them when records were lost, and the time within scopes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from buffers import Cta, Entry, end, start, with_moved_stores
from decoded_records import decoded, lookup, read
from hypothesis import given
from hypothesis import strategies as st

from kprof_inject.timeline.nesting import iterations, nest, within_children
from kprof_inject.timeline.pairs import pair_records
from kprof_inject.timeline.records import record_decoder

# A kernel with a loop in a loop, both with their iterations; each scope's id is its place here.
FUNC, LOOP, ITER, INNER_LOOP, INNER_ITER = range(5)
SCOPE_OF_ID = {scope: scope for scope in range(5)}
ITERATIONS = (ITER, INNER_ITER)
UNKNOWN = 77


def nesting(
    warps: Sequence[Sequence[Entry]], slots: int = 64, *, stores_moved: bool = False
) -> list[tuple[int, int, int, int]]:
    """For each scope of one CTA, in order of warp and start: warp, scope, depth, iteration."""
    records = decoded(read([Cta(warps)], slots), SCOPE_OF_ID, stores_moved=stores_moved)
    pairs = pair_records(records)
    found = nest(pairs, len(records.scope))
    numbers = iterations(records, pairs, found.parent, ITERATIONS)
    columns = (records.group[pairs.start_at], pairs.scope, found.depth, numbers)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def clocked(*steps: int) -> list[Entry]:
    """Records 10 cycles apart; each step is a scope's id: its first opens the scope, the next closes it."""
    entries: list[Entry] = []
    opened: set[int] = set()
    for number, scope in enumerate(steps):
        entries.append(Entry(scope, scope in opened, 10 * (number + 1)))
        opened ^= {scope}
    return entries


def whole_kernel(*counts: int) -> list[Entry]:
    """All records of the kernel: for each count one outer iteration, with that many inner ones."""
    inner = [[INNER_LOOP] + [INNER_ITER] * (2 * count) + [INNER_LOOP] for count in counts]
    return clocked(FUNC, LOOP, *(step for steps in inner for step in [ITER, *steps, ITER]), LOOP, FUNC)


def test_a_scope_that_ends_where_its_neighbour_starts_is_not_around_it() -> None:
    rows = nesting([[start(FUNC, 1), start(ITER, 5), end(ITER, 8), start(ITER, 8), end(ITER, 9), end(FUNC, 9)]])
    assert [depth for _, _, depth, _ in rows] == [0, 1, 1]


def test_scopes_that_start_at_one_clock_value_are_in_each_other() -> None:
    rows = nesting([[start(FUNC, 1), start(LOOP, 1), start(ITER, 1), end(ITER, 8), end(LOOP, 9), end(FUNC, 9)]])
    assert [(scope, depth) for _, scope, depth, _ in rows] == [(FUNC, 0), (LOOP, 1), (ITER, 2)]


def test_iterations_start_anew_in_each_instance_of_their_loop() -> None:
    rows = nesting([whole_kernel(3, 0, 2)])
    assert [(scope, number) for _, scope, _, number in rows if scope in ITERATIONS] == [
        (ITER, 0),
        (INNER_ITER, 0),
        (INNER_ITER, 1),
        (INNER_ITER, 2),
        (ITER, 1),
        (ITER, 2),
        (INNER_ITER, 0),
        (INNER_ITER, 1),
    ]


def damaged(entries: Sequence[Entry], *places: int) -> list[Entry]:
    """The same with ids of no scope in some places."""
    return [entry._replace(scope_id=UNKNOWN) if place in places else entry for place, entry in enumerate(entries)]


ITERATING = clocked(FUNC, LOOP, *[ITER] * 8, LOOP, LOOP, *[ITER] * 4, LOOP, FUNC)


def numbers_of(entries: Sequence[Entry], slots: int = 64, *, stores_moved: bool = False) -> list[int]:
    """The numbers of all iterations."""
    return [number for _, scope, _, number in nesting([entries], slots, stores_moved=stores_moved) if scope == ITER]


@pytest.mark.parametrize(
    ("places", "numbers"),
    [
        ((), [0, 1, 2, 3, 0, 1]),
        # The second iteration's start: the first one's end and its own are then two in a row.
        ((4,), [-1, -1, -1, -1]),
        # All of the second iteration. It may have been the loop's end, and the start of the next.
        ((4, 5), [-1, -1, -1, -1, -1]),
        # The second loop's start: of the two ends in a row, either may be the first loop's.
        ((11,), [-1, -1, -1, -1, -1, -1]),
        # The second loop's end.
        ((16,), [0, 1, 2, 3, -1, -1]),
        # The function's end.
        ((17,), [0, 1, 2, 3, 0, 1]),
    ],
)
def test_after_a_damaged_entry_no_iteration_has_a_number(places: tuple[int, ...], numbers: list[int]) -> None:
    assert numbers_of(damaged(ITERATING, *places)) == numbers


def test_damage_in_one_warp_leaves_the_numbers_of_another() -> None:
    rows = nesting([damaged(ITERATING, 1), ITERATING])
    assert [number for warp, scope, _, number in rows if warp == 1 and scope == ITER] == [0, 1, 2, 3, 0, 1]


def test_a_loop_that_may_have_begun_anew_leaves_no_numbers() -> None:
    # The first loop's end became another start, so that neither loop is paired, and all iterations are the function's.
    wrong = list(ITERATING)
    wrong[10] = start(LOOP, wrong[10].cycles)
    assert [scope for _, scope, _, _ in nesting([wrong])] == [FUNC, *[ITER] * 6]
    assert numbers_of(wrong) == [-1] * 6


def test_a_count_that_hides_a_loss_gives_no_numbers() -> None:
    # As if the ring began amid the loop, though nothing was lost.
    assert numbers_of(ITERATING[4:10]) == [0, 1, 2]
    assert numbers_of(ITERATING[4:11]) == [-1] * 3


def test_after_damage_no_iteration_of_a_warp_with_moved_stores_has_a_number() -> None:
    # Of the last iteration: nobody knows when a damaged entry was made.
    assert numbers_of(damaged(with_moved_stores(ITERATING), 13), stores_moved=True) == [-1] * 5


spans = st.lists(st.lists(st.integers(0, 30), min_size=2, max_size=2, unique=True).map(sorted), max_size=6)


@given(spans)
def test_the_time_in_scopes_counts_once(scopes: list[list[int]]) -> None:
    """Scopes of one warp that nest and cross as they like, each of its own kind; their records are ties apart."""
    entries = sorted(
        [entry for kind, (begin, ended) in enumerate(scopes) for entry in (start(kind, begin), end(kind, ended))],
        key=lambda entry: (entry.cycles, not entry.is_end, entry.scope_id),
    )
    records = decoded(read([Cta([entries, entries])], 64))
    pairs = pair_records(records)
    found = nest(pairs, len(records.scope))
    taken = within_children(records.cycles, pairs, found)

    assert len(taken) == 2 * len(scopes)
    for place, total in enumerate(taken.tolist()):
        children = np.flatnonzero(found.parent == place).tolist()
        cycles = {
            cycle
            for child in children
            for cycle in range(records.cycles[pairs.start_at[child]], records.cycles[pairs.end_at[child]])
        }
        assert total == len(cycles)


def test_iterations_are_numbered_up_to_a_damaged_entry_even_where_the_ring_lost_others() -> None:
    entries = [*clocked(FUNC, FUNC, FUNC), *(entry._replace(cycles=entry.cycles + 100) for entry in LOOP_OF_TWO)]
    damaged = [*entries[:6], Entry(UNKNOWN, False, 0), *entries[6:]]
    assert [row[1:] for row in nesting([entries], slots=6)] == [(LOOP, 0, -1), (ITER, 1, 0), (ITER, 1, 1)]
    assert [row[1:] for row in nesting([damaged], slots=7)] == [(LOOP, 0, -1), (ITER, 1, 0), (ITER, 1, -1)]


LOOP_OF_TWO = clocked(LOOP, ITER, ITER, ITER, ITER, LOOP)


def test_iterations_of_a_block_of_ctas_have_the_numbers_that_they_have_in_all() -> None:
    # The first CTA loses the start of its loop, the second nothing.
    lossy, whole = [*LOOP_OF_TWO, start(FUNC, 90)], LOOP_OF_TWO
    for order, numbers in (([lossy, whole], [[-1, -1], [0, 1]]), ([whole, lossy], [[0, 1], [-1, -1]])):
        decoder = record_decoder(read([Cta([warp]) for warp in order], 6), lookup(SCOPE_OF_ID))
        for row, expected in enumerate(numbers):
            records = decoder.decode(slice(row, row + 1))
            pairs = pair_records(records)
            found = iterations(records, pairs, nest(pairs, len(records.scope)).parent, ITERATIONS)
            assert found[pairs.scope == ITER].tolist() == expected
