"""What each selector finds in a module."""

from __future__ import annotations

import re

import pytest
from planning import counts, plan_of, view_of_text
from small_modules import FILE, kernel
from snapshots import check

from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.sites import Site
from kprof_inject.ttgir.locations import SourcePoint

LOOPS = """\
#line10 = loc("/src/kernels/add.py":10:4)
#line11 = loc("/src/kernels/add.py":11:8)
#line14 = loc("/src/kernels/add.py":14:12)
#line20 = loc("/src/kernels/add.py":20:4)
#helper = loc("/lib/standard.py":11:8)
module {
  tt.func public @add_kernel(%n: i32) {
    scf.for %i = %a to %n step %c  : i32 {
      scf.for %j = %a to %n step %c  : i32 {
      } loc("j"(#line11))
      scf.if %odd {
        tt.store %p, %i : !tt.ptr<i32> loc(#line14)
      } else {
        %0 = scf.while (%k = %n) : (i32) -> i32 {
          scf.condition(%more) %k : i32
        } do {
        ^bb0(%k: i32):
          scf.yield %k : i32
        } loc(#line14)
      } loc(unknown)
    } loc(#line10)
    scf.for %i = %a to %n step %c  : i32 {
    } loc(callsite(#helper at #line20))
    tt.return loc(unknown)
  } loc(#line10)
}
"""


def sites(text: str, *selectors: str) -> list[Site]:
    plan = plan_of(text, *selectors)
    return list(plan.sites)


def labels(text: str, *selectors: str) -> list[str]:
    return [site.label for site in sites(text, *selectors)]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("func", ["func"]),
        ("loop", ["loop[0]", "loop[0.0]", "loop[0.1]", "loop[1]"]),
        ("iter", ["iter[0]", "iter[0.0]", "iter[0.1]", "iter[1]"]),
        ("loop[0]", ["loop[0]"]),
        ("loop[0.1]", ["loop[0.1]"]),
        ("iter[1]", ["iter[1]"]),
        ("loop[2]", []),
        ("loop[0.2]", []),
        ("loop[0.0.0]", []),
    ],
)
def test_functions_and_loops_by_path(selector: str, found: list[str]) -> None:
    assert labels(LOOPS, selector) == found


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("loop@10", ["loop[0]"]),
        ("iter@14", ["iter[0.1]"]),
        ("loop@11", ["loop[0.0]"]),
        ("iter@11", ["iter[0.0]"]),
        ("loop@add.py:11", ["loop[0.0]"]),
        ("loop@kernels/add.py:11", ["loop[0.0]"]),
        ("loop@/src/kernels/add.py:11", ["loop[0.0]"]),
        ("loop@standard.py:11", ["loop[1]"]),
        ("loop@add.py:20", []),
        ("loop@dd.py:11", []),
        ("loop@other/add.py:11", []),
        ("loop@12", []),
    ],
)
def test_loops_by_source_line(selector: str, found: list[str]) -> None:
    assert labels(LOOPS, selector) == found


def test_a_loop_s_line_without_a_file_is_that_of_a_helper_where_the_kernel_has_none() -> None:
    text = LOOPS.replace('"/lib/standard.py":11', '"/lib/standard.py":12')

    assert labels(text, "loop@11") == ["loop[0.0]"]
    assert labels(text, "loop@12") == ["loop[1]"]
    assert labels(text, "iter@12") == ["iter[1]"]


def test_several_selectors_find_what_each_finds() -> None:
    plan = plan_of(LOOPS, "loop@11", "func", "iter[0.0]", "loop[7]")

    assert plan.table.kernel == "add_kernel"
    assert counts(plan) == {"loop@11": 1, "func": 1, "iter[0.0]": 1}


def test_a_site_knows_its_source_line() -> None:
    inner = sites(LOOPS, "loop[0.0]")[0]

    assert (inner.kind, inner.function) == ("loop", "add_kernel")
    assert inner.source == SourcePoint("/src/kernels/add.py", 11, 8)
    assert inner.called_from == ()


def test_an_inlined_site_knows_its_own_line_and_its_call() -> None:
    inlined = sites(LOOPS, "iter[1]")[0]

    assert (inlined.kind, inlined.function) == ("iter", "add_kernel")
    assert inlined.source == SourcePoint("/lib/standard.py", 11, 8)
    assert inlined.called_from == (SourcePoint("/src/kernels/add.py", 20, 4),)


def test_without_locations_there_are_paths_and_no_lines() -> None:
    text = "module {\n  tt.func @k() {\n    scf.for %i = %a to %n step %c  : i32 {\n    }\n    tt.return\n  }\n}\n"

    assert labels(text, "loop[0]") == ["loop[0]"]
    assert labels(text, "loop@3") == []
    assert [site.source for site in sites(text, "func", "loop", "iter")] == [None, None, None]


def test_loops_are_found_in_every_region_that_runs_as_a_block() -> None:
    loop = "scf.for %i = %a to %n step %c  : i32 {\n}\n"
    text = (
        "module {\ntt.func @k() {\n"
        f"scf.if %c {{\n{loop}}} else {{\n{loop}}}\n"
        f"scf.execute_region {{\n{loop}scf.yield\n}}\n"
        f"scf.while : () -> () {{\n{loop}scf.condition(%c)\n}} do {{\n{loop}scf.yield\n}}\n"
        f"ttg.warp_specialize()\ndefault {{\n{loop}ttg.warp_yield\n}}\n"
        f"partition0() num_warps(4) {{\n{loop}ttg.warp_return\n}} : () -> ()\n"
        f"cf.br ^bb1\n^bb1:\n{loop}tt.return\n"
        "}\n}\n"
    )

    assert labels(text, "loop") == [
        "loop[0]",
        "loop[1]",
        "loop[2]",
        "loop[3]",
        "loop[3.0]",
        "loop[3.1]",
        "loop[4]",
        "loop[5]",
        "loop[6]",
    ]


def test_a_loop_in_a_region_that_runs_per_element_gets_no_site() -> None:
    text = """\
module {
  tt.func @k() {
    %0 = "tt.map_elementwise"(%x) <{pack = 1 : i32}> ({
    ^bb0(%e: i32):
      scf.for %i = %a to %n step %c  : i32 {
      }
      tt.map_elementwise.return %e : i32
    }) : (tensor<128xi32>) -> tensor<128xi32>
    tt.return
  }
}
"""
    plan = plan_of(text, "func", "loop", "iter")

    assert [scope.record for scope in plan.scopes] == ["func"]
    missed = [missed for selection in plan.selections for missed in selection.findings.missed]
    assert [one.operation.name for one in missed] == ["scf.for", "scf.for"]
    assert {one.reason.split(", ")[0] for one in missed} == {"inside tt.map_elementwise"}
    assert candidates(view_of_text(text)) == ("func", "op(tt.map_elementwise)")


def test_a_loop_without_a_body_is_refused() -> None:
    with pytest.raises(KprofError) as caught:
        sites(
            'module {\n  tt.func @k() {\n    "scf.for"(%a, %n, %c) : (i32, i32, i32) -> ()\n    tt.return\n  }\n}\n',
            "iter",
        )

    check("select/errors", caught.value.render(), "a loop without a body")
    assert str(caught.value.where) == "<ttgir>:3:5"


def test_func_means_the_kernel_and_not_its_helpers() -> None:
    text = """\
module {
  tt.func private @helper() {
    tt.return
  }
  tt.func public @kernel() {
    tt.return
  }
}
"""
    assert [function.symbol for function in view_of_text(text).functions] == ["helper", "kernel"]
    assert [site.function for site in sites(text, "func")] == ["kernel"]
    assert view_of_text(text).kernel == "kernel"


def test_a_function_that_never_returns_is_refused() -> None:
    with pytest.raises(KprofError) as caught:
        sites("module {\n  tt.func @spin() {\n    cf.br ^bb1\n  ^bb1:\n    cf.br ^bb1\n  }\n}\n", "func")

    assert str(caught.value.where) == "<ttgir>:2:3"
    check("select/errors", caught.value.render(), "a function that never returns")


def test_a_function_without_a_name_is_refused() -> None:
    with pytest.raises(KprofError) as caught:
        sites("module {\n  tt.func () {\n    tt.return\n  }\n}\n", "func")

    check("select/errors", caught.value.render(), "a function without a name")
    assert str(caught.value.where) == "<ttgir>:2:3"


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("tt.func @k(%x: i32) {", "k"),
        ("tt.func public @a.b$c-1_() attributes {noinline = false} {", "a.b$c-1_"),
        ('tt.func public @"a kernel"() {', "a kernel"),
        ('"tt.func"() <{function_type = () -> (), sym_name = "generic", sym_visibility = "public"}> ({', "generic"),
    ],
)
def test_the_name_of_the_kernel(signature: str, name: str) -> None:
    assert plan_of(f"module {{\n  {signature}\n    tt.return\n  }}\n}}\n", "func").table.kernel == name


def test_the_candidates_are_selectors_that_find_something() -> None:
    found = candidates(view_of_text(LOOPS))

    assert found == (
        "func",
        "loop[0]",
        "iter[0]",
        "loop[0.0]",
        "iter[0.0]",
        "loop[0.1]",
        "iter[0.1]",
        "loop[1]",
        "iter[1]",
        "func(standard.py:11)",
        "op(scf.if)",
        "op(tt.store)",
    )
    assert all(labels(LOOPS, selector) for selector in found)


def test_covered_are_the_operations_that_the_sites_span() -> None:
    text = kernel("tt.load %p", "scf.for %i = %a to %n step %c : i32 {", "  tt.load %p", "}", "tt.return")
    of_loads, of_all = (plan_of(text, selector).selections[0].findings for selector in ("op(tt.load)", "op(*)"))
    loads = {found.start() for found in re.finditer(r"tt\.load", text)}

    assert of_loads.covered == loads
    assert [missed.operation.name for missed in of_all.missed] == ["tt.return"]
    assert of_all.covered == loads | {text.index("scf.for")}


def test_a_site_of_lines_begins_at_the_first_column_of_the_first() -> None:
    (site,) = sites(kernel("tt.load %p @8", "tt.store %p, %x @9"), "line(7-9)")
    assert site.source == SourcePoint(FILE, 7, 0)
