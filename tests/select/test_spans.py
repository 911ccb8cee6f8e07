"""From the operations of one line to scopes: blocks, the operations that count, runs, and what is left out."""

from __future__ import annotations

import pytest
from golden import FIXTURES, read
from planning import fixture_view, insertion_of, plan_of, view_of_text
from small_modules import found, kernel, missed, sequence

from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Spread, in_one_piece, in_runs
from kprof_inject.select.style import Style

LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"
INDEX = "%i = arith.addi %n, %n : i32"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"


def in_the_runs(text: str, *selectors: str) -> Plan:
    return make_plan(view_of_text(text), parse_selectors(selectors), Style(in_runs))


# ---- one block -------------------------------------------------------------------------------------------


def test_a_scope_spans_what_stands_between() -> None:
    text = kernel(f"{LOAD} @5", f"{INDEX} @6", f"{STORE} @7", f"{STORE} @5")

    assert sequence(text, "line(5)=a") == "[a tt.load arith.addi tt.store tt.store a] tt.return"
    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 2, 2)]


def test_operations_inside_those_of_a_line_count_as_the_lines_or_others() -> None:
    text = kernel(f"{LOOP}", f"  {STORE} @5", f"  {STORE} @6", "} @5")

    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 2, 1)]


def test_index_arithmetic_is_left_out_beside_work() -> None:
    text = kernel(f"{INDEX} @5", f"{STORE} @6", f"{LOAD} @5", f"{INDEX} @5", f"{STORE} @5", f"{INDEX} @5")
    plan = plan_of(text, "line(5)=a")

    assert sequence(text, "line(5)=a") == "arith.addi tt.store [a tt.load arith.addi tt.store a] arith.addi tt.return"
    assert found(plan) == [("a", "function", 3, 0)]
    assert missed(plan) == 2 * [("arith.addi", "index arithmetic elsewhere")]


def test_index_arithmetic_alone_is_spanned() -> None:
    text = kernel(f"{INDEX} @5", f"{STORE} @6", f"{INDEX} @5")

    assert sequence(text, "line(5)=a") == "[a arith.addi tt.store arith.addi a] tt.return"


@pytest.mark.parametrize(
    "operation",
    [
        "%0 = tt.load %p : !tt.ptr<f32>",
        "ttg.async_commit_group",
        "%0 = ttg.async_wait %t {num = 0 : i32}",
        "%0 = tt.dot %a, %b, %c : tensor<16x16xf16, #d> * tensor<16x16xf16, #e> -> tensor<16x16xf32, #m>",
        "gpu.barrier",
        "tt.call @helper() : () -> ()",
        "%0 = arith.mulf %a, %b : tensor<128xf32, #blocked>",
        "%0 = math.exp2 %a : tensor<128x!tt.ptr<f32>, #b>, tensor<16xbf16, #b>",
        "%0 = tt.fp_to_fp %a : tensor<16xf8E4M3FN, #b> -> tensor<16xf16, #b>",
        "%0 = ttg.local_alloc %x : (tensor<16xf16, #b>) -> !ttg.memdesc<16xf16, #s, #smem>",
        "%0 = ttg.convert_layout %x : tensor<16xi32, #a> -> tensor<16xi32, #b>",
        "unknown.operation",
    ],
)
def test_what_does_work_is_what_a_scope_reaches_for(operation: str) -> None:
    text = kernel(f"{INDEX} @5", f"{operation} @5", f"{INDEX} @5")

    assert sequence(text, "line(5)=a").split()[0] == "arith.addi"
    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 1, 0)]


@pytest.mark.parametrize(
    "operation",
    [
        "%0 = arith.constant dense<0.0> : tensor<128xf32, #blocked>",
        "%0 = arith.mulf %a, %b : f32",
        "%0 = arith.muli %a, %b : tensor<128xi32, #blocked>",
        "%0 = tt.splat %p : !tt.ptr<f32> -> tensor<128x!tt.ptr<f32>, #blocked>",
        "%0 = tt.get_program_id x : i32",
        "%0 = ttg.local_alloc : () -> !ttg.memdesc<3x16xf16, #s, #smem, mutable>",
        "%0 = ttg.memdesc_index %b[%i] : !ttg.memdesc<3x16xf16, #s> -> !ttg.memdesc<16xf16, #s>",
    ],
)
def test_what_computes_addresses_is_not(operation: str) -> None:
    text = kernel(f"{operation} @5", f"{STORE} @5", f"{operation} @5")

    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 1, 0)]


def test_the_end_of_a_block_stays_behind_the_scope() -> None:
    text = kernel(f"{LOOP}", f"  {STORE} @5", "  scf.yield @5", "} @9")

    assert sequence(text, "line(5)=a") == "scf.for [a tt.store a] scf.yield } tt.return"
    assert missed(plan_of(text, "line(5)=a")) == []


# ---- several blocks --------------------------------------------------------------------------------------


def test_before_inside_and_behind_a_loop() -> None:
    text = kernel(
        *(f"{LOAD} @5", f"{STORE} @6", f"{STORE} @5", f"{INDEX} @5"),
        *(LOOP, f"  {LOAD} @5", "} @4"),
        *(f"{STORE} @6", f"{STORE} @5", LOOP, f"  {STORE} @5", "} @4", f"{LOAD} @5"),
    )
    plan = plan_of(text, "line(5)=a")

    assert sequence(text, "line(5)=a") == (
        "[a#0 tt.load tt.store tt.store a#0] arith.addi scf.for [a#1 tt.load a#1] } "
        "tt.store [a#2 tt.store a#2] scf.for [a#3 tt.store a#3] } [a#4 tt.load a#4] tt.return"
    )
    assert found(plan) == [
        ("a#0", "prologue", 2, 1),
        ("a#1", "body", 1, 0),
        ("a#2", "epilogue", 1, 0),
        ("a#3", "body", 1, 0),
        ("a#4", "epilogue", 1, 0),
    ]
    assert missed(plan) == [("arith.addi", "index arithmetic elsewhere")]


def test_a_loop_of_the_same_line_is_spanned_whole() -> None:
    text = kernel(f"{LOAD} @5", LOOP, f"  {LOAD} @5", f"  {LOAD} @6", "} @5", f"{STORE} @5")

    assert sequence(text, "line(5)=a") == "[a tt.load scf.for tt.load tt.load } tt.store a] tt.return"
    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 4, 1)]


def test_a_loop_that_holds_nothing_of_the_line_is_spanned_too() -> None:
    text = kernel(f"{LOAD} @5", LOOP, f"  {LOAD} @6", "} @4", f"{STORE} @5")

    assert found(plan_of(text, "line(5)=a")) == [("a", "function", 2, 2)]


@pytest.mark.parametrize("spread", [in_one_piece, in_runs])
def test_each_branch_has_a_scope_of_its_own(spread: Spread) -> None:
    text = kernel(
        *(f"{LOAD} @5", "%r = scf.if %c -> (i32) {", f"  {STORE} @5", "  scf.yield %n : i32 @5"),
        *("} else {", f"  {LOAD} @5", "  scf.yield %n : i32 @5", "} @4", f"{STORE} @5"),
    )
    plan = make_plan(view_of_text(text), parse_selectors(["line(5)=a"]), Style(spread))

    assert sequence(text, "line(5)=a", style=Style(spread)) == (
        "[a#0 tt.load a#0] scf.if [a#1 tt.store a#1] scf.yield } else { [a#2 tt.load a#2] scf.yield } "
        "[a#3 tt.store a#3] tt.return"
    )
    assert [block for _, block, _, _ in found(plan)] == ["function", "branch", "branch", "function"]


def test_both_regions_of_a_while() -> None:
    text = kernel(
        *("scf.while : () -> () {", "  %m = tt.load %p : !tt.ptr<i1> @5", "  scf.condition(%m) @5"),
        *("} do {", f"  {STORE} @5", "  scf.yield", "} @4"),
    )

    assert sequence(text, "line(5)=a") == (
        "scf.while [a#0 tt.load a#0] scf.condition } do { [a#1 tt.store a#1] scf.yield } tt.return"
    )
    assert found(plan_of(text, "line(5)=a")) == [("a#0", "body", 1, 0), ("a#1", "body", 1, 0)]


def test_blocks_of_a_function_are_apart() -> None:
    text = kernel(
        *(f"{LOAD} @5", "cf.cond_br %c, ^bb1, ^bb2 @5"),
        *("^bb1:  // pred: ^bb0", f"{STORE} @5", "tt.return", "^bb2:  // pred: ^bb0", f"{LOAD} @5", f"{STORE} @5"),
    )

    assert sequence(text, "line(5)=a").replace(":  // pred: ^bb0", "") == (
        "[a#0 tt.load a#0] cf.cond_br ^bb1 [a#1 tt.store a#1] tt.return ^bb2 [a#2 tt.load tt.store a#2] tt.return"
    )
    assert {block for _, block, _, _ in found(plan_of(text, "line(5)=a"))} == {"function"}


def test_regions_of_warp_specialize() -> None:
    text = kernel(
        *("ttg.warp_specialize(%p)", "default {", f"  {STORE} @5", "  ttg.warp_yield", "}"),
        *("partition0(%q: i32) num_warps(4) {", f"  {LOAD} @5", "  ttg.warp_return", "} : (i32) -> () @4"),
    )

    assert [scope[:2] for scope in found(plan_of(text, "line(5)=a"))] == [("a#0", "partition"), ("a#1", "partition")]


REDUCE = ('%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({', "^bb0(%l: f32, %m: f32):")
REDUCED = ("  tt.reduce.return %s : f32 @5", "}) : (tensor<16xf32, #b>) -> f32")


def test_what_is_lowered_once_per_element_is_left_out() -> None:
    text = kernel(*REDUCE, "  %s = arith.addf %l, %m : f32 @5", f"{REDUCED[0]}", f"{REDUCED[1]} @6", f"{STORE} @5")
    plan = plan_of(text, "line(5)=a")

    assert found(plan) == [("a", "function", 1, 0)]
    assert [(name, reason.split(", ")[0]) for name, reason in missed(plan)] == [("arith.addf", "inside tt.reduce")]


def test_what_is_lowered_once_per_element_is_covered_with_the_operation_around_it() -> None:
    text = kernel(*REDUCE, "  %s = arith.addf %l, %m : f32 @h.py:3<5", REDUCED[0], f"{REDUCED[1]} @5")
    plan = plan_of(text, "line(5)=a")

    assert found(plan) == [("a", "function", 3, 0)]
    assert missed(plan) == []


# ---- several ranges --------------------------------------------------------------------------------------


def test_lines_that_interleave_cross_and_know_each_other() -> None:
    text = kernel(f"{LOAD} @5", f"{LOAD} @6", f"{STORE} @5", f"{STORE} @6", f"{STORE} @7")
    plan = plan_of(text, "line(5)=a", "line(6)=b", "line(7)=c", "func")

    assert sequence(text, "line(5)=a", "line(6)=b") == (
        "[a tt.load [b tt.load tt.store a] tt.store b] tt.store tt.return"
    )
    assert [(s.record, s.parent, s.crosses) for s in plan.scopes] == [
        ("func", -1, ()),
        ("a", 0, (2,)),
        ("b", 0, (1,)),
        ("c", 0, ()),
    ]


def test_runs_do_not_cross() -> None:
    text = kernel(f"{LOAD} @5", f"{LOAD} @6", f"{STORE} @5", f"{INDEX} @9", f"{STORE} @5", f"{STORE} @6")
    plan = in_the_runs(text, "line(5)=a", "line(6)=b")

    assert sequence(text, "line(5)=a", "line(6)=b", style=Style(in_runs)) == (
        "[a#0 tt.load a#0] [b#0 tt.load b#0] [a#1 tt.store arith.addi tt.store a#1] [b#1 tt.store b#1] tt.return"
    )
    assert found(plan) == [
        ("a#0", "function", 1, 0),
        ("b#0", "function", 1, 0),
        ("a#1", "function", 2, 1),
        ("b#1", "function", 1, 0),
    ]
    assert not any(scope.crosses for scope in plan.scopes)


def test_runs_in_each_block() -> None:
    text = kernel(
        f"{LOAD} @5", f"{LOAD} @6", f"{LOAD} @5", LOOP, f"  {STORE} @5", f"  {STORE} @6", f"  {STORE} @5", "}"
    )

    assert found(in_the_runs(text, "line(5)=a")) == [
        ("a#0", "prologue", 1, 0),
        ("a#1", "prologue", 1, 0),
        ("a#2", "body", 1, 0),
        ("a#3", "body", 1, 0),
    ]


def test_one_range_inside_another_is_nested() -> None:
    text = kernel(f"{LOAD} @5", f"{LOAD} @6", f"{STORE} @6", f"{STORE} @5")
    plan = plan_of(text, "line(6)=in", "line(5-6)=both", "line(5)=out")

    assert sequence(text, "line(6)=in", "line(5-6)=both", "line(5)=out") == (
        "[both [out tt.load [in tt.load tt.store in] tt.store out] both] tt.return"
    )
    assert [(s.record, s.parent, s.crosses) for s in plan.scopes] == [("both", -1, ()), ("out", 0, ()), ("in", 1, ())]


def test_adjacent_ranges_do_not_nest() -> None:
    text = kernel(f"{LOAD} @5", f"{STORE} @6")

    assert sequence(text, "line(6)=b", "line(5)=a") == "[a tt.load a] [b tt.store b] tt.return"
    assert [scope.parent for scope in plan_of(text, "line(6)=b", "line(5)=a").scopes] == [-1, -1]


# ---- a pipelined kernel of Triton's ----------------------------------------------------------------------


def test_a_pipelined_load_is_found_where_the_compiler_put_it() -> None:
    """Line 34 of the source loads inside the loop; two stages of it were moved before the loop."""
    view = fixture_view(read(FIXTURES / "3.6.0/cuda-90/marked_matmul.ttgir"))
    plan = make_plan(view, parse_selectors(["line(34)=load", "op(ttg.async_copy_global_to_local)=copy"]))

    assert [(record, block) for record, block, _, _ in found(plan) if record.startswith("load")] == [
        ("load#0", "prologue"),
        ("load#1", "body"),
    ]
    around = {s.record: plan.scopes[s.parent].record for s in plan.scopes if s.name == "copy" and s.parent >= 0}
    assert set(around.values()) == {"load#0", "load#1"}


def test_a_scope_ends_behind_the_last_line_of_an_operation() -> None:
    text = kernel('%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({', "^bb0(%l: f32, %m: f32):", *REDUCED, f"{STORE} @6")
    done = insertion_of(text.replace("-> f32\n", '-> f32 loc("/src/k.py":5:0)\n'), "line(5)=a")

    lines = [line.strip() for line in done.text.splitlines()]
    assert lines[lines.index('proton.record end "a"') - 1].startswith("}) : (tensor<16xf32, #b>) -> f32 loc(")


def test_runs_do_not_cross_where_index_arithmetic_interleaves() -> None:
    addptr = "%a = tt.addptr %p, %x : !tt.ptr<i32>, i32"
    text = kernel(f"{LOAD} @10", f"{addptr} @20", f"{addptr} @10", f"{LOAD} @20")

    plan = in_the_runs(text, "line(10)", "line(20)")

    assert found(plan) == [("line(10)", "function", 1, 0), ("line(20)", "function", 1, 0)]
    assert missed(plan) == [("tt.addptr", "index arithmetic elsewhere")] * 2
