from __future__ import annotations

from pathlib import Path

from async_launches import COMMIT, COPIES, LAST, WAIT, in_order
from replacing import replace
from timelines import cta_rows, incomplete_rows

from kprof_inject.analysis.causal.slopes import executions, last_chain
from kprof_inject.analysis.interpreter.executions import evaluated_kernel
from kprof_inject.capture.scopes import Scope, ScopeTable


def test_the_chain_that_ends_last() -> None:
    """Two slots on SM 0, one on SM 1: CTA 4 ends last, and began when CTA 2 had left."""
    ctas = cta_rows(
        (0, 0, 0, 100, 100), (1, 0, 0, 300, 300), (2, 0, 110, 500, 500), (3, 1, 0, 900, 900), (4, 0, 510, 950, 950)
    )
    assert last_chain(ctas).tolist() == [4, 2, 0]
    assert last_chain(ctas[:4]).tolist() == [3]
    assert last_chain(ctas[:0]).tolist() == []


def test_ctas_of_no_time_make_no_endless_chain() -> None:
    assert last_chain(cta_rows((0, 0, 5, 5, 5), (1, 0, 5, 5, 5))).size == 1


def test_executions_by_records(tmp_path: Path) -> None:
    """A group is committed four times, and waited for once behind the loop."""
    timeline = in_order(tmp_path)
    by_cta, by_chain = executions(timeline.table, evaluated_kernel(timeline.launch), 1, 1, timeline)
    assert by_cta == [4.0, 4.0, 1.0]
    assert by_chain == [4.0, 4.0, 1.0]


def test_executions_by_the_text_where_records_are_missing(tmp_path: Path) -> None:
    timeline = in_order(tmp_path, iterations=2)
    lossy = replace(timeline, incomplete=incomplete_rows({"cta": 0, "records_lost": 4}))
    _, by_chain = executions(timeline.table, evaluated_kernel(timeline.launch), 1, 1, lossy)
    assert by_chain == [4.0, 4.0, 1.0]


def test_without_a_capture_the_grid_tells_how_many_follow_each_other(tmp_path: Path) -> None:
    timeline = in_order(tmp_path)
    ran = evaluated_kernel(replace(timeline.launch, grid=(10, 1, 1)))
    by_cta, by_chain = executions(timeline.table, ran, 10, 4, None)
    assert by_cta == [4.0, 4.0, 1.0]
    assert by_chain == [12.0, 12.0, 3.0]
    assert executions(timeline.table, ran, 10, 10, None)[1] == executions(timeline.table, ran, 10, 0, None)[1] == by_cta


def test_a_loop_is_executed_as_often_as_what_stands_beside_it(tmp_path: Path) -> None:
    timeline = in_order(tmp_path)
    loop = Scope(record="loop", name="loop[0]", kind="loop", label="loop[0]", lines=(10, 14))
    body = Scope(record="iter", name="iter[0]", kind="iter", label="iter[0]", lines=(11, 13))
    by_cta, _ = executions(ScopeTable(scopes=(loop, body)), evaluated_kernel(timeline.launch), 1, 1, None)
    assert by_cta == [1.0, 4.0]


def test_of_what_nobody_can_count_nothing_is_known(tmp_path: Path) -> None:
    text = COPIES.replace("%c0 to %c4", "%c0 to %n").replace("(%p: !tt.ptr<f16>)", "(%p: !tt.ptr<f16>, %n: i32)")
    assert (COMMIT, WAIT, LAST) == (12, 13, 15)
    timeline = in_order(tmp_path)
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(text)
    by_cta, _ = executions(timeline.table, evaluated_kernel(timeline.launch), 1, 1, None)
    assert by_cta == [None, None, 1.0]


def test_what_a_predicate_leaves_out_is_executed_all_the_same(tmp_path: Path) -> None:
    """A dot that is never computed does not tell how often its neighbours are executed."""
    shared = "!ttg.memdesc<64x64xf16, #s, #smem>"
    dot = f"      ttng.tc_gen5_mma %m, %m, %m, %never, %never : {shared}, {shared}, {shared}\n"
    before = "    scf.for %i = %c0 to %c4 step %c1  : i32 {\n"
    timeline = in_order(tmp_path)
    (timeline.launch.kernel.folder / "kernel.ttgir").write_text(
        COPIES.replace(before, f"    %never = arith.constant false\n{before}{dot}")
    )
    op = Scope(record="dot", name="dot", kind="op", label="dot", lines=(12, 12))
    by_cta, _ = executions(ScopeTable(scopes=(op,)), evaluated_kernel(timeline.launch), 1, 1, None)
    assert by_cta == [4.0]
