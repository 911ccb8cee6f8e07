"""The plan's scopes: which encloses which, what they are called, and what is refused."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from durations import assert_linear
from planning import counts, plan_of, view_of_text
from replacing import replace
from small_modules import TWO_RECORDS
from snapshots import check

from kprof_inject.capture.mode import Mode
from kprof_inject.errors import KprofError
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan, make_plan, table_json
from kprof_inject.select.safety import relaunch
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.sites import Site
from kprof_inject.select.spans import Style
from kprof_inject.ttgir.parser import parse

EVERYTHING = ("func", "loop", "iter")
LOOP = "    scf.for %i = %a to %n step %c  : i32 {\n    }\n"


def kernel(*lines: str) -> str:
    return "module {\n  tt.func public @k(%n: i32) {\n" + "".join(lines) + "    tt.return\n  }\n}\n"


def scopes(plan: Plan) -> list[tuple[str, int]]:
    return [(scope.record, scope.parent) for scope in plan.scopes]


def test_scopes_know_the_scope_around_them() -> None:
    text = kernel("    scf.for %i = %a to %n step %c  : i32 {\n", LOOP, LOOP, "    }\n", LOOP)

    assert scopes(plan_of(text, *EVERYTHING)) == [
        ("func", -1),
        ("loop[0]", 0),
        ("iter[0]", 1),
        ("loop[0.0]", 2),
        ("iter[0.0]", 3),
        ("loop[0.1]", 2),
        ("iter[0.1]", 5),
        ("loop[1]", 0),
        ("iter[1]", 7),
    ]
    assert scopes(plan_of(text, "loop[0.1]", "iter[1]", "iter[0]")) == [
        ("iter[0]", -1),
        ("loop[0.1]", 0),
        ("iter[1]", -1),
    ]


def test_a_site_of_two_selectors_is_the_first_ones_that_has_a_name_for_it() -> None:
    plan = plan_of(kernel(LOOP, LOOP), "loop[1]=second", "loop", "loop[0]=first", "loop[0]=too late")

    assert [(scope.name, scope.selector) for scope in plan.scopes] == [
        ("first", "loop[0]=first"),
        ("second", "loop[1]=second"),
    ]
    assert counts(plan) == {"loop[1]=second": 1, "loop": 2, "loop[0]=first": 1, "loop[0]=too late": 1}
    assert Counter(record.name for record in plan.records) == {"first": 2, "second": 2, "kernel body": 2}


def test_of_selectors_without_a_name_for_it_a_site_is_the_first_ones() -> None:
    plan = plan_of(kernel(LOOP, LOOP), "loop", "loop[0]", "op(scf.for)")

    assert [scope.selector for scope in plan.scopes] == ["loop", "op(scf.for)", "loop", "op(scf.for)"]
    assert counts(plan) == {"loop": 2, "loop[0]": 1, "op(scf.for)": 2}


def test_a_site_keeps_the_tags_of_a_selector_that_loses_it_to_one_with_a_name() -> None:
    text = kernel(LOOP).replace("module {", 'module attributes {ttg.target = "cuda:90"} {')
    (scope,) = plan_of(text, "loop --tag first=n", "loop[0]=named --tag second=n").scopes

    assert (scope.name, scope.selector) == ("named", "loop[0]=named --tag second=n")
    assert [(tag.name, tag.record) for tag in scope.tags] == [
        ("first", "named --tag first"),
        ("second", "named --tag second"),
    ]


def test_records_of_one_name_are_numbered() -> None:
    plan = plan_of(kernel(LOOP, LOOP), "loop=work", "iter[1]=work", "func=all")

    assert [(scope.record, scope.name) for scope in plan.scopes] == [
        ("all", "all"),
        ("work#0", "work"),
        ("work#1", "work"),
        ("work#2", "work"),
    ]


def test_a_name_that_looks_like_a_label_is_numbered_with_it() -> None:
    plan = plan_of(kernel(LOOP, LOOP), "loop[0]", "loop[1]=loop[0]")

    assert [scope.record for scope in plan.scopes] == ["loop[0]#0", "loop[0]#1"]


def test_every_record_is_a_start_or_an_end_of_a_scope() -> None:
    plan = plan_of(kernel(LOOP), "func", "loop")

    assert [(record.name, record.is_start, record.line) for record in plan.records] == [
        ("func", True, '    proton.record start "func"'),
        ("loop[0]", True, '    proton.record start "loop[0]"'),
        ("loop[0]", False, '    proton.record end "loop[0]"'),
        ("func", False, '    proton.record end "func"'),
    ]


def test_the_scope_table() -> None:
    text = """\
#line = loc("/a/k.py":9:4)
#call = loc("/a/k.py":20:8)
module {
  tt.func public @k(%n: i32) {
    scf.for %i = %a to %n step %c  : i32 {
    } loc(callsite(#line at #call))
    tt.return
  }
}
"""
    assert table_json(plan_of(text, "loop=main", "func").table) == {
        "kernel": "k",
        "scopes": [
            {
                "record": "func",
                "name": "func",
                "kind": "func",
                "label": "func",
                "selector": "func",
                "function": "k",
                "source": None,
                "called_from": [],
                "parent": -1,
                "crosses": [],
                "block": "function",
                "operations": 1,
                "other_operations": 0,
                "lines": [5, 6],
            },
            {
                "record": "main",
                "name": "main",
                "kind": "loop",
                "label": "loop[0]",
                "selector": "loop=main",
                "function": "k",
                "source": {"file": "/a/k.py", "line": 9, "column": 4},
                "called_from": [{"file": "/a/k.py", "line": 20, "column": 8}],
                "parent": 0,
                "crosses": [],
                "block": "function",
                "operations": 1,
                "other_operations": 0,
                "lines": [5, 6],
            },
        ],
    }


def test_the_scope_table_says_which_scopes_the_next_start_ends() -> None:
    view = view_of_text(kernel(LOOP))
    selectors = parse_selectors(EVERYTHING)
    one, two = (
        table_json(plan.table)["scopes"]
        for plan in (make_plan(view, selectors), make_plan(view, selectors, TWO_RECORDS))
    )

    assert [scope.pop("ended_by_next", None) for scope in one] == [None, None, True]
    assert one == two


def test_the_scope_table_of_a_kernel_says_whether_it_can_run_again() -> None:
    table = plan_of(kernel(LOOP), "loop").table
    known = replace(table, relaunch=relaunch(parse(kernel(LOOP))), most_records=4)

    assert table_json(known).keys() - table_json(table).keys() == {"relaunch", "most_records"}
    assert table_json(known)["most_records"] == 4


def test_where_stores_are_moved_an_iteration_has_two_records() -> None:
    assert Style("runs").for_mode(Mode()) == Style("runs")
    assert Style("runs").for_mode(Mode(sched_stores=True)) == Style("runs", "two")


def test_the_scope_table_names_the_records_around_a_body_that_is_not_selected() -> None:
    assert table_json(plan_of(kernel(LOOP), "loop").table)["body_record"] == "kernel body"
    assert "body_record" not in table_json(plan_of(kernel(LOOP), "loop", "func").table)


def test_the_records_around_a_body_that_is_not_selected_have_a_name_of_their_own() -> None:
    plan = plan_of(kernel(LOOP, LOOP), "loop[0]=kernel body", "loop[1]=kernel body#0")

    assert [scope.record for scope in plan.scopes] == ["kernel body", "kernel body#0"]
    assert plan.table.body_record == "kernel body#1"
    assert Counter(record.name for record in plan.records) == {"kernel body": 2, "kernel body#0": 2, "kernel body#1": 2}


def refusal(text: str, *selectors: str) -> KprofError:
    with pytest.raises(KprofError) as caught:
        plan_of(text, *selectors)
    return caught.value


def test_256_scopes_fit() -> None:
    plan = plan_of(kernel(128 * LOOP), "loop", "iter")

    assert (len(plan.scopes), plan.table.body_record) == (256, "")


def test_work_grows_as_the_number_of_scopes_does(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: Counter[int] = Counter()
    last_end_offset = Site.last_end_offset.fget

    def counting(site: Site) -> int:
        looks[number] += 1
        return int(last_end_offset(site))

    monkeypatch.setattr(Site, "last_end_offset", property(counting))
    for number in (60, 240):
        plan = plan_of(kernel(number * "    %x = tt.load %p : !tt.ptr<i32>\n"), "op(tt.load)")
        assert len(plan.scopes) == number
    assert looks[240] <= 5 * looks[60]


def test_the_last_id_is_for_the_body_that_nobody_selected() -> None:
    one = "    %x = tt.load %p : !tt.ptr<i32>\n"
    bodies = [plan_of(kernel(count * one), "op(tt.load)").table.body_record for count in (255, 256)]

    assert bodies == ["kernel body", ""]


def test_tags_need_ids_too() -> None:
    text = kernel(128 * LOOP).replace("module {", 'module attributes {ttg.target = "cuda:90"} {')

    assert plan_of(text, "loop --tag n=n").table.body_record == ""
    error = refusal(text, "loop --tag n=n --tag m=n")
    assert " 384 scope IDs" in error.what


def test_257_scopes_do_not_fit() -> None:
    error = refusal(kernel(256 * LOOP), "func", "loop", "loop[0]=again")

    assert "(loop: 255, func: 1, loop[0]=again: 1)" in error.what
    check("select/errors", error.render(), "257 scopes")


def test_without_loops_there_is_none_to_select_instead() -> None:
    error = refusal(kernel(*(f"    %x{number} = tt.load %p : !tt.ptr<i32>\n" for number in range(257))), "op(tt.load)")

    assert "(op(tt.load): 257)" in error.what
    check("select/errors", error.render(), "257 loads")


def test_a_file_that_has_records_is_refused() -> None:
    error = refusal(kernel('    proton.record start "mine"\n'), "func")

    assert str(error.where) == "<ttgir>:3:5"
    check("select/errors", error.render(), "a file that has records")


@pytest.mark.parametrize(
    "line", ['%e = proton.allocate_event "mine" : i32', "proton.event start %e : i32", 'proton.mark "mine"']
)
def test_a_file_that_has_events_of_protons_is_refused(line: str) -> None:
    error = refusal(kernel(f"    {line}\n"), "func")

    assert f"({line.removeprefix('%e = ').split()[0]})" in error.what
    assert error.hint == "remove it from the kernel"


@pytest.mark.parametrize("selectors", [EVERYTHING, ("parts",)])
def test_more_scopes_than_there_are_ids_are_refused_in_linear_time(selectors: tuple[str, ...]) -> None:
    loop = LOOP.replace("{\n", "{\n      %x = tt.load %p : !tt.ptr<f32>\n")

    @cache
    def view_of(count: int) -> ModuleView:
        return view_of_text(kernel(count * loop))

    def refuse(count: int) -> None:
        with pytest.raises(KprofError, match=f"{count}\\)|{count}, "):
            make_plan(view_of(count), parse_selectors(selectors))

    assert_linear(refuse, few=400)


HELPED = """\
module {
  tt.func public @k() {
    tt.call @helper() : () -> ()
    tt.call @helper() : () -> ()
    tt.return
  }
  tt.func private @helper() {
%s    tt.return
  }
}
"""


def test_a_helpers_scopes_count_for_each_call() -> None:
    assert len(plan_of(HELPED % (128 * LOOP), "loop").scopes) == 128

    error = refusal(HELPED % (129 * LOOP), "loop")
    assert " 258 scope IDs" in error.what and "(loop: 258)" in error.what


def test_a_scope_counts_for_each_of_its_ends() -> None:
    returns = "    cf.cond_br %c, ^bb1, ^bb2\n  ^bb1:\n    tt.return\n  ^bb2:\n"

    assert len(plan_of(kernel(254 * LOOP, returns), "func", "loop").scopes) == 255
    error = refusal(kernel(255 * LOOP, returns), "func", "loop")
    assert " 257 scope IDs" in error.what and "(loop: 255, func: 2)" in error.what


HELPER_FIRST = """\
module {
  tt.func private @helper() {
    scf.for %i = %a to %n step %c  : i32 {
    }
    tt.return
  }
  tt.func public @k() {
    tt.call @helper() : () -> ()
    tt.return
  }
}
"""


@pytest.mark.parametrize("text", [HELPED % LOOP, HELPER_FIRST])
def test_the_body_is_the_kernels_wherever_its_helper_stands(text: str) -> None:
    plan = plan_of(text, "loop")

    assert [(scope.function, scope.record) for scope in plan.scopes] == [("helper", "loop[0]")]
    begin, end = (record.point.offset for record in plan.records if record.name == "kernel body")
    assert text[:begin].endswith("  tt.func public @k() {\n")
    assert text[begin:end].endswith("    tt.call @helper() : () -> ()\n")


def test_helpers_are_inlined_only_if_something_is_recorded() -> None:
    assert plan_of(HELPED % LOOP, "loop").inlined == ("helper",)
    assert plan_of(HELPED % "", "loop").inlined == ()
    assert plan_of(kernel(LOOP), "loop").inlined == ()


def test_a_module_without_a_kernel_has_no_body_to_record() -> None:
    plan = plan_of(HELPER_FIRST[: HELPER_FIRST.index("  tt.func public")] + "}\n", "loop")

    assert [record.name for record in plan.records] == ["loop[0]"] * 2
    assert plan.table.body_record == ""


def test_an_iteration_is_not_the_kernels_body() -> None:
    plan = plan_of(kernel(LOOP), "iter")

    assert (plan.sites[0].fills_block, plan.table.body_record) == (True, "kernel body")


def test_what_nothing_is_inserted_into_is_not_refused() -> None:
    plan = plan_of(HELPED % "", "loop", "other/func")

    assert (plan.table.kernel, plan.scopes, plan.records, counts(plan)) == ("k", (), (), {})


def test_a_file_with_records_is_refused_only_if_something_is_selected() -> None:
    text = kernel('    proton.record start "a"\n', '    proton.record end "a"\n')
    assert plan_of(text, "loop").scopes == ()
    with pytest.raises(KprofError):
        plan_of(text, "func")
