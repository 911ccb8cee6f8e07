"""Partitions of a launch: whose warps, whose scopes, and whose time."""

from __future__ import annotations

from pathlib import Path

import pytest
from buffers import Cta, Entry, Scope, end, save_launch, start
from golden import fixtures, read
from planning import fixture_view, plan_of
from replacing import replace
from snapshots import check
from specialised import save_specialised, specialised_ctas, warps_of_partitions

from kprof_inject.analysis.summary import LaunchSummary, summarise
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.timeline.timeline import Timeline, decode_launch

COMPILED = Path(__file__).parents[1] / "select" / "partitioned"
SPECIALISED = [
    *sorted(COMPILED.glob("*.gz")),
    *(path for path in fixtures() if "ttg.warp_specialize(" in read(path) and "bare" not in path.name),
]
SELECTIONS = [("func", "loop", "iter"), ("loop", "iter"), ("func", "partition", "default", "op(*barrier*)"), ("iter",)]


def planned(path: Path, selectors: tuple[str, ...] = SELECTIONS[0]) -> Plan:
    return make_plan(fixture_view(read(path)), parse_selectors(selectors))


def adds_up(timeline: Timeline, summary: LaunchSummary) -> None:
    """Each partition's self times make its warps' whole time, and nothing takes more than that."""
    cta_ns = int((timeline.ctas["pre_final_ns"] - timeline.ctas["init_ns"]).sum())
    for partition in summary.partitions:
        inside_ns = sum(summary.scopes[index].self_ns or 0 for index in partition.scopes)
        assert partition.whole_ns == cta_ns * len(partition.warps)
        if partition.outside_ns is None:
            assert timeline.records_lost and inside_ns <= partition.whole_ns
        else:
            assert inside_ns + partition.outside_ns == partition.whole_ns
        for scope in (summary.scopes[index] for index in partition.scopes):
            has_share = partition.whole_ns > 0 and scope.total_ns is not None
            assert 0 <= scope.share <= 1 if has_share else scope.share is None
            assert set(scope.warps.ids.tolist()) <= {*partition.warps}


@pytest.mark.parametrize("path", SPECIALISED, ids=lambda path: "-".join(path.parts[-3:]))
def test_each_partition_is_a_tree_that_adds_up(path: Path, tmp_path: Path) -> None:
    for number, selectors in enumerate(SELECTIONS):
        plan = planned(path, selectors)
        timeline = decode_launch(save_specialised(tmp_path / str(number), plan))
        summary = summarise(timeline)

        assert [partition.name for partition in summary.partitions] == [one.name for one in plan.table.partitions]
        for partition, warps in zip(summary.partitions, warps_of_partitions(plan), strict=True):
            assert partition.warps == (warps if partition.scopes else ())
            assert partition.warp_count == len(warps)
        assert sorted(scope for one in summary.partitions for scope in one.scopes) == list(range(len(plan.scopes)))
        adds_up(timeline, summary)


def test_of_selected_warps(tmp_path: Path) -> None:
    plan = planned(COMPILED / "three_partitions.ttgir.gz")
    launch = save_specialised(tmp_path, plan, mode={"warps": [1, 2, 5]})
    timeline = decode_launch(launch)
    summary = summarise(timeline)

    assert [partition.warps for partition in summary.partitions] == [(1, 2), (), (5,)]
    check("timeline/partitions", "\n".join(partition.title for partition in summary.partitions))
    adds_up(timeline, summary)
    assert [summary.scopes[index].share for index in summary.partitions[1].scopes] == [None, None]


@pytest.mark.parametrize("slots", [4, 8, 16])
def test_where_the_ring_lost_records(tmp_path: Path, slots: int) -> None:
    plan = planned(COMPILED / "persistent_matmul.ttgir.gz")
    timeline = decode_launch(save_specialised(tmp_path, plan, slots=slots))

    assert timeline.records_lost > 0
    assert [one.warps for one in timeline.partitions] == warps_of_partitions(plan)
    summary = summarise(timeline)
    adds_up(timeline, summary)
    assert [partition.outside_ns for partition in summary.partitions] == [None] * 3


REGION = ("  scf.for %i = %a to %n step %c  : i32 {", "    tt.store %p, %x : !tt.ptr<f32>", "  }")
_LINES = (
    *("ttg.warp_specialize(%p)", "default {", "  ttg.warp_yield", "}", "partition0(%q: i32) num_warps(4) {"),
    *(*REGION, "  ttg.warp_return", "} : (i32) -> ()"),
    *("ttg.warp_specialize(%p)", "default {", *REGION, "  ttg.warp_yield", "}"),
    *("partition0(%q: i32) num_warps(2) {", *REGION, "  ttg.warp_return", "}"),
    *("partition1(%q: i32) num_warps(1) {", *REGION, "  ttg.warp_return", "} : (i32) -> ()", "tt.return"),
)
TWICE = "\n".join(
    [
        'module attributes {"ttg.num-warps" = 4 : i32} {',
        "  tt.func public @k(%n: i32) {",
        *(f"    {line}" for line in _LINES),
        "  }",
        "}\n",
    ]
)


def test_a_warp_that_runs_a_partition_after_another(tmp_path: Path) -> None:
    plan = plan_of(TWICE, "func", "loop")
    timeline = decode_launch(save_specialised(tmp_path, plan))
    summary = summarise(timeline)

    assert [partition.title for partition in summary.partitions] == [
        "default partition (warps 0-3)",
        "partition 0#0 (warps 4-7)",
        "partition 0#1 (warps 4-5)",
        "partition 1#1 (warp 6)",
    ]
    adds_up(timeline, summary)


def test_without_a_scope_of_the_default_partition(tmp_path: Path) -> None:
    plan = plan_of(TWICE, "partition")
    summary = summarise(decode_launch(save_specialised(tmp_path, plan)))

    assert summary.partitions[0].title == "default partition (4 warps, nothing selected)"
    assert (summary.partitions[0].whole_ns, summary.partitions[0].scopes) == (0, ())


PARTITIONS = [("default partition", 2), ("partition 0", 2)]
SCOPES = [
    Scope("func", "func", partition=0),
    Scope("loop[0]", "loop", partition=1),
    Scope("helper", "loop", partition=None),
]


def ran(scope: int, begin: int, *inner: Entry) -> list[Entry]:
    """A scope of 300 cycles, in the last 200 of which the inner ones may stand."""
    return [start(scope, begin), *inner, end(scope, begin + 300)]


def test_what_several_partitions_run_is_by_itself(tmp_path: Path) -> None:
    inner = [start(2, 1_100_200), end(2, 1_100_280)]
    warps = [ran(0, 1_100_000, *inner)] * 2 + [ran(1, 1_100_000, *inner)] * 2
    cta = Cta(warps, 0, 550_000, 550_200, 550_200)
    timeline = decode_launch(save_launch(tmp_path, SCOPES, [cta], 8, partitions=PARTITIONS))
    summary = summarise(timeline)

    assert [partition.title for partition in summary.partitions] == [
        "default partition (warps 0-1)",
        "partition 0 (warps 2-3)",
        "several partitions (warps 0-3)",
    ]
    helper = summary.scopes[2]
    assert (helper.count, helper.warp_spread, helper.cta_balance) == (4, None, None)
    for partition in summary.partitions[:2]:
        # Of each of its two warps: its own scope with the helper in it.
        of_warps = [summary.scopes[partition.scopes[0]].total_ns, partition.outside_ns]
        assert sum(filter(None, of_warps)) == partition.whole_ns
    assert all(scope.share is not None and scope.share <= 1 for scope in summary.scopes)


def test_a_damaged_record_moves_no_warp_to_another_partition(tmp_path: Path) -> None:
    plan = planned(COMPILED / "three_partitions.ttgir.gz")
    ctas = specialised_ctas(plan)
    (loader,) = warps_of_partitions(plan)[1]
    rows = [list(entries) for entries in ctas[0].warps]
    scope = next(index for index, one in enumerate(plan.scopes) if one.partition == 2)
    rows[loader][3] = rows[loader][3]._replace(scope_id=scope)
    timeline = decode_launch(save_specialised(tmp_path, plan, [replace(ctas[0], warps=rows), *ctas[1:]]))

    assert [one.warps for one in timeline.partitions] == warps_of_partitions(plan)


def test_a_table_of_an_older_version_has_none(tmp_path: Path) -> None:
    launch = save_launch(tmp_path, [replace(scope, partition=None) for scope in SCOPES], [Cta([ran(0, 1_100_000)])], 8)
    timeline = decode_launch(launch)
    summary = summarise(timeline)

    assert timeline.partitions == summary.partitions == ()
    assert list(summary.trees()) == [(None, (0, 1, 2))]
    assert [scope.partition for scope in summary.scopes] == [None] * 3
