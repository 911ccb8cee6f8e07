"""What the scope table tells of records: which start cannot be that of a scope around others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from buffers import Cta, Entry, end, start
from decoded_records import EVERY_ID, decoded, lookup, read

from kprof_inject.timeline.pairs import ScopeRules, pair_records
from kprof_inject.timeline.records import record_decoder

FUNC, LOOP, ITER, OTHER = range(4)
PARENTS = (-1, FUNC, LOOP, FUNC)
SCOPES = {scope: scope for scope in range(4)}


def scopes_of(entries: Sequence[Entry], lost: int = 4, parents: Sequence[int] = PARENTS) -> list[int]:
    """The scopes of a warp whose ring lost records, those before ``entries``."""
    before = [Entry(OTHER, number % 2 == 1, number) for number in range(lost)]
    records = decoded(read([Cta([[*before, *entries]])], slots=len(entries)), SCOPES)
    return list(pair_records(records, ScopeRules(tuple(parents))).scope.tolist())


ITERATION = [start(ITER, 30), end(ITER, 40)]


@pytest.mark.parametrize(
    ("entries", "scopes"),
    [
        # As it may be: what began before the oldest record was lost.
        ([*ITERATION, end(LOOP, 50), end(FUNC, 60)], [ITER]),
        ([start(LOOP, 20), *ITERATION, end(LOOP, 50), end(FUNC, 60)], [LOOP, ITER]),
        ([start(OTHER, 10), end(OTHER, 15), start(LOOP, 20), *ITERATION, end(LOOP, 50)], [OTHER, LOOP, ITER]),
        # An iteration's start that became the function's: that iteration's end stands in it.
        ([start(FUNC, 20), end(ITER, 25), *ITERATION, end(LOOP, 50), end(FUNC, 60)], [ITER]),
        ([start(LOOP, 20), end(ITER, 25), *ITERATION, end(LOOP, 50), end(FUNC, 60)], [ITER]),
        # An iteration's end that became the loop's start: another ran before it.
        ([*ITERATION, start(LOOP, 45), start(ITER, 47), end(ITER, 48), end(LOOP, 50), end(FUNC, 60)], [ITER, ITER]),
        # A loop that runs a second time.
        (
            [*ITERATION, end(LOOP, 42), start(LOOP, 45), start(ITER, 47), end(ITER, 48), end(LOOP, 50)],
            [ITER, LOOP, ITER],
        ),
    ],
)
def test_a_scope_does_not_begin_amid_those_in_it(entries: list[Entry], scopes: list[int]) -> None:
    assert scopes_of(entries) == scopes


def test_what_is_not_known_to_be_in_a_scope_tells_nothing_of_it() -> None:
    entries = [start(FUNC, 20), end(ITER, 25), *ITERATION, end(LOOP, 50), end(FUNC, 60)]
    assert scopes_of(entries, parents=()) == scopes_of(entries, parents=[-1, -1, LOOP, FUNC]) == [FUNC, ITER]


def test_one_lost_record_is_enough_and_that_of_another_warp_is_not() -> None:
    entries = [start(FUNC, 20), end(ITER, 25), *ITERATION, end(FUNC, 60)]
    assert scopes_of(entries, lost=1) == [ITER]
    warps = [[start(OTHER, 1), end(OTHER, 2), *entries], entries]
    records = decoded(read([Cta(warps)], slots=len(entries)), SCOPES)
    pairs = pair_records(records, ScopeRules(PARENTS))
    ran = zip(records.group[pairs.start_at].tolist(), pairs.scope.tolist(), strict=True)
    assert list(ran) == [(0, ITER), (1, FUNC), (1, ITER)]


def test_each_block_of_ctas_is_judged_by_its_own_losses() -> None:
    entries = [start(FUNC, 20), end(ITER, 25), *ITERATION, end(FUNC, 60)]
    ctas = [Cta([entries]), Cta([[start(OTHER, 1), end(OTHER, 2), *entries]]), Cta([entries])]
    decoder = record_decoder(read(ctas, slots=len(entries)), lookup(EVERY_ID))
    found = [pair_records(decoder.decode(slice(row, row + 1)), ScopeRules(PARENTS)).scope.tolist() for row in range(3)]
    assert found == [[FUNC, ITER], [ITER], [FUNC, ITER]]
