"""How the CTAs' time is split by their loops."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from buffers import Scope
from msgspec.structs import astuple
from replacing import replace
from timelines import Ran, cta_rows, incomplete_rows, made_timeline, scope_rows

from kprof_inject.timeline.phases import LOOPS, Phases, PhaseSums, outermost
from kprof_inject.timeline.timeline import Timeline

SCOPES = [Scope("func"), Scope("outer", "loop", 0), Scope("inner", "loop", 1), Scope("second", "loop", 0)]
FUNC, OUTER, INNER, SECOND = range(4)
# No scope in a phase.
NOTHING = (None, 0)
# Not in the order of their numbers, as the device starts them.
CTAS = cta_rows((7, 0, 1000, 2000, 2100), (2, 1, 1500, 3500, 3600))


def phases_of(timeline: Timeline) -> Phases | None:
    sums = PhaseSums(timeline)
    for block in timeline.blocks():
        sums.add(block)
    return sums.phases()


def phases(folder: Path, *blocks: Sequence[Ran], scopes: Sequence[Scope] = SCOPES, **changes: object) -> Phases | None:
    return phases_of(made_timeline(folder, scopes, [scope_rows(rows) for rows in blocks], CTAS, **changes))


def of_whole(found: Phases | None) -> tuple[object, ...] | None:
    """All but what lies in the loops."""
    return None if found is None else astuple(found)[:10]


def ran(scope: int, cta: int, begin_ns: int, end_ns: int, warp: int = 0) -> Ran:
    return Ran(scope, end_ns - begin_ns, cta, warp, start_ns=begin_ns)


def test_from_the_begin_of_a_cta_to_its_first_loop_and_from_its_last_to_the_end(tmp_path: Path) -> None:
    rows = [ran(FUNC, 7, 1010, 1990), ran(OUTER, 7, 1100, 1400), ran(INNER, 7, 1100, 1300), ran(SECOND, 7, 1500, 1800)]
    assert of_whole(phases(tmp_path, rows)) == (1, 1000, 100, 200, OUTER, SECOND, *NOTHING, *NOTHING)


def test_each_warp_of_each_cta_counts(tmp_path: Path) -> None:
    first = [ran(OUTER, 7, 1100, 1400, warp) for warp in range(2)]
    second = [ran(OUTER, 2, 1700, 1900), ran(SECOND, 2, 2000, 3400), ran(SECOND, 2, 2000, 3100, 1)]
    found = phases(tmp_path, first, second)
    assert of_whole(found) == (4, 6000, 100 + 100 + 200 + 500, 600 + 600 + 100 + 100, OUTER, OUTER, *NOTHING, *NOTHING)
    assert (found.before_share, found.after_share) == (900 / 6000, 1400 / 6000)


def test_a_warp_that_is_done_early_waits_for_the_others(tmp_path: Path) -> None:
    """Of the kernel's end nothing comes before the last warp has left its loop, nor any scope of it."""
    scopes = [*SCOPES, Scope("store", "marker", FUNC)]
    rows = [ran(OUTER, 7, 1100, 1200), ran(4, 7, 1200, 1300), ran(OUTER, 7, 1100, 1950, 1), ran(4, 7, 1950, 1990, 1)]
    assert of_whole(phases(tmp_path, rows, scopes=scopes)) == (2, 2000, 200, 100, OUTER, OUTER, *NOTHING, 4, 40)


def test_records_around_a_body_that_nobody_selected_do_as_well(tmp_path: Path) -> None:
    rows = [ran(0, 7, 1100, 1400)]
    timeline = made_timeline(tmp_path, [Scope("loop", "loop")], [scope_rows(rows)], CTAS)
    assert phases_of(timeline) is None
    recorded = replace(timeline, table=replace(timeline.table, body_record="kernel body"))
    assert of_whole(phases_of(recorded)) == (1, 1000, 100, 600, 0, 0, *NOTHING, *NOTHING)


def test_iterations_alone_show_where_their_loop_is(tmp_path: Path) -> None:
    scopes = [Scope("func"), Scope("iter[0]", "iter", 0)]
    rows = [ran(1, 7, 1200, 1300), ran(1, 7, 1300, 1400), ran(1, 7, 1400, 1700)]
    assert of_whole(phases(tmp_path, rows, scopes=scopes)) == (1, 1000, 200, 300, 1, 1, *NOTHING, *NOTHING)


def test_without_a_scope_around_all_nobody_knows_what_lies_on_which_side_of_the_loops(tmp_path: Path) -> None:
    rows = [ran(0, 7, 1100, 1400)]
    assert phases(tmp_path / "none", rows, scopes=[Scope("loop[0]", "loop")]) is None
    # Of a helper that was called.
    assert (
        phases(tmp_path / "call", [ran(1, 7, 1100, 1400)], scopes=[Scope("dot@7"), Scope("loop[0]", "loop", 0)]) is None
    )
    assert phases(tmp_path / "body", [ran(1, 7, 1100, 1400)], scopes=[Scope("func"), Scope("loop[0]", "loop", 0)])


def test_what_was_recorded_of_the_time_before_and_after(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("setup", "marker", FUNC), Scope("load", "marker", 4), Scope("store", "marker", FUNC)]
    rows = [
        ran(FUNC, 7, 1010, 1990),
        ran(4, 7, 1020, 1090),
        ran(5, 7, 1020, 1060),
        ran(OUTER, 7, 1100, 1400),
        # Between the loops, and around the last.
        ran(6, 7, 1400, 1500),
        ran(4, 7, 1500, 1900),
        ran(SECOND, 7, 1510, 1890),
        ran(6, 7, 1900, 1980),
    ]
    of_another_warp = [ran(5, 7, 1020, 1900, 1)]
    found = phases(tmp_path, rows + of_another_warp, scopes=scopes)
    assert of_whole(found) == (1, 1000, 100, 110, OUTER, SECOND, 4, 70, 6, 80)


def test_a_record_outside_of_its_cta_takes_no_time_away(tmp_path: Path) -> None:
    assert of_whole(phases(tmp_path, [ran(OUTER, 7, 990, 2010)])) == (1, 1000, 0, 0, OUTER, OUTER, *NOTHING, *NOTHING)


def test_of_warps_that_lack_records_the_first_loop_is_unknown(tmp_path: Path) -> None:
    rows = [ran(OUTER, 7, 1100, 1400, warp) for warp in range(2)]
    lost = incomplete_rows({"cta": 7, "warp": 1, "records_written": 9, "records_lost": 1})
    assert of_whole(phases(tmp_path, rows, incomplete=lost)) == (1, 1000, 100, 600, OUTER, OUTER, *NOTHING, *NOTHING)


@pytest.mark.parametrize("scopes", [[Scope("func")], [Scope("here", "mark")], SCOPES], ids=["func", "mark", "loops"])
def test_without_a_loop_there_are_none(tmp_path: Path, scopes: list[Scope]) -> None:
    assert phases(tmp_path, [ran(FUNC, 7, 1010, 1990)], scopes=scopes) is None


def test_what_records_take_is_in_no_phase(tmp_path: Path) -> None:
    """Of ten records that take 10 ns each, two stand before the first loop, five in the loops, one between them."""
    rows = [
        Ran(FUNC, 880, 7, start_ns=1010, record_ns=100, start_record=0, end_record=11),
        Ran(OUTER, 270, 7, start_ns=1100, record_ns=30, start_record=2, end_record=5),
        Ran(SECOND, 280, 7, start_ns=1500, record_ns=20, start_record=6, end_record=8),
    ]
    found = phases(tmp_path, rows)
    assert found is not None
    # 100 ns in all: 50 in the loops, and of the 50 outside six records have a part each.
    assert (found.whole_ns, found.loops_ns, found.records_ns) == (1000, 550, 100)
    assert (found.before_ns, found.after_ns) == (100 - 17, 200 - 25)
    assert sum((found.before_ns, found.loops_ns, found.after_ns, found.records_ns, found.rest_ns)) == found.whole_ns


def test_the_outermost_loop_around_each_scope(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("work", "marker", INNER), Scope("other iter", "iter"), Scope("other", "loop", 5)]
    table = made_timeline(tmp_path, scopes, [], CTAS).table
    assert outermost(table, lambda scope: scope.kind in LOOPS).tolist() == [-1, OUTER, OUTER, SECOND, OUTER, 5, 5]


def test_a_scope_that_touches_a_loop_is_before_or_after_it(tmp_path: Path) -> None:
    scopes = [*SCOPES, Scope("load", "marker", FUNC), Scope("store", "marker", FUNC)]
    load, store = len(SCOPES), len(SCOPES) + 1
    rows = [ran(FUNC, 7, 1010, 1990), ran(load, 7, 1020, 1100), ran(OUTER, 7, 1100, 1400), ran(store, 7, 1400, 1500)]
    assert of_whole(phases(tmp_path, rows, scopes=scopes)) == (1, 1000, 100, 600, OUTER, OUTER, load, 80, store, 100)
