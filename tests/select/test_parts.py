from __future__ import annotations

from pathlib import Path

import pytest
from golden import FIXTURES, read
from planning import fixture_view, insertion_of, plan_of

from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors

LOAD = "%x = tt.load %p : tensor<8x!tt.ptr<f32>, #b>"
STORE = "tt.store %p, %x : tensor<8x!tt.ptr<f32>, #b>"
SUM = "%s = arith.addf %x, %x : tensor<8xf32, #b>"
EXP = "%e = math.exp2 %x : tensor<8xf32, #b>"
COPY = "%t = ttg.async_copy_global_to_local %p, %s : tensor<8x!tt.ptr<f16>, #b> -> <8xf16, #s, #smem, mutable>"
COMMIT = "%g = ttg.async_commit_group tokens %t"
WAIT = "%w = ttg.async_wait %g {num = 0 : i32}"
DOT = "%d = ttng.warp_group_dot %a, %b, %c {isAsync = true} : i32"
DOT_WAIT = "%f = ttng.warp_group_dot_wait %d {pendings = 0 : i32} : i32"


def kernel(*body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return f"module {{\n  tt.func public @k() {{\n{lines}\n    tt.return\n  }}\n}}\n"


def loop(*body: str) -> tuple[str, ...]:
    return ("scf.for %i = %a to %b step %c  : i32 {", *(f"  {line}" for line in body), "}")


def parts(plan: Plan) -> list[tuple[str, int]]:
    return [(scope.record, scope.operations) for scope in plan.scopes]


def test_the_parts_of_a_loop_and_what_stands_around_it() -> None:
    text = kernel(LOAD, SUM, *loop(WAIT, DOT, DOT_WAIT, EXP, SUM, EXP, COPY, COMMIT, COPY, COPY, COMMIT), SUM, STORE)
    assert parts(plan_of(text, "parts")) == [
        ("prologue", 2),
        ("wait#0", 1),
        ("dot", 1),
        ("wait#1", 1),
        ("exp2", 2),
        ("copies#0", 2),
        ("copies#1", 3),
        ("epilogue", 2),
    ]


def test_of_nested_loops_the_innermost() -> None:
    text = kernel(LOAD, *loop(STORE, *loop(LOAD), *loop(EXP)), STORE)
    assert [name for name, _ in parts(plan_of(text, "parts"))] == ["prologue", "loads", "exp2", "epilogue"]


def test_of_a_kernel_without_loops_all_its_parts() -> None:
    assert [name for name, _ in parts(plan_of(kernel(LOAD, SUM, EXP, STORE), "parts"))] == ["loads", "exp2", "stores"]


def test_where_nothing_does_work_before_a_loop_there_is_no_prologue() -> None:
    index = "%c = arith.constant 1 : i32"
    assert [name for name, _ in parts(plan_of(kernel(index, *loop(LOAD)), "parts"))] == ["loads"]


def test_what_is_lowered_once_per_element_has_no_parts() -> None:
    reduce = (
        '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
        "^bb0(%a: f32, %b: f32):",
        "  %m = math.exp2 %a : f32",
        "  tt.reduce.return %m : f32",
        "}) : (tensor<8xf32, #b>) -> f32",
    )
    assert parts(plan_of(kernel(*reduce), "parts")) == [("reduce", 3)]


def test_names_have_the_users_lines() -> None:
    """And not those of Triton's library, which are the same for whoever reduces."""
    text = read(FIXTURES / "3.6.0/cuda-90/attention.ttgir")
    plan = make_plan(fixture_view(text), parse_selectors(["parts"]))
    in_first_loop = [scope.record for scope in plan.scopes if scope.record.endswith("#0")]
    assert in_first_loop == [
        *("wait@28#0", "dot@29#0", "wait@29#0", "reduce@33#0", "exp2@34#0", "reduce@36#0", "dot@38#0"),
        *("copies@28#0", "copies@37#0"),
    ]
    reduce = next(scope for scope in plan.scopes if scope.record == "reduce@33#0")
    assert reduce.source is not None
    assert Path(reduce.source.file).name == "attention.py"


@pytest.mark.parametrize("target", ["cuda-90", "cuda-100", "hip-gfx942"])
def test_of_every_target(target: str) -> None:
    text = read(FIXTURES / f"3.6.0/{target}/matmul.ttgir")
    names = {scope.name.split("@")[0] for scope in make_plan(fixture_view(text), parse_selectors(["parts"])).scopes}
    assert names >= {"prologue", "dot", "epilogue"}
    assert names & {"copies", "loads"}


def test_inline_assembly_is_a_part_by_itself() -> None:
    asm = '%a = tt.elementwise_inline_asm "nop;" {constraints = "=r", packed_element = 1 : i32, pure = false} -> i32'
    assert [name for name, _ in parts(plan_of(kernel(LOAD, asm, STORE), "parts"))] == ["loads", "asm", "stores"]


def test_a_commit_of_dots_is_no_copy() -> None:
    text = kernel("ttng.tc_gen5_commit %bar : !ttg.memdesc<1xi64, #s, #smem, mutable>", LOAD)
    assert parts(insertion_of(text, "parts").plan) == [("loads", 1)]


def test_parts_of_newer_operations() -> None:
    copy = "%t = amdg.async_tdm_copy_global_to_local %d into %m : !tt.tensordesc<8x8xf16> -> !ttg.memdesc<8x8xf16>"
    arrive = "ttng.async_copy_mbarrier_arrive %b : !ttg.memdesc<1xi64, #s, #smem, mutable>"
    request = "ttng.clc_try_cancel %r, %b : !ttg.memdesc<2xi64, #s, #smem, mutable>, !ttg.memdesc<1xi64, #s, #smem>"
    poll = "%k = tt.atomic_poll acquire, gpu, %p, %e : !tt.ptr<i32>, i32 -> i1"
    body = (copy, "%w = amdg.async_tdm_intrinsic_wait  {count = 0 : i32}", COPY, arrive, COPY, request, poll)

    found = parts(plan_of(kernel(*loop(*body)), "parts"))

    assert found == [("copies#0", 1), ("wait#0", 1), ("copies#1", 2), ("copies#2", 1), ("wait#1", 1)]
    sites = plan_of(kernel(*loop(*body)), "async").scopes
    assert len(sites) == 6  # all but the poll
