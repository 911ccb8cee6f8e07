"""What each scope takes: by hand, against a slow way, and from a decoded buffer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from buffers import Cta, Scope, end, save_launch, start
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from timelines import Ran, cta_rows, made_timeline, scope_rows, scope_statistics

from kprof_inject.timeline.choice import Choice
from kprof_inject.timeline.columns import ScopeFlag
from kprof_inject.timeline.scope_statistics import ScopeStatistics
from kprof_inject.timeline.timeline import decode_launch

SCOPES = [Scope("kernel"), Scope("loop[0]", "loop", 0), Scope("iter[0]", "iter", 1)]
FUNC, LOOP, ITER = 0, 1, 2
# Two warps of two CTAs of 1,000 ns: 4,000 ns of warps.
CTAS = cta_rows((0, 3, 2000, 3000, 3100), (1, 9, 2500, 3500, 3600))


def statistics(folder: Path, *blocks: list[Ran]) -> tuple[ScopeStatistics, ...]:
    return scope_statistics(made_timeline(folder, SCOPES, [scope_rows(rows) for rows in blocks], CTAS))


def test_a_scope_in_numbers(tmp_path: Path) -> None:
    rows = [Ran(LOOP, ns, sm=3, self_ns=ns // 2, record_ns=7) for ns in (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)]
    _, loop, _ = statistics(tmp_path, rows)
    assert (loop.count, loop.total_ns, loop.self_ns, loop.raw_total_ns) == (10, 550, 275, 620)
    assert loop.share == 550 / 4000
    assert (loop.mean_ns, loop.min_ns, loop.max_ns) == (55.0, 10, 100)
    assert (loop.p50_ns, loop.p90_ns, loop.p99_ns) == pytest.approx((55.0, 91.0, 99.1))
    assert (loop.mean_cycles, loop.p50_cycles) == (110.0, 110.0)


def test_no_scope_takes_more_than_all_of_the_time(tmp_path: Path) -> None:
    """A timer with steps of 1 µs shows CTAs of 1,250 ns as ones of 1,000 ns."""
    rows = [
        row
        for cta, sm in ((0, 3), (1, 9))
        for warp in (0, 1)
        for row in (Ran(FUNC, 1250, cta, warp, sm, self_ns=250), Ran(LOOP, 1000, cta, warp, sm, self_ns=1000))
    ]
    func, loop, _ = statistics(tmp_path, rows)
    assert (func.share, loop.share) == (1.0, 0.8)


def test_a_scope_that_never_ran_has_no_durations(tmp_path: Path) -> None:
    func, loop, iteration = statistics(tmp_path, [Ran(LOOP, 10, sm=3)])
    assert loop.count == 1
    for scope in (func, iteration):
        assert (scope.count, scope.total_ns, scope.self_ns, scope.share) == (0, None, None, None)
        assert (scope.raw_total_ns, scope.subtracted_ns) == (None, 0)
        durations = (scope.mean_ns, scope.min_ns, scope.p50_ns, scope.p90_ns, scope.p99_ns, scope.max_ns)
        assert durations == (None,) * 6
        assert (scope.mean_cycles, scope.p50_cycles) == (None, None)
        assert (scope.warp_spread, scope.cta_spread, scope.sm_spread, scope.cta_balance) == (None,) * 4
        assert scope.warps.ids.size == scope.sms.ids.size == 0
        assert scope.iterations is None


def test_what_was_subtracted_is_counted_once_whatever_stands_in_what(tmp_path: Path) -> None:
    # The function's 68 ns hold the loop's 34 and the iterations'.
    first = [
        Ran(FUNC, 900, sm=3, record_ns=68, start_record=0, end_record=7),
        Ran(LOOP, 500, sm=3, record_ns=34, start_record=1, end_record=6),
        Ran(ITER, 100, sm=3, record_ns=5, start_record=2, end_record=3),
        Ran(ITER, 100, sm=3, record_ns=5, start_record=4, end_record=5),
    ]
    # A warp whose function's start was lost.
    second = [
        Ran(LOOP, 500, warp=1, sm=3, record_ns=30, start_record=3, end_record=6),
        Ran(ITER, 100, warp=1, sm=3, record_ns=9, start_record=4, end_record=5),
    ]
    found = statistics(tmp_path, [*first, *second])
    assert [scope.subtracted_ns for scope in found] == [68, 30, 0]
    assert [scope.raw_total_ns - scope.total_ns for scope in found] == [68, 64, 19]


def test_of_chosen_scopes_what_was_subtracted_is_theirs(tmp_path: Path) -> None:
    rows = [
        Ran(FUNC, 900, sm=3, record_ns=68, start_record=0, end_record=5),
        *[Ran(ITER, 100, sm=3, record_ns=5, start_record=number, end_record=number + 1) for number in (1, 3)],
    ]
    timeline = made_timeline(tmp_path, SCOPES, [scope_rows(rows)], CTAS)
    found = scope_statistics(timeline.chosen(Choice(scopes=("iter*",))))
    assert [(scope.count, scope.subtracted_ns) for scope in found] == [(0, 0), (0, 0), (2, 10)]


def test_flags_are_counted(tmp_path: Path) -> None:
    flags = [ScopeFlag.CUT, ScopeFlag.CUT | ScopeFlag.CROSSES, ScopeFlag(0), ScopeFlag.CUT]
    func, *_ = statistics(tmp_path, [Ran(FUNC, 1, sm=3, flags=flag) for flag in flags])
    assert (func.cut, func.crossing) == (3, 1)


def test_of_a_launch_within_one_step_of_the_timer_nobody_knows_the_shares(tmp_path: Path) -> None:
    timeline = made_timeline(tmp_path, SCOPES, [scope_rows([Ran(FUNC, 300)])], cta_rows((0, 3, 2000, 2000, 2000)))
    assert [scope.share for scope in scope_statistics(timeline)] == [None] * 3


def test_of_a_decoded_buffer(tmp_path: Path) -> None:
    warp = [
        start(0, 100),
        start(1, 200),
        *[entry for k in range(4) for entry in (start(2, 300 + 100 * k), end(2, 390 + 100 * k))],
    ]
    warp += [end(1, 800), end(0, 1900)]
    ctas = [Cta([warp, warp], sm, 1000, 2000, 2500) for sm in (4, 7, 9)]
    timeline = decode_launch(save_launch(tmp_path, SCOPES, ctas, slots=16))
    func, loop, iteration = scope_statistics(timeline)
    assert [scope.count for scope in (func, loop, iteration)] == [6, 6, 24]
    assert [scope.p50_cycles for scope in (func, loop, iteration)] == [1800.0, 600.0, 90.0]
    assert iteration.iterations is not None
    assert (iteration.iterations.runs, iteration.iterations.counts.tolist()) == (6, [6] * 4)
    assert sum(scope.self_ns or 0 for scope in (func, loop, iteration)) == func.total_ns
    assert func.sms.ids.tolist() == [4, 7, 9]


row = st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 300) | st.integers(0, 2**34))
cta_of_rows = st.lists(row, max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.lists(cta_of_rows, min_size=1, max_size=2), st.booleans())
def test_the_fast_way_says_what_a_slow_one_does(
    tmp_path_factory: pytest.TempPathFactory, ctas: list[list[tuple[int, int, int]]], one_block: bool
) -> None:
    rows = [
        [
            Ran(scope, ns, cta, warp, (3, 9)[cta], self_ns=ns // 3)
            for scope, warp, ns in sorted(found, key=lambda cell: cell[1])
        ]
        for cta, found in enumerate(ctas)
    ]
    blocks = [[ran for block in rows for ran in block]] if one_block else rows
    for index, scope in enumerate(statistics(tmp_path_factory.mktemp("launch"), *blocks)):
        mine = [ran for block in rows for ran in block if ran.scope == index]
        durations_ns = [ran.duration_ns for ran in mine]
        assert scope.count == len(mine)
        if not mine:
            continue
        assert (scope.total_ns, scope.self_ns) == (sum(durations_ns), sum(ran.self_ns for ran in mine))
        quantiles = np.quantile(durations_ns, (0.5, 0.9, 0.99))
        assert (scope.p50_ns, scope.p90_ns, scope.p99_ns) == pytest.approx(tuple(quantiles))
        for spread, group in ((scope.warp_spread, "warp"), (scope.cta_spread, "cta"), (scope.sm_spread, "sm")):
            means = {}
            for key in {getattr(ran, group) for ran in mine}:
                means[key] = mean(ran.duration_ns for ran in mine if getattr(ran, group) == key)
            assert spread is not None
            assert (spread.groups, spread.greatest_ns) == pytest.approx((len(means), max(means.values())))
            assert means[spread.greatest_id] == pytest.approx(spread.greatest_ns)
            assert means[spread.least_id] == pytest.approx(spread.least_ns)


def test_no_block_is_kept(tmp_path: Path) -> None:
    class Blocks:
        """A million scopes, made when they are asked for."""

        def __iter__(self) -> Iterator[NDArray[np.void]]:
            for number in range(20):
                block = scope_rows([Ran(ITER, 0, sm=3)]).repeat(50_000)
                block["cta"] = np.arange(50_000) // 1000 + 50 * number
                block["iteration"] = np.arange(50_000) % 1000
                block["duration_ns"] = block["iteration"] + number
                yield block

    timeline = made_timeline(tmp_path, SCOPES, Blocks(), CTAS)
    tracemalloc.start()
    _, _, iteration = scope_statistics(timeline)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert iteration.count == 1_000_000
    # One block and what is reckoned of it, and at most 24 bytes a scope; the blocks alone would be 88.
    assert peak_bytes < 20e6 + 24 * iteration.count


def test_marks_have_a_count_alone(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("here", "mark", 0)]
    ran = [
        Ran(FUNC, 900, sm=3, self_ns=880, record_ns=30, start_record=0, end_record=9),
        *[Ran(3, 17, sm=3, start_record=at, end_record=at + 1, flags=ScopeFlag.CUT) for at in (1, 3)],
    ]
    alone = [Ran(3, 17, 1, sm=9, record_ns=5)]
    blocks = [scope_rows(rows) for rows in (ran, alone)]
    func, _, _, mark = scope_statistics(made_timeline(tmp_path / "marked", scopes, blocks, CTAS))
    assert mark.count == 3
    *_, never = scope_statistics(made_timeline(tmp_path / "never", scopes, [scope_rows(ran[:1])], CTAS))
    for name in ScopeStatistics.__struct_fields__:
        of_mark, of_none = getattr(mark, name), getattr(never, name)
        if name in ("warps", "sms"):
            assert of_mark.ids.size == of_mark.counts.size == of_mark.totals_ns.size == 0
        elif name == "warps_self_ns":
            assert of_mark.size == of_none.size == 0
        elif name != "count":
            assert of_mark == of_none, name
    assert (func.count, func.total_ns, func.self_ns, func.subtracted_ns) == (1, 900, 880, 30)
