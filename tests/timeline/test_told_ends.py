"""Iterations of which only the start is recorded: the next one's start is their end, too."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Cta, Entry, Scope, end, save_launch, start
from decoded_records import decoded, lookup, read

from kprof_inject.timeline.nesting import iterations, nest
from kprof_inject.timeline.pairs import ScopeRules, scopes_of
from kprof_inject.timeline.readings import tally_launch
from kprof_inject.timeline.records import record_decoder
from kprof_inject.timeline.timeline import decode_launch

FUNC, LOOP, ITER, OP, INNER_LOOP, INNER = range(6)
RULES = ScopeRules((-1, FUNC, LOOP, ITER, ITER, INNER_LOOP), (ITER, INNER))
SCOPES = {scope: scope for scope in range(6)}

THREE = [
    start(FUNC, 1),
    start(LOOP, 5),
    start(ITER, 10),
    start(ITER, 20),
    start(ITER, 30),
    end(ITER, 40),
    end(LOOP, 45),
]


def ran(entries: Sequence[Entry], slots: int = 0) -> list[tuple[int, int, int]]:
    """The scopes (scope, start, end) of a warp."""
    return [row[:3] for row in numbered(entries, slots)]


def numbered(entries: Sequence[Entry], slots: int = 0) -> list[tuple[int, int, int, int, int]]:
    """The same, with the number of the iteration and the depth."""
    records, pairs = scopes_of(decoded(read([Cta([entries])], slots or len(entries)), SCOPES), RULES)
    nesting = nest(pairs, len(records.scope))
    assert nesting.is_proper
    number = iterations(records, pairs, nesting.parent, RULES.ended_by_next)
    columns = pairs.scope, records.cycles[pairs.start_at], records.cycles[pairs.end_at], number, nesting.depth
    return list(zip(*(column.tolist() for column in columns), strict=True))


def unpaired(entries: Sequence[Entry], slots: int = 0) -> tuple[list[int], list[int]]:
    """How many starts and ends of each scope have no partner."""
    decoder = record_decoder(read([Cta([entries])], slots or len(entries)), lookup(SCOPES))
    tally = tally_launch(decoder, len(SCOPES), RULES)
    return tally.open_starts.tolist(), tally.stray_ends.tolist()


def test_a_start_ends_the_iteration_before() -> None:
    assert numbered([*THREE, end(FUNC, 50)]) == [
        (FUNC, 1, 50, -1, 0),
        (LOOP, 5, 45, -1, 1),
        *((ITER, begin, begin + 10, number, 2) for number, begin in enumerate((10, 20, 30))),
    ]


def test_a_capture_says_which_ends_are_told_and_which_records_are_no_scopes(tmp_path: Path) -> None:
    scopes = [Scope("loop[0]", "loop"), Scope("iter[0]", "iter", 0, ended_by_next=True)]
    names = {FUNC: "kernel body", LOOP: "loop[0]", ITER: "iter[0]"}
    ctas = [Cta([[*THREE, end(FUNC, 50)]])]
    timeline = decode_launch(save_launch(tmp_path, scopes, ctas, 8, scope_ids=names, body_record="kernel body"))

    columns = ["scope", "start_cycles", "end_cycles", "iteration", "depth"]
    assert timeline.scopes[columns].tolist() == [
        (0, 5, 45, -1, 0), (1, 10, 20, 0, 1), (1, 20, 30, 1, 1), (1, 30, 40, 2, 1)
    ]  # fmt: skip
    assert (timeline.records_written, timeline.records_lost) == (8, 0)
    assert not timeline.open_starts.any() and not timeline.stray_ends.any()


def test_a_loop_without_iterations_ends_none() -> None:
    entries = [start(FUNC, 1), start(LOOP, 5), end(ITER, 6), end(LOOP, 7), end(FUNC, 50)]
    assert ran(entries) == [(FUNC, 1, 50), (LOOP, 5, 7)]
    assert unpaired(entries) == ([0] * 6, [0] * 6)


def test_iterations_of_a_loop_that_is_run_again_are_its_own() -> None:
    inner = [start(INNER_LOOP, 11), start(INNER, 12), start(INNER, 13), end(INNER, 14), end(INNER_LOOP, 15)]
    none = [start(INNER_LOOP, 21), end(INNER, 22), end(INNER_LOOP, 23)]
    again = [entry._replace(cycles=entry.cycles + 20) for entry in inner]
    entries = [start(ITER, 10), *inner, start(ITER, 20), *none, start(ITER, 30), *again, end(ITER, 40)]
    found = numbered(entries)
    assert [row[:4] for row in found if row[0] == INNER] == [
        (INNER, 12, 13, 0), (INNER, 13, 14, 1), (INNER, 32, 33, 0), (INNER, 33, 34, 1)
    ]  # fmt: skip
    assert [row[:4] for row in found if row[0] == ITER] == [(ITER, 10, 20, 0), (ITER, 20, 30, 1), (ITER, 30, 40, 2)]
    assert unpaired(entries) == ([0] * 6, [0] * 6)


@pytest.mark.parametrize(
    ("slots", "kept", "stray_ends"),
    [
        (8, [(FUNC, 1), (LOOP, 5), (ITER, 10), (ITER, 20), (ITER, 30)], [0, 0, 0]),
        (7, [(LOOP, 5), (ITER, 10), (ITER, 20), (ITER, 30)], [1, 0, 0]),
        (6, [(ITER, 10), (ITER, 20), (ITER, 30)], [1, 1, 0]),
        (5, [(ITER, 20), (ITER, 30)], [1, 1, 0]),
        (4, [(ITER, 30)], [1, 1, 0]),
        (3, [], [1, 1, 1]),
        (2, [], [1, 1, 0]),
    ],
)
def test_what_a_ring_kept_is_decoded_as_it_was(slots: int, kept: list[tuple[int, int]], stray_ends: list[int]) -> None:
    entries = [*THREE, end(FUNC, 50)]
    assert [row[:2] for row in ran(entries, slots)] == kept
    assert unpaired(entries, slots) == ([0] * 6, [*stray_ends, 0, 0, 0])


def test_an_end_behind_a_loop_without_iterations_is_no_loss_either() -> None:
    entries = [*THREE, start(LOOP, 46), end(ITER, 47), end(LOOP, 48), end(FUNC, 50)]
    assert ran(entries, 4) == [(LOOP, 46, 48)]
    assert unpaired(entries, 4) == ([0] * 6, [1, 0, 0, 0, 0, 0])


def test_an_iteration_in_which_an_entry_is_damaged_may_be_two() -> None:
    damaged = Entry(77, False, 15)
    assert (ITER, 10, 20) not in ran([*THREE[:3], damaged, *THREE[3:]])
    assert {(ITER, 20, 30), (ITER, 30, 40)} < set(ran([*THREE[:3], damaged, *THREE[3:]]))


def unpaired_of(scope: int, entries: Sequence[Entry], slots: int = 0) -> tuple[int, int]:
    """Count its starts and ends without a partner."""
    starts, ends = unpaired(entries, slots)
    return starts[scope], ends[scope]


LONG = [start(FUNC, 1), start(LOOP, 5), *(start(ITER, begin) for begin in range(10, 60, 10))]
LONG += [end(ITER, 60), end(LOOP, 65), end(FUNC, 70)]


def with_amid(begin: int, amid: Sequence[Entry]) -> list[Entry]:
    """Five iterations of a loop, with other records in the one from ``begin``."""
    at = LONG.index(start(ITER, begin)) + 1
    return [*LONG[:at], *amid, *LONG[at:]]


@pytest.mark.parametrize(
    ("begin", "left", "open_starts", "stray_ends"),
    [
        (10, [30, 40, 50], 2, 0),
        (20, [40, 50], 3, 0),
        (30, [10, 50], 3, 0),
        (40, [10, 20], 3, 1),
        (50, [10, 20, 30], 2, 1),
    ],
)
@pytest.mark.parametrize(
    "amid",
    [
        [end(OP, 5)],
        [start(OP, 5)],
        # Records of one clock value, which are no end that a start implies.
        [end(OP, 5), start(OP, 5), end(OP, 7)],
        [end(OP, 5), start(INNER_LOOP, 5), end(INNER_LOOP, 7)],
    ],
)
def test_an_iteration_with_an_unpaired_record_is_dropped_with_its_neighbours(
    begin: int, left: list[int], open_starts: int, stray_ends: int, amid: list[Entry]
) -> None:
    entries = with_amid(begin, [entry._replace(cycles=begin + entry.cycles) for entry in amid])

    assert [row[1:3] for row in ran(entries) if row[0] == ITER] == [(start, start + 10) for start in left]
    assert {row for row in ran(entries) if row[0] < ITER} == {(FUNC, 1, 70), (LOOP, 5, 65)}
    # An end that was implied is no record, so none is missing its start.
    assert unpaired_of(ITER, entries) == (open_starts, stray_ends)
    assert sum(unpaired_of(OP, entries)) == 1


def test_the_oldest_record_of_a_ring_may_begin_an_iteration_with_an_unpaired_one() -> None:
    entries = [*THREE[:3], end(OP, 15), *THREE[3:], end(FUNC, 50)]
    assert [row[:2] for row in ran(entries, 7)] == [(ITER, 30)]


def test_an_iteration_with_a_record_of_its_loop_is_dropped_if_a_record_is_unpaired() -> None:
    entries = [end(OP, 0), *with_amid(20, [end(LOOP, 25), start(LOOP, 26)])]
    assert [row[1] for row in ran(entries) if row[0] == ITER] == [40, 50]
    assert unpaired_of(ITER, entries) == (3, 0)


def test_the_end_of_an_iteration_whose_start_was_lost_is_one_even_right_before_another_start() -> None:
    lost = [start(FUNC, 1), start(LOOP, 5), start(ITER, 10)]
    kept = [end(ITER, 15), start(ITER, 20), start(ITER, 30), end(ITER, 40)]
    assert [row[:3] for row in ran([*lost, *kept], 4)] == [(ITER, 20, 30), (ITER, 30, 40)]
    assert unpaired_of(ITER, [*lost, *kept], 4) == (0, 1)


def test_records_around_a_body_that_is_not_selected_are_no_scope_even_without_a_partner() -> None:
    rules = ScopeRules(RULES.parents[:INNER], unselected=INNER)
    entries = [start(LOOP, 1), end(INNER, 2), end(OP, 3), start(INNER, 4), end(INNER, 5), start(INNER, 6)]
    records, pairs = scopes_of(decoded(read([Cta([entries])], 6), SCOPES), rules)

    assert pairs.scope.size == 0
    assert records.scope[pairs.open_starts].tolist() == [LOOP]
    assert records.scope[pairs.stray_ends].tolist() == [OP]


def test_iterations_of_neighbouring_warps_are_apart() -> None:
    warps = [[start(ITER, 10), start(ITER, 20)], [start(ITER, 30), start(ITER, 35), end(ITER, 40)]]
    records, pairs = scopes_of(decoded(read([Cta(warps)], 4), SCOPES), RULES)
    assert records.group[pairs.start_at].tolist() == [0, 1, 1]
    assert records.cycles[pairs.start_at].tolist() == [10, 30, 35]
    assert records.cycles[pairs.end_at].tolist() == [20, 35, 40]


def test_an_iteration_without_an_end_leaves_those_of_inner_loops() -> None:
    entries = [start(ITER, 10), start(INNER_LOOP, 11), start(INNER, 12), start(INNER, 13), end(INNER, 14)]
    assert ran(entries) == [(INNER, 12, 13), (INNER, 13, 14)]
    assert unpaired(entries) == ([0, 0, 1, 0, 1, 0], [0] * 6)


def test_an_end_amid_damage_may_have_lost_its_start_unless_it_follows_its_loops() -> None:
    damaged = Entry(77, False, 3)
    assert unpaired_of(ITER, [start(FUNC, 5), end(ITER, 6), end(FUNC, 7)]) == (0, 0)
    assert unpaired_of(ITER, [damaged, start(FUNC, 5), end(ITER, 6), end(FUNC, 7)]) == (0, 1)
    assert unpaired_of(ITER, [damaged, end(LOOP, 5), end(ITER, 6), end(FUNC, 7)]) == (0, 1)
    assert unpaired_of(ITER, [damaged, start(LOOP, 5), end(ITER, 6), end(LOOP, 7)]) == (0, 0)
    assert unpaired_of(ITER, [damaged, start(FUNC, 4), start(LOOP, 5), end(ITER, 6), end(LOOP, 7), end(FUNC, 8)]) == (
        0,
        0,
    )
    # Of another warp, nothing follows.
    warps = [[damaged, start(LOOP, 5)], [damaged, end(ITER, 6)]]
    decoder = record_decoder(read([Cta(warps)], 4), lookup(SCOPES))
    assert tally_launch(decoder, len(SCOPES), RULES).stray_ends.tolist() == [0, 0, 1, 0, 0, 0]


def test_a_loop_without_iterations_ends_none_of_the_warp_before() -> None:
    warps = [[start(LOOP, 5), start(ITER, 10)], [start(LOOP, 5), end(ITER, 6), end(LOOP, 7)]]
    decoder = record_decoder(read([Cta(warps)], 4), lookup(SCOPES))
    tally = tally_launch(decoder, len(SCOPES), RULES)
    assert tally.open_starts.tolist() == [0, 1, 1, 0, 0, 0]
    assert not tally.stray_ends.any()


def test_each_block_of_ctas_has_its_own_losses() -> None:
    # The second CTA is sound, so its lone end follows a loop without iterations.
    lossy = [start(FUNC, 0), start(LOOP, 1), start(ITER, 2), end(ITER, 3)]
    sound = [end(ITER, 6)]
    decoder = record_decoder(read([Cta([lossy]), Cta([sound])], 2), lookup(SCOPES))
    for row, stray in ((0, 0), (1, 0)):
        _, pairs = scopes_of(decoder.decode(slice(row, row + 1)), RULES)
        assert pairs.stray_ends.size == stray
    reverse = record_decoder(read([Cta([sound]), Cta([lossy[:3] + [end(ITER, 3)] * 2])], 2), lookup(SCOPES))
    _, pairs = scopes_of(reverse.decode(slice(1, 2)), RULES)
    assert pairs.stray_ends.size == 2


def test_records_that_imply_ends_are_numbered_one_after_the_other() -> None:
    records, _ = scopes_of(decoded(read([Cta([[*THREE, end(FUNC, 50)]] * 2)], 8), SCOPES), RULES)
    assert records.number.tolist() == [*range(10)] * 2
    assert records.cycles.tolist() == [1, 5, 10, 20, 20, 30, 30, 40, 45, 50] * 2
