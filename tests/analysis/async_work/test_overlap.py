"""What goes on at once on an SM, in hand-made launches."""

from __future__ import annotations

from pathlib import Path

import pytest
from async_launches import COMMIT, COPIES, LAST, WAIT, in_order, launched
from buffers import Scope
from hypothesis import given, settings
from hypothesis import strategies as st
from scratch import scratch_folder
from timelines import Ran, cta_rows, made_timeline, scope_rows

from kprof_inject.analysis.async_work.overlap import Together, together
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.timeline.timeline import Timeline

BEGIN_NS = Ran(0, 0).start_ns


def ran(folder: Path, *rows: tuple[int, int, int, int, int]) -> Timeline:
    """Rows of scope, warp, SM, begin and duration."""
    made = [Ran(scope, long, sm, warp, sm, start_ns=BEGIN_NS + at) for scope, warp, sm, at, long in rows]
    scopes = [Scope("a", "marker"), Scope("b", "marker"), Scope("never", "marker")]
    return made_timeline(folder, scopes, [scope_rows(made)], cta_rows((0, 0, 0, 1000, 1000)))


def of_records(timeline: Timeline, a: int, b: int) -> Together:
    found = together(timeline, None, [a], [b])
    assert found is not None
    assert found.least == found.most
    return found


def test_what_warps_of_an_sm_do_at_once(tmp_path: Path) -> None:
    timeline = ran(tmp_path, (0, 0, 0, 0, 100), (0, 1, 0, 50, 150), (1, 2, 0, 150, 100))
    # A from 0 to 200, whichever warp; B from 150 to 250.
    found = of_records(timeline, 0, 1)
    assert (found.least, found.first_ns, found.edges, found.executions) == (0.25, 200, 4, 2)
    assert of_records(timeline, 1, 0).least == 0.5
    assert of_records(timeline, 0, 0).least == 1


def test_what_another_sm_does_is_not_at_once(tmp_path: Path) -> None:
    timeline = ran(tmp_path, (0, 0, 0, 0, 100), (1, 0, 1, 0, 100), (1, 0, 0, 90, 100))
    assert of_records(timeline, 0, 1).least == 0.1


def test_what_took_no_time_is_beside_nothing(tmp_path: Path) -> None:
    timeline = ran(tmp_path, (0, 0, 0, 0, 100), (1, 0, 0, 10, 0))
    assert together(timeline, None, [0], [2]) is None
    assert together(timeline, None, [2], [0]) is None
    assert together(timeline, None, [0], [1]) is None


Span = tuple[int, int, int, int]
"""SM, warp, begin and duration."""
SPANS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 60), st.integers(0, 20)), max_size=12)


@given(SPANS, SPANS)
@settings(max_examples=50, deadline=None)
def test_it_is_what_counting_each_nanosecond_gives(a: list[Span], b: list[Span]) -> None:
    def moments(spans: list[Span]) -> set[tuple[int, int]]:
        return {(sm, at) for sm, _, begin, long in spans for at in range(begin, begin + long)}

    rows = [(scope, warp, sm, begin, long) for scope, spans in enumerate((a, b)) for sm, warp, begin, long in spans]
    with scratch_folder() as folder:
        found = together(ran(Path(folder), *rows), None, [0], [1])
    if not (moments(a) and moments(b)):
        assert found is None
        return
    assert found is not None
    assert found.least == found.most == len(moments(a) & moments(b)) / len(moments(a))
    assert (found.first_ns, found.executions) == (len(moments(a)), len(a))


def test_work_is_under_way_until_the_wait_for_it_ends(tmp_path: Path) -> None:
    """Copies from 0 to 5,600, for each wait blocked; the last wait from 5,000 on."""
    timeline = in_order(tmp_path)
    flying = LaunchAnalysis.of(timeline).in_flight
    found = together(timeline, flying, [0], [2])
    assert found is not None
    assert (found.least, found.most) == pytest.approx((600 / 5600, 600 / 5600))
    assert found.executions == 4


def test_of_work_that_was_done_when_waited_for_nobody_knows_since_when(tmp_path: Path) -> None:
    """Asked for from 0 to 10, and done by 900; the other scope runs from 500 to 700."""
    spans = [(0, 0, 0, 10), (1, 1, 500, 700), (2, 0, 900, 930)]
    scopes = {"ttg.async_commit_group": COMMIT, "ttg.async_wait": WAIT, "last": LAST}
    timeline = launched(tmp_path, COPIES, scopes, spans)
    flying = LaunchAnalysis.of(timeline).in_flight
    assert flying is not None and len(flying.groups) == 1
    found = together(timeline, flying, [0], [1])
    assert found is not None
    # At best it ended right after the other scope.
    assert found.least == 0
    assert found.most >= 200 / 700
