"""Depths and iteration numbers, and what is left of them when records were lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from buffers import Cta, Entry, buffer_words, end, start

from kprof_inject.capture.layouts import TimedLayout
from kprof_inject.timeline.nesting import depths, iterations
from kprof_inject.timeline.pairs import pair_records
from kprof_inject.timeline.records import decode_records, lost_records

# A kernel with a loop in a loop, both with their iterations; each scope's id is its place here.
FUNC, LOOP, ITER, INNER_LOOP, INNER_ITER = range(5)
PARENTS = np.array([-1, FUNC, LOOP, ITER, INNER_LOOP])
IS_ITERATION = np.array([False, False, True, False, True])


def nesting(warps: Sequence[Sequence[Entry]], slots: int = 64) -> list[tuple[int, int, int, int]]:
    """For each scope of one CTA, in order of warp and start: warp, scope, depth, iteration."""
    raw = TimedLayout().read(buffer_words([Cta(warps)], slots), len(warps), range(len(warps)))
    scope_of_id = np.full(256, -1)
    scope_of_id[: len(PARENTS)] = range(len(PARENTS))
    pairs = pair_records(decode_records(raw), scope_of_id, len(PARENTS))
    numbers = iterations(pairs, PARENTS, IS_ITERATION, lost_records(raw))
    columns = (pairs.warp, pairs.scope, depths(pairs), numbers)
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


def test_depth_counts_the_scopes_around() -> None:
    assert nesting([clocked(FUNC, LOOP, ITER, ITER, ITER, ITER, LOOP, INNER_LOOP, INNER_LOOP, FUNC)]) == [
        (0, FUNC, 0, -1),
        (0, LOOP, 1, -1),
        (0, ITER, 2, 0),
        (0, ITER, 2, 1),
        (0, INNER_LOOP, 1, -1),
    ]


def test_a_scope_that_ends_where_its_neighbour_starts_is_not_around_it() -> None:
    rows = nesting([[start(FUNC, 1), start(ITER, 5), end(ITER, 8), start(ITER, 8), end(ITER, 9), end(FUNC, 9)]])
    assert [depth for _, _, depth, _ in rows] == [0, 1, 1]


def test_scopes_that_start_at_one_clock_value_are_in_each_other() -> None:
    rows = nesting([[start(FUNC, 1), start(LOOP, 1), start(ITER, 1), end(ITER, 8), end(LOOP, 9), end(FUNC, 9)]])
    assert [(scope, depth) for _, scope, depth, _ in rows] == [(FUNC, 0), (LOOP, 1), (ITER, 2)]


def test_a_scope_that_lost_its_start_is_around_none() -> None:
    assert nesting([[start(ITER, 1), end(ITER, 2), end(LOOP, 3), end(FUNC, 4)]]) == [(0, ITER, 0, 0)]


def test_depth_is_of_each_warp_alone() -> None:
    overlapping = [clocked(FUNC, LOOP, LOOP, FUNC), clocked(FUNC, FUNC), clocked(LOOP, ITER, ITER, LOOP)]
    assert [(warp, depth) for warp, _, depth, _ in nesting(overlapping)] == [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]


def test_iterations_start_anew_in_each_instance_of_their_loop() -> None:
    rows = nesting([whole_kernel(3, 0, 2)])
    assert [(scope, number) for _, scope, _, number in rows if IS_ITERATION[scope]] == [
        (ITER, 0),
        (INNER_ITER, 0),
        (INNER_ITER, 1),
        (INNER_ITER, 2),
        (ITER, 1),
        (ITER, 2),
        (INNER_ITER, 0),
        (INNER_ITER, 1),
    ]


def test_iterations_start_anew_in_each_warp() -> None:
    loop = clocked(LOOP, ITER, ITER, ITER, ITER, LOOP)
    rows = nesting([loop, loop])
    assert [(warp, number) for warp, scope, _, number in rows if scope == ITER] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_only_iterations_have_a_number() -> None:
    rows = nesting([whole_kernel(2, 2)])
    assert {number for _, scope, _, number in rows if not IS_ITERATION[scope]} == {-1}


def test_iterations_of_a_loop_that_is_not_recorded_count_on_within_the_scope_around_it() -> None:
    rows = nesting([clocked(FUNC, ITER, ITER, ITER, ITER, FUNC, FUNC, ITER, ITER, FUNC)])
    assert [number for _, scope, _, number in rows if scope == ITER] == [0, 1, 0]


def test_an_iteration_after_the_end_of_a_loop_is_not_one_of_it() -> None:
    rows = nesting([clocked(FUNC, LOOP, ITER, ITER, ITER, ITER, LOOP, ITER, ITER, FUNC)])
    assert [number for _, scope, _, number in rows if scope == ITER] == [0, 1, 0]


def test_iterations_of_a_loop_whose_start_was_lost_have_no_number() -> None:
    whole = clocked(FUNC, LOOP, ITER, ITER, ITER, ITER, ITER, ITER, LOOP, FUNC)
    assert nesting([whole], slots=9) == [(0, LOOP, 0, -1), (0, ITER, 1, 0), (0, ITER, 1, 1), (0, ITER, 1, 2)]
    assert nesting([whole], slots=8) == [(0, ITER, 0, -1), (0, ITER, 0, -1), (0, ITER, 0, -1)]
    assert nesting([whole], slots=5) == [(0, ITER, 0, -1)]


def test_iterations_of_an_inner_loop_that_survived_keep_their_numbers() -> None:
    whole = whole_kernel(3, 2)
    # The last twelve records begin with the end of the first inner loop: the outer loop's start is lost.
    rows = nesting([whole], slots=12)
    assert [(scope, number) for _, scope, _, number in rows] == [
        (ITER, -1),
        (INNER_LOOP, -1),
        (INNER_ITER, 0),
        (INNER_ITER, 1),
    ]


def test_loss_in_one_warp_leaves_the_numbers_of_another() -> None:
    short, long = clocked(ITER, ITER, ITER, ITER), clocked(*[ITER] * 8)
    rows = nesting([long, short], slots=4)
    assert [(warp, number) for warp, _, _, number in rows] == [(0, -1), (0, -1), (1, 0), (1, 1)]


def test_a_loop_in_a_warp_that_records_no_scope_around_it_has_numbers() -> None:
    # As in warp specialisation, where the function's scope is recorded by the warps of the default region only.
    whole = clocked(FUNC, LOOP, ITER, ITER, LOOP, FUNC)
    partition = clocked(LOOP, ITER, ITER, ITER, ITER, LOOP, LOOP, ITER, ITER, LOOP)
    rows = nesting([whole, partition])
    assert [(warp, depth, number) for warp, scope, depth, number in rows if scope == ITER] == [
        (0, 2, 0),
        (1, 1, 0),
        (1, 1, 1),
        (1, 1, 0),
    ]


def test_iterations_alone_in_their_warp_count_from_its_begin_if_nothing_was_lost() -> None:
    whole, alone = clocked(FUNC, LOOP, ITER, ITER, LOOP, FUNC), clocked(*[ITER] * 6)
    rows = nesting([whole, alone], slots=6)
    assert [number for warp, _, _, number in rows if warp == 1] == [0, 1, 2]
    rows = nesting([whole, alone], slots=5)
    assert [number for warp, _, _, number in rows if warp == 1] == [-1, -1]
