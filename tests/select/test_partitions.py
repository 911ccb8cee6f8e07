"""``partition``, ``partition[N]`` and ``default``: the regions of ``ttg.warp_specialize``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, form_of, kernel_of, read
from planning import counts, fixture_view, insertion_of, plan_of, view_of_text
from small_modules import found, kernel, sequence
from snapshots import check

from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates, outline
from kprof_inject.select.plan import Plan, make_plan, table_json
from kprof_inject.select.selectors import parse_selectors

STORE = "tt.store %p, %x : !tt.ptr<f32>"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"
SPECIALIZED = (
    *("ttg.warp_specialize(%p)", "default {", f"  {STORE} @5", "  ttg.warp_yield", "}"),
    *("partition0(%q: i32) num_warps(4) {", "  gpu.barrier @7", "  ttg.warp_return", "}"),
    *("partition1(%q: i32) num_warps(1) {", "  ttg.warp_return", "} : (i32) -> () @4"),
)
GENERIC = (
    *('"ttg.warp_specialize"(%p) <{partitionNumWarps = array<i32: 4, 1>}> ({', f"  {STORE} @5"),
    *('  "ttg.warp_yield"() : () -> ()', "}, {", '  "ttg.warp_specialize.partitions"() ({'),
    *("  ^bb0(%q: i32):", '    "gpu.barrier"() : () -> () @7', '    "ttg.warp_return"() : () -> ()'),
    *("  }, {", "  ^bb0(%q: i32):", '    "ttg.warp_return"() : () -> ()', "  }) : () -> ()", "}) : (i32) -> () @4"),
)
BOTH_FORMS = pytest.mark.parametrize("lines", [SPECIALIZED, GENERIC], ids=["custom", "generic"])


@BOTH_FORMS
def test_each_region_is_a_site(lines: tuple[str, ...]) -> None:
    plan = plan_of(kernel(*lines), "partition", "default")

    assert found(plan) == [
        ("default", "partition", 1, 0),
        ("partition[0]", "partition", 1, 0),
        ("partition[1]", "partition", 0, 0),
    ]
    assert [(s.kind, s.source and s.source.line, s.parent) for s in plan.scopes] == 3 * [("partition", 4, -1)]
    assert counts(plan) == {"partition": 2, "default": 1}


def test_records_stand_inside_the_regions() -> None:
    assert sequence(kernel(*SPECIALIZED), "partition", "default") == (
        "ttg.warp_specialize default [default tt.store default] ttg.warp_yield } "
        "partition0 [partition[0] gpu.barrier partition[0]] ttg.warp_return } "
        "partition1 [partition[1] partition[1]] ttg.warp_return } : (i32) -> () tt.return"
    )


def test_records_stand_behind_the_arguments_of_the_generic_form() -> None:
    assert sequence(kernel(*GENERIC), "partition") == (
        "ttg.warp_specialize tt.store ttg.warp_yield }, { ttg.warp_specialize.partitions "
        "^bb0(%q: i32): [partition[0] gpu.barrier partition[0]] ttg.warp_return }, { "
        "^bb0(%q: i32): [partition[1] partition[1]] ttg.warp_return }) : () -> () }) : (i32) -> () tt.return"
    )


@BOTH_FORMS
def test_a_partition_by_its_number(lines: tuple[str, ...]) -> None:
    assert [s.record for s in plan_of(kernel(*lines), "partition[1]=last").scopes] == ["last"]
    assert plan_of(kernel(*lines), "partition[2]").scopes == ()
    assert plan_of(kernel(*lines), "partition[10]").scopes == ()


def test_scopes_inside_a_partition_are_nested_in_it() -> None:
    text = kernel(*SPECIALIZED[:2], f"  {LOOP}", f"    {STORE}", "  }", *SPECIALIZED[3:])
    plan = plan_of(text, "default", "loop", "iter", "func")

    assert [(s.record, s.parent) for s in plan.scopes] == [("func", -1), ("default", 0), ("loop[0]", 1), ("iter[0]", 2)]


def test_several_warp_specializations_share_the_names() -> None:
    plan = plan_of(kernel(*SPECIALIZED, *SPECIALIZED), "default", "partition[0]")

    assert [s.record for s in plan.scopes] == ["default#0", "partition[0]#0", "default#1", "partition[0]#1"]


def test_the_operation_itself_is_no_partition() -> None:
    plan = plan_of(kernel(*SPECIALIZED), "op(ttg.warp_specialize)", "func")

    assert [(s.record, s.block) for s in plan.scopes] == [
        ("func", "function"),
        ("ttg.warp_specialize", "function"),
    ]


def test_what_holds_the_partitions_in_the_generic_form_gets_no_record() -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(kernel(*GENERIC), "op(ttg.warp_specialize.partitions)")
    check("select/errors", caught.value.render(), "what holds the partitions")


@pytest.mark.parametrize("selector", ["default", "partition", "partition[0]"])
def test_a_kernel_without_warp_specialization_has_none(selector: str) -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(kernel(STORE), selector)

    assert f"'{selector}'" in caught.value.what
    if selector == "default":
        check("select/errors", caught.value.render(), "no partitions")


def test_the_candidates_name_each_region_once() -> None:
    names = candidates(view_of_text(kernel(*SPECIALIZED, *SPECIALIZED)))

    assert names == ("func", "default", "partition[0]", "partition[1]", *names[4:])
    assert not any(name.startswith(("default", "partition")) for name in names[4:])


SPECIALIZED_FIXTURES = [path for path in fixtures() if "ttg.warp_specialize" in read(path)]


@pytest.mark.parametrize("path", SPECIALIZED_FIXTURES, ids=fixture_id)
def test_the_regions_that_triton_makes(path: Path) -> None:
    plan = make_plan(fixture_view(read(path)), parse_selectors(["partition", "default"]))

    assert len(plan.scopes) >= 2
    assert [s.record for s in plan.scopes] == ["default", *(f"partition[{n}]" for n in range(len(plan.scopes) - 1))]
    assert {s.block for s in plan.scopes} == {"partition"}
    assert all(s.operations > 0 for s in plan.scopes)


def test_the_forms_of_a_module_have_the_same_regions() -> None:
    numbers: dict[tuple[Path, str], set[int]] = {}
    for path in SPECIALIZED_FIXTURES:
        plan = make_plan(fixture_view(read(path)), parse_selectors(["partition", "default"]))
        numbers.setdefault((path.parent, kernel_of(path)), set()).add(len(plan.scopes))

    assert any(form_of(path) == "generic" for path in SPECIALIZED_FIXTURES)
    assert all(len(counts) == 1 for counts in numbers.values())


def of_partitions(plan: Plan) -> list[tuple[str, str, int]]:
    """Each scope's record, its partition, and the record of what stands around it."""
    names = [partition.name for partition in plan.table.partitions]
    return [
        (
            s.record,
            "-" if s.partition is None else names[s.partition],
            plan.scopes[s.parent].record if s.parent >= 0 else "-",
        )
        for s in plan.scopes
    ]


IN_LOOPS = (
    *(LOOP, f"  {STORE}", "}", "ttg.warp_specialize(%p)", "default {", f"  {LOOP}", f"    {STORE}", "  }"),
    *("  ttg.warp_yield", "}", "partition0(%q: i32) num_warps(4) {", f"  {LOOP}", f"    {STORE}", "  }"),
    *("  ttg.warp_return", "}", "partition1(%q: i32) num_warps(1) {", f"  {LOOP}", f"    {STORE}", "  }"),
    *("  ttg.warp_return", "} : (i32) -> () @4", LOOP, f"  {STORE}", "}"),
)


def test_what_another_partition_runs_stands_in_nothing_of_the_kernels_own_warps() -> None:
    plan = plan_of(kernel(*IN_LOOPS), "func", "loop", "op(ttg.warp_specialize)")

    assert of_partitions(plan) == [
        ("func", "default partition", "-"),
        ("loop[0]", "default partition", "func"),
        ("ttg.warp_specialize", "default partition", "func"),
        ("loop[1]", "default partition", "ttg.warp_specialize"),
        ("loop[2]", "partition 0", "-"),
        ("loop[3]", "partition 1", "-"),
        ("loop[4]", "default partition", "func"),
    ]


def test_a_loop_around_the_specialization_is_not_around_its_partitions() -> None:
    plan = plan_of(kernel(LOOP, *(f"  {line}" for line in SPECIALIZED), "}"), "loop", "iter", "default", "partition")

    assert of_partitions(plan) == [
        ("loop[0]", "default partition", "-"),
        ("iter[0]", "default partition", "loop[0]"),
        ("default", "default partition", "iter[0]"),
        ("partition[0]", "partition 0", "-"),
        ("partition[1]", "partition 1", "-"),
    ]


def test_each_specialization_has_partitions_of_its_own() -> None:
    plan = plan_of(kernel(*SPECIALIZED, *SPECIALIZED), "func", "partition[0]", "default")

    assert [partition.name for partition in plan.table.partitions] == [
        *("default partition", "partition 0#0", "partition 1#0", "partition 0#1", "partition 1#1")
    ]
    assert of_partitions(plan) == [
        ("func", "default partition", "-"),
        ("default#0", "default partition", "func"),
        ("partition[0]#0", "partition 0#0", "-"),
        ("default#1", "default partition", "func"),
        ("partition[0]#1", "partition 0#1", "-"),
    ]


@BOTH_FORMS
def test_how_many_warps_run_each(lines: tuple[str, ...]) -> None:
    text = kernel(*lines).replace("module {", 'module attributes {"ttg.num-warps" = 8 : i32} {')

    assert [(p.name, p.warps) for p in plan_of(text, "func").table.partitions] == [
        ("default partition", 8),
        ("partition 0", 4),
        ("partition 1", 1),
    ]


def test_warps_are_not_read_out_of_names() -> None:
    region = 'partition0(%q: i32 loc("num_warps(2) {"(#loc))) num_warps(4) {'
    text = kernel(*SPECIALIZED).replace("partition0(%q: i32) num_warps(4) {", region)

    assert [partition.warps for partition in plan_of(text, "func").table.partitions] == [None, 4, 1]


HELPER = """  tt.func private @helper(%n: i32) attributes {noinline = true} {
    scf.for %i = %a to %n step %c  : i32 {
      tt.store %p, %x : !tt.ptr<f32>
    }
    tt.call @inner(%n) : (i32) -> ()
    tt.return
  }
  tt.func private @inner(%n: i32) attributes {noinline = true} {
    scf.for %i = %a to %n step %c  : i32 {
      tt.store %p, %x : !tt.ptr<f32>
    }
    tt.return
  }
"""
CALL = "  tt.call @helper(%n) : (i32) -> ()"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((*SPECIALIZED[:6], CALL, *SPECIALIZED[6:]), "partition 0"),
        ((*SPECIALIZED[:2], CALL, *SPECIALIZED[2:]), "default partition"),
        ((CALL, *SPECIALIZED), "default partition"),
        ((*SPECIALIZED[:6], CALL, *SPECIALIZED[6:9], CALL, *SPECIALIZED[9:]), "-"),
        ((*SPECIALIZED[:6], CALL, *SPECIALIZED[6:], CALL), "-"),
    ],
    ids=["of one", "of the default region", "outside", "of two", "of one and outside"],
)
def test_a_helper_is_of_the_partition_that_calls_it(lines: tuple[str, ...], expected: str) -> None:
    plan = plan_of(kernel(*lines, rest=HELPER), "loop")

    assert [partition for _, partition, _ in of_partitions(plan)] == [expected, expected]


def test_the_scope_table_tells_partitions_of_specialized_kernels_alone() -> None:
    table = table_json(plan_of(kernel(*IN_LOOPS), "func", "loop[2]").table)
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
    what = {candidate.selector: candidate.what for candidate in outline(view_of_text(kernel(*IN_LOOPS)))}

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


def test_what_the_compiler_partitions_was_written_as_no_function() -> None:
    (path,) = FIXTURES.glob("3.6.0/cuda-100/ws_matmul.ttgir")

    assert {p.function for p in make_plan(fixture_view(read(path)), parse_selectors(["func"])).table.partitions} == {""}
