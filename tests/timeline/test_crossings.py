"""Scopes that cross, against looking at every two of them."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.timeline.nesting import Nesting, crossing_kinds, lanes_of, nest
from kprof_inject.timeline.pairs import Pairs

KINDS = 5


class Scopes(NamedTuple):
    """The places of records, by start; no two scopes of a kind cross."""

    kind: NDArray[np.int16]
    start_at: NDArray[np.int64]
    end_at: NDArray[np.int64]

    @classmethod
    def of(cls, records: list[int]) -> Scopes:
        """Each kind's first record opens it, the next closes it."""
        return cls.of_sides([(kind, records[:place].count(kind) % 2 == 1) for place, kind in enumerate(records)])

    @classmethod
    def of_sides(cls, records: list[tuple[int, bool]]) -> Scopes:
        """Each record says whether it closes the last of its kind that is open."""
        opened: dict[int, list[int]] = {}
        found: list[tuple[int, int, int]] = []
        for place, (kind, closes) in enumerate(records):
            mine = opened.setdefault(kind, [])
            if not closes:
                mine.append(place)
            elif mine:
                found.append((mine.pop(), place, kind))
        starts, ends, kinds = np.array(sorted(found), dtype=np.int64).reshape(-1, 3).T
        return cls(kinds.astype(np.int16), starts, ends)

    def cross(self, one: int, other: int) -> bool:
        first, second = sorted((one, other), key=lambda scope: self.start_at[scope])
        return bool(self.start_at[first] < self.start_at[second] < self.end_at[first] < self.end_at[second])

    def holds(self, one: int, other: int) -> bool:
        return bool(self.start_at[one] < self.start_at[other] and self.end_at[other] < self.end_at[one])

    def nesting(self) -> Nesting:
        none = np.zeros(0, dtype=np.int64)
        return nest(Pairs(self.start_at, self.end_at, self.kind, none, none), int(self.end_at.max(initial=-1)) + 1)

    def crossing_pairs(self) -> set[frozenset[int]]:
        return {frozenset(pair) for pair in combinations(range(len(self.kind)), 2) if self.cross(*pair)}


scopes = st.lists(st.integers(0, KINDS - 1), max_size=40).map(Scopes.of)
nested_in_their_kind = st.lists(st.tuples(st.integers(0, KINDS - 1), st.booleans()), max_size=40).map(Scopes.of_sides)


@given(scopes | nested_in_their_kind)
def test_the_kinds_that_cross_are_those_of_any_two_scopes_that_do(made: Scopes) -> None:
    expected = np.zeros((KINDS, KINDS), dtype=bool)
    for pair in made.crossing_pairs():
        one, other = made.kind[list(pair)]
        expected[one, other] = expected[other, one] = True
    assert crossing_kinds(made.kind, made.start_at, made.end_at, KINDS).tolist() == expected.tolist()


@given(scopes | nested_in_their_kind)
def test_the_depth_counts_those_that_hold_it_whole(made: Scopes) -> None:
    count = len(made.kind)
    expected = [sum(made.holds(other, mine) for other in range(count)) for mine in range(count)]
    assert made.nesting().depth.tolist() == expected
    assert made.nesting().is_proper == (not made.crossing_pairs())


@given(st.lists(scopes | nested_in_their_kind, max_size=3))
def test_no_two_of_a_lane_cross_in_any_part_of_the_launch(parts: list[Scopes]) -> None:
    crosses = np.zeros((KINDS, KINDS), dtype=bool)
    for part in parts:
        crosses |= crossing_kinds(part.kind, part.start_at, part.end_at, KINDS)
    lanes = lanes_of(crosses)
    for part in parts:
        for one, other in part.crossing_pairs():
            assert lanes[part.kind[one]] != lanes[part.kind[other]]
        # What is drawn on one lane stands on as many levels as are open at once.
        depth = part.nesting().depth
        for one, other in combinations(range(len(part.kind)), 2):
            is_open = part.start_at[other] < part.end_at[one]
            assert not is_open or lanes[part.kind[one]] != lanes[part.kind[other]] or depth[one] < depth[other]
    # None is on a lane of its own without need.
    for kind, lane in enumerate(lanes.tolist()):
        assert all((crosses[kind, :kind] & (lanes[:kind] == below)).any() for below in range(lane))
