"""The regions of ``ttg.warp_specialize`` in tables, lists and compiled kernels; of small ones see ``cases``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, form_of, read
from insertion_cases import cases
from planning import fixture_view, plan_of, view_of_text
from small_modules import kernel

from kprof_inject.select.candidates import outline
from kprof_inject.select.plan import make_plan, table_json
from kprof_inject.select.selectors import parse_selectors

(IN_LOOPS,) = (case for case in cases("partitions") if case.name.startswith("what another partition runs"))
STORE = "tt.store %p, %x : !tt.ptr<f32>"


SPECIALIZED_FIXTURES = [path for path in fixtures() if "ttg.warp_specialize" in read(path)]


@pytest.mark.parametrize("path", SPECIALIZED_FIXTURES, ids=fixture_id)
def test_the_regions_that_triton_makes(path: Path) -> None:
    plan = make_plan(fixture_view(read(path)), parse_selectors(["partition", "default"]))

    assert len(plan.scopes) >= 2
    assert [s.record for s in plan.scopes] == ["default", *(f"partition[{n}]" for n in range(len(plan.scopes) - 1))]
    assert {s.block for s in plan.scopes} == {"partition"}
    assert all(s.operations > 0 for s in plan.scopes)


def test_the_scope_table_tells_partitions_of_specialized_kernels_alone() -> None:
    table = table_json(plan_of(IN_LOOPS.input, "func", "loop[2]").table)
    plain = table_json(plan_of(kernel(STORE), "func").table)

    assert table["partitions"] == [
        {"name": "default partition", "warps": None, "function": ""},
        {"name": "partition 0", "warps": 4, "function": ""},
        {"name": "partition 1", "warps": 1, "function": ""},
    ]
    assert [(scope["partition"], scope["parent"]) for scope in table["scopes"]] == [(0, -1), (1, -1)]
    assert "partitions" not in plain and "partition" not in plain["scopes"][0]


PRINTED = [path for path in SPECIALIZED_FIXTURES if form_of(path) != "generic"]
COMPILED = sorted((Path(__file__).parent / "partitioned").glob("*.gz"))


@pytest.mark.parametrize("path", [*PRINTED, *COMPILED], ids=lambda path: "-".join(path.parts[-3:]))
def test_the_partition_of_a_scope_is_that_of_the_region_it_stands_in(path: Path) -> None:
    text = read(path)
    plan = make_plan(fixture_view(text), parse_selectors(["func", "loop", "iter", "op(ttng.*)"]))
    assert len(plan.table.partitions) >= 2
    names = [partition.name for partition in plan.table.partitions]

    for scope, site in zip(plan.scopes, plan.sites, strict=True):
        region, closing = "default", "no region is open"
        for line in text[: site.start.offset].splitlines():
            if clause := CLAUSE.match(line):
                region, closing = clause[2], f"{clause[1]}}}"
            elif line.startswith(closing):
                region = "default"
        assert names[scope.partition or 0] == NAMES.get(region, region.replace("partition", "partition "))
        assert scope.parent < 0 or plan.scopes[scope.parent].partition == scope.partition


NAMES = {"default": "default partition"}
CLAUSE = re.compile(r"( +)(default|partition\d+)\b.*\{$")


def test_the_list_says_how_many_warps_run_a_region() -> None:
    what = {candidate.selector: candidate.what for candidate in outline(view_of_text(IN_LOOPS.input))}

    assert (what["default"], what["partition[0]"], what["partition[1]"]) == (
        "region of ttg.warp_specialize",
        "region of ttg.warp_specialize, 4 warps",
        "region of ttg.warp_specialize, 1 warp",
    )


@pytest.mark.parametrize("form", ["", ".generic"])
def test_a_partition_knows_the_function_that_it_was_written_as(form: str) -> None:
    (path,) = FIXTURES.glob(f"3.6.0/cuda-90/gluon_warp_specialized{form}.ttgir*")
    plan = make_plan(fixture_view(read(path)), parse_selectors(["func"]))

    assert [(partition.name, partition.function) for partition in plan.table.partitions] == [
        ("default partition", "_sum_partition"),
        ("partition 0", "_load_partition"),
    ]


@pytest.mark.parametrize("form", ["", ".generic"])
@pytest.mark.parametrize(("function", "region"), [("_sum_partition", "default"), ("_load_partition", "partition[0]")])
def test_a_partition_is_selected_by_its_function_and_so_is_what_is_written_there(
    form: str, function: str, region: str
) -> None:
    (path,) = FIXTURES.glob(f"3.6.0/cuda-90/gluon_warp_specialized{form}.ttgir*")
    view = fixture_view(read(path))
    selectors = [f"func({function})", f"partition({function[:5]}*)", region]
    (written,), (named,), (numbered,) = (make_plan(view, parse_selectors([one])).scopes for one in selectors)

    assert written.name.startswith(f"{function}@")
    assert (named.lines, named.partition) == (numbered.lines, numbered.partition)
    assert written.partition == named.partition and written.lines is not None and named.lines is not None
    assert named.lines[0] <= written.lines[0] <= written.lines[1] <= named.lines[1]
    what = {candidate.selector: candidate.what for candidate in outline(view)}
    assert f"func({function})" in what and what[region].endswith(f", {function}")


def test_what_the_compiler_partitions_was_written_as_no_function() -> None:
    (path,) = FIXTURES.glob("3.6.0/cuda-100/ws_matmul.ttgir")

    assert {p.function for p in make_plan(fixture_view(read(path)), parse_selectors(["func"])).table.partitions} == {""}
