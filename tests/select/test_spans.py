"""Which operations of a line a scope reaches for. What it spans in blocks and runs is in ``cases/spans.txt``."""

from __future__ import annotations

import pytest
from golden import FIXTURES, read
from planning import fixture_view, plan_of
from small_modules import found, kernel, sequence

from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors

STORE = "tt.store %p, %x : !tt.ptr<f32>"
INDEX = "%i = arith.addi %n, %n : i32"


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
