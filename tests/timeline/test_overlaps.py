"""Scopes that cross their own kind, and records that are paired as brackets, against looking at each of them."""

from __future__ import annotations

import numpy as np
from foreign_buffers import Mark, flashinfer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kprof_inject.capture.foreign import BufferDescription, read_buffer_array
from kprof_inject.timeline.captures import timeline_of
from kprof_inject.timeline.columns import SCOPE_COLUMNS
from kprof_inject.timeline.nesting import free_lanes, lanes_of_pairs, lanes_of_rows
from kprof_inject.timeline.pairs import Pairs
from kprof_inject.timeline.timeline import Timeline

spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(1, 20)), max_size=25)


@given(spans)
def test_on_one_lane_nothing_overlaps_and_no_lane_is_wasted(made: list[tuple[int, int, int]]) -> None:
    key, start, length = np.array(made, dtype=np.int64).reshape(-1, 3).T
    end = start + length
    lanes = free_lanes(key, start, end)
    for place in range(len(key)):
        beside = (key == key[place]) & (start <= start[place]) & (end > start[place])
        beside[place] = False
        same = beside & (lanes == lanes[place])
        assert not same.any()
        # All lanes below its own were taken when it began.
        assert set(range(int(lanes[place]))) <= set(lanes[beside].tolist())


records = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 1])), min_size=1, max_size=24)


@given(st.lists(records, min_size=1, max_size=3))
# What crosses the outer of two scopes of a kind begins when the inner one has ended, or in it.
@example([[(0, 0), (0, 0), (0, 1), (1, 0), (0, 1), (1, 1)]])
@example([[(0, 0), (1, 0), (0, 1), (1, 0), (1, 1), (1, 1)]])
@settings(deadline=None)
def test_records_are_paired_as_a_stack_for_each_scope_would(units: list[list[tuple[int, int]]]) -> None:
    marks = [[[Mark(event, side, 100 + 10 * place) for place, (event, side) in enumerate(unit)]] for unit in units]
    expected, open_starts, stray_ends = set(), 0, 0
    for cta, ((*unit,),) in enumerate(marks):
        stacks: dict[int, list[int]] = {0: [], 1: []}
        for mark in unit:
            if mark.side == 0:
                stacks[mark.event].append(mark.ns)
            elif stacks[mark.event]:
                expected.add((cta, mark.event, stacks[mark.event].pop(), mark.ns))
            else:
                stray_ends += 1
        open_starts += sum(map(len, stacks.values()))
    said = BufferDescription("flashinfer", ("a", "b"))
    timeline = timeline_of(read_buffer_array(flashinfer(1, marks), said).launches[0])
    rows = timeline.scopes
    assert set(rows[["cta", "scope", "start_ns", "end_ns"]].tolist()) == expected
    assert (int(timeline.open_starts.sum()), int(timeline.stray_ends.sum())) == (open_starts, stray_ends)
    _require_drawable(timeline)


def _require_drawable(timeline: Timeline) -> None:
    """No two scopes of a unit and a lane cross, and no two that are open at once have a level of the page in common."""
    rows = timeline.scopes
    lanes = timeline.lanes[rows["scope"]]
    if timeline.overlaps is not None:
        lanes = lanes + lanes_of_rows(rows, timeline.overlaps)
    for one in range(len(rows)):
        for other in range(one):
            a, b = rows[other], rows[one]
            if (a["cta"], a["warp"]) != (b["cta"], b["warp"]):
                continue
            crosses = a["start_record"] < b["start_record"] < a["end_record"] < b["end_record"]
            assert not (crosses and lanes[one] == lanes[other])
            is_open = b["start_record"] < a["end_record"]
            assert not (
                is_open and timeline.lanes[a["scope"]] == timeline.lanes[b["scope"]] and a["depth"] == b["depth"]
            )


def pairs_of(*ran: tuple[int, int, int]) -> Pairs:
    """Scopes (scope, index of the start, index of the end), by start."""
    scope, start_at, end_at = np.array(sorted(ran, key=lambda row: row[1])).T
    none = np.empty(0, dtype=np.int64)
    return Pairs(start_at, end_at, scope.astype(np.int16), none, none)


def test_kinds_that_cross_themselves_have_lanes_of_their_own_after_the_others() -> None:
    ran = [(0, 0, 19), (1, 1, 5), (1, 2, 6), (1, 7, 8), (2, 9, 12), (2, 10, 13), (3, 14, 15)]
    other_unit = [(1, 20, 23), (1, 21, 24), (1, 22, 25)]
    unit = np.repeat([0, 1], [20, 6])
    lanes, overlaps, own = lanes_of_pairs(pairs_of(*ran, *other_unit), unit, 4)

    assert overlaps is not None
    assert overlaps.tolist() == [1, 3, 2, 1]
    assert lanes.tolist() == [0, 1, 4, 0]
    assert own.tolist() == [-1, 0, 1, 0, 0, 1, -1, 0, 1, 2]


def test_rows_of_a_block_have_the_lanes_of_their_warp_and_kind() -> None:
    ran = [
        (0, 0, 0, 0, 9, 0),
        *[(0, 0, 1, 1, 5, 0), (0, 0, 1, 2, 6, 1), (0, 0, 1, 5, 7, 0), (0, 0, 2, 3, 8, 0)],
        *[(0, 1, 1, 2, 6, 0), (0, 1, 1, 3, 7, 1)],
        *[(1, 0, 1, 2, 6, 0), (1, 0, 2, 2, 6, 0), (1, 0, 2, 3, 5, 1), (1, 0, 0, 4, 9, 0)],
    ]
    rows = np.zeros(len(ran), dtype=SCOPE_COLUMNS)
    for name, column in zip(
        ("cta", "warp", "scope", "start_record", "end_record"), zip(*ran, strict=True), strict=False
    ):
        rows[name] = column
    assert lanes_of_rows(rows, np.array([1, 2, 2])).tolist() == [lane for *_, lane in ran]
    assert not lanes_of_rows(rows, np.array([1, 1, 1])).any()
