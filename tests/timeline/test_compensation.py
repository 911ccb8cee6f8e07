"""Durations without what the records cost: they stay consistent, whatever the cost is."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from buffers import Cta, Entry, end, start
from decoded_records import decoded, read
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.capture.mode import RecordCost
from kprof_inject.timeline.nesting import Nesting, nest, within_children
from kprof_inject.timeline.pairs import Pairs, pair_records
from kprof_inject.timeline.records import Records, without_records

# Nanoseconds of a cycle.
RATE = 0.57
UNKNOWN = 77
SCOPES = {scope: scope for scope in range(6)}


class Run(NamedTuple):
    records: Records
    pairs: Pairs
    nesting: Nesting
    ns: NDArray[np.int64]


def run(*warps: list[Entry]) -> Run:
    records = decoded(read([Cta(warps)], slots=128), SCOPES)
    pairs = pair_records(records)
    ns = 10**18 + np.rint(records.cycles * RATE).astype(np.int64)
    return Run(records, pairs, nest(pairs, len(records.scope)), ns)


def between(pairs: Pairs, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """From start to end of each scope."""
    return values[pairs.end_at] - values[pairs.start_at]


@st.composite
def warps(draw: st.DrawFn, least_gap: int = 0) -> list[Entry]:
    """The records of a warp whose scopes nest, or cross; some entries are damaged."""
    clock = 0
    entries: list[Entry] = []
    opened: set[int] = set()
    for scope, gap in draw(st.lists(st.tuples(st.integers(0, 5), st.integers(least_gap, 200)), max_size=40)):
        clock += gap
        entries.append(Entry(scope, scope in opened, clock))
        opened ^= {scope}
    return entries


@st.composite
def damaged_warps(draw: st.DrawFn) -> list[Entry]:
    entries = draw(warps())
    wrong = draw(st.sets(st.integers(0, 39), max_size=3))
    return [entry._replace(scope_id=UNKNOWN) if place in wrong else entry for place, entry in enumerate(entries)]


costs = st.builds(RecordCost, st.floats(0, 300), st.floats(0, 300), st.just(0.0))


@given(st.lists(damaged_warps(), min_size=1, max_size=3), costs)
def test_no_duration_is_negative_and_none_is_less_than_those_in_it(made: list[list[Entry]], cost: RecordCost) -> None:
    records, pairs, nesting, ns = run(*made)
    net_cycles, net_ns = without_records(records, ns, cost)
    for values, raw in ((net_cycles, records.cycles), (net_ns, ns)):
        durations = between(pairs, values)
        assert (durations >= 0).all()
        # Both are rounded.
        assert (durations <= between(pairs, raw) + 1).all()
        alone = durations - within_children(values, pairs, nesting)
        assert (alone >= 0).all()
        if nesting.is_proper:
            for place, duration in enumerate(durations.tolist()):
                assert duration >= durations[nesting.parent == place].sum()


@given(warps(least_gap=50), st.integers(0, 50), st.integers(0, 50))
def test_where_every_distance_is_longer_each_record_costs_the_same(
    entries: list[Entry], after_start: int, after_end: int
) -> None:
    records, pairs, _, ns = run(entries)
    net_cycles, net_ns = without_records(records, ns, RecordCost(after_start, after_end, 0.0))
    spent = np.append(0, np.cumsum(np.where(records.is_end, after_end, after_start)))[:-1]
    assert between(pairs, net_cycles).tolist() == (between(pairs, records.cycles - spent)).tolist()
    taken_ns = between(pairs, ns) - between(pairs, net_ns)
    # Each distance in nanoseconds is rounded.
    assert (np.abs(taken_ns - between(pairs, spent) * RATE) <= 2 + (pairs.end_at - pairs.start_at)).all()


def test_a_distance_shorter_than_the_cost_counts_as_nothing() -> None:
    records, pairs, _, ns = run([start(0, 0), start(1, 100), end(1, 110), end(0, 300)])
    net_cycles, _ = without_records(records, ns, RecordCost(30.0, 40.0, 0.0))
    assert between(pairs, net_cycles).tolist() == [70 + 0 + 150, 0]


def test_a_damaged_entry_cost_as_much_as_a_record_in_the_mean() -> None:
    records, pairs, _, ns = run([start(0, 0), start(UNKNOWN, 500), end(0, 1000)])
    net_cycles, _ = without_records(records, ns, RecordCost(30.0, 40.0, 0.0))
    assert between(pairs, net_cycles).tolist() == [1000 - 30 - 35]
