"""``func(NAME)``: the calls of helper functions, inlined or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, kernel_of, read
from planning import counts, fixture_view, insertion_of, plan_of, view_of_text
from small_modules import FILE, found, kernel, missed, sequence
from snapshots import check

from kprof_inject.capture.schema import PointRecord
from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style, in_runs

SOURCE = """\
@triton.jit
def inner(x):
    y = tl.load(x)
    return y


@triton.jit
def outer(x):
    y = inner(x) + inner(x + 1)
    tl.store(x, y)


@triton.jit
def k(x):
    outer(x)
    for i in range(9):
        outer(x + i)
    tl.debug_barrier()
"""
SOURCES = {FILE: SOURCE}

LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"

CALLED = kernel(
    *(f"{LOAD} @3<9<15", f"{LOAD} @3<9<15", f"{STORE} @10<15"),
    *(LOOP, f"  {LOAD} @3<9<17", f"  {STORE} @10<17", "} @16", "gpu.barrier @18"),
)


def test_a_helper_is_found_by_its_name_at_each_call() -> None:
    plan = plan_of(CALLED, "func(outer)", sources=SOURCES)

    assert sequence(CALLED, "func(outer)", sources=SOURCES) == (
        "[outer@15 tt.load tt.load tt.store outer@15] scf.for [outer@17 tt.load tt.store outer@17] } "
        "gpu.barrier tt.return"
    )
    assert found(plan) == [("outer@15", "function", 3, 0), ("outer@17", "body", 2, 0)]
    first = plan.scopes[0]
    assert (first.kind, first.label, first.function) == ("func", "outer@15", "k")
    assert (first.source, first.called_from) == (PointRecord(FILE, 8, 0), (PointRecord(FILE, 15, 0),))


def test_a_helper_of_a_helper_is_apart_for_each_way_to_it() -> None:
    plan = plan_of(CALLED, "func(outer)", "func(inner)", sources=SOURCES)

    assert [(s.record, s.parent, [p.line for p in s.called_from]) for s in plan.scopes] == [
        ("outer@15", -1, [15]),
        ("inner@9#0", 0, [9, 15]),
        ("outer@17", -1, [17]),
        ("inner@9#1", 2, [9, 17]),
    ]
    assert counts(plan) == {"func(outer)": 2, "func(inner)": 2}


def test_calls_in_one_line_are_told_apart_by_their_columns() -> None:
    text = kernel(
        f'{LOAD} loc(callsite("{FILE}":3:0 at "{FILE}":9:8))', f'{LOAD} loc(callsite("{FILE}":3:0 at "{FILE}":9:19))'
    )

    assert sequence(text, "func(inner)", sources=SOURCES) == (
        "[inner@9#0 tt.load inner@9#0] [inner@9#1 tt.load inner@9#1] tt.return"
    )


def test_globs_and_names_of_ones_own() -> None:
    assert counts(plan_of(CALLED, "func(*er)=h", "func(in?er)", sources=SOURCES)) == {
        "func(*er)=h": 4,
        "func(in?er)": 2,
    }
    plan = plan_of(CALLED, "func(*er)=h", sources=SOURCES)
    assert [scope.record for scope in plan.scopes] == ["h#0", "h#1", "h#2", "h#3"]


@pytest.mark.parametrize("selector", ["func(k)", "func"])
def test_the_kernels_own_name_is_its_body(selector: str) -> None:
    text = CALLED.replace("  }\n}", f'  }} loc("{FILE}":14:0)\n}}')

    (scope,) = plan_of(text, selector, sources=SOURCES).scopes
    assert (scope.record, scope.block, scope.source) == ("func", "function", PointRecord(FILE, 14, 0))


@pytest.mark.parametrize("selector", ["func(k)", "func(k_64)", "func"])
def test_a_kernel_that_was_given_another_name_has_both(selector: str) -> None:
    text = CALLED.replace("  }\n}", f'  }} loc("{FILE}":14:0)\n}}').replace("@k(", "@k_64(")
    assert [block for _, block, _, _ in found(plan_of(text, selector, sources=SOURCES))] == ["function"]
    with pytest.raises(KprofError):
        insertion_of(text, "func(other)", sources=SOURCES)


def test_a_helper_without_its_source_is_called_by_its_first_line() -> None:
    text = kernel(f"{STORE} @h.py:10<15", f"{LOAD} @/lib/h.py:3<h.py:9<15", f"{LOAD} @/lib/h.py:2<h.py:9<15")

    assert candidates(view_of_text(text))[1:3] == ("func(h.py:9)", "func(h.py:2)")
    assert sequence(text, "func(h.py:2)") == "tt.store [h.py:2@9 tt.load tt.load h.py:2@9] tt.return"
    assert sequence(text, "func(h.py:9)=all") == "[all tt.store tt.load tt.load all] tt.return"
    assert counts(plan_of(text, "func(h.py:3)", "func(h.py:10)", "func(*h.py:*)")) == {"func(*h.py:*)": 2}


def test_a_helper_is_split_over_blocks_like_lines() -> None:
    text = kernel(f"{LOAD} @3<15", "gpu.barrier @18", f"{LOAD} @3<15", LOOP, f"  {LOAD} @4<15", "} @16")

    assert found(plan_of(text, "func(inner)=h", sources=SOURCES)) == [
        ("h#0", "prologue", 2, 1),
        ("h#1", "body", 1, 0),
    ]
    runs = make_plan(view_of_text(text, SOURCES), parse_selectors(["func(inner)=h"]), Style(in_runs))
    assert [block for _, block, _, _ in found(runs)] == ["prologue", "prologue", "body"]


def test_a_helper_of_a_reduction_gets_no_record() -> None:
    text = kernel(
        '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
        "^bb0(%l: f32, %m: f32):",
        "  %s = arith.addf %l, %m : f32 @3<15",
        "  tt.reduce.return %s : f32 @15",
        "}) : (tensor<16xf32, #b>) -> f32 @15",
    )
    ((name, reason),) = missed(plan_of(text, "func(inner)", sources=SOURCES))

    assert name == "arith.addf"
    assert "func(inner)" not in candidates(view_of_text(text, SOURCES))
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "func(inner)", sources=SOURCES)
    assert caught.value.what.endswith(f": arith.addf is {reason}")
    assert str(caught.value.where) == "<ttgir>:5:7"
    check("select/errors", caught.value.render(), "a helper in a reduction")


def test_a_name_that_no_function_has() -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(CALLED, "func(ouster)", sources=SOURCES)

    check("select/errors", caught.value.render(), "a helper by another name")


# ---- helpers that stay functions -------------------------------------------------------------------------

HELPERS = """\
  tt.func private @"k.inner__i32__"(%n: i32) attributes {noinline = true} {
    gpu.barrier @3
    tt.return @4
  } @2
  tt.func private @never__() attributes {noinline = true} {
    tt.call @"k.inner__i32__"(%n) : (i32) -> () @9
    tt.return @9
  } @8
"""
KEPT = kernel(
    *('tt.call @"k.inner__i32__"(%n) : (i32) -> () @15', LOOP, '  tt.call @"k.inner__i32__"(%n) : (i32) -> () @17'),
    "} @16",
    rest=HELPERS,
)


def test_a_call_of_a_function_is_a_site() -> None:
    plan = plan_of(KEPT, "func(inner)", sources=SOURCES)

    assert [(s.record, s.kind, s.block, s.function) for s in plan.scopes] == [
        ("inner@15", "func", "function", "k"),
        ("inner@17", "func", "body", "k"),
        ("inner@9", "func", "function", "never__"),
    ]
    assert sequence(KEPT, "func(inner)", sources=SOURCES).startswith(
        "[inner@15 tt.call inner@15] scf.for [inner@17 tt.call inner@17] } tt.return"
    )


def test_a_function_is_named_by_its_source_or_what_triton_made_of_its_name() -> None:
    without_sources = candidates(view_of_text(KEPT))
    with_sources = candidates(view_of_text(KEPT, SOURCES))

    assert "func(inner)" in without_sources and "func(inner)" in with_sources
    renamed = KEPT.replace("k.inner__i32__", "k.other__i32__")
    assert "func(other)" in candidates(view_of_text(renamed))
    assert "func(inner)" in candidates(view_of_text(renamed, SOURCES))


def test_the_generic_form_of_a_call() -> None:
    text = kernel(
        '"tt.call"(%n) <{callee = @helper__i32}> : (i32) -> () @15',
        rest='  "tt.func"() <{function_type = () -> (), sym_name = "helper__i32", sym_visibility = "private"}> ({\n'
        '    "tt.return"() : () -> ()\n  }) {noinline = true} : () -> ()\n',
    )

    assert sequence(text, "func(helper)") == "[helper@15 tt.call helper@15] tt.return tt.return"
    assert counts(plan_of(text, "func")) == {"func": 1}


def test_a_call_of_what_is_not_in_the_module_is_no_helper() -> None:
    assert counts(plan_of(kernel("tt.call @gone() : () -> () @15"), "func(gone)", "op(tt.call)")) == {"op(tt.call)": 1}


def test_loops_and_lines_inside_a_function_that_is_called_are_sites() -> None:
    helper = f"  tt.func private @h() {{\n    {LOOP}\n      {STORE} @5\n    }}\n    tt.return\n  }}\n"
    plan = plan_of(kernel("tt.call @h() : () -> ()", rest=helper), "loop", "line(5)", "func", "op(tt.store)")

    assert [(s.record, s.function, s.parent) for s in plan.scopes] == [
        ("func", "k", -1),
        ("loop[0]", "h", -1),
        ("line(5)", "h", 1),
        ("tt.store", "h", 2),
    ]


# ---- Triton's own ----------------------------------------------------------------------------------------

INLINED = [path for path in fixtures() if kernel_of(path) == "inlined_helpers"]


@pytest.mark.parametrize("path", INLINED, ids=fixture_id)
def test_helpers_two_levels_deep(path: Path) -> None:
    plan = make_plan(fixture_view(read(path)), parse_selectors(["func(_quantize)", "func(_absmax)"]))

    assert [(s.record, s.parent, [p.line for p in s.called_from]) for s in plan.scopes] == [
        ("_quantize@35", -1, [35]),
        ("_absmax@17#0", 0, [17, 35]),
        ("_quantize@40", -1, [40]),
        ("_absmax@17#1", 2, [17, 40]),
    ]


def test_two_calls_in_a_line_of_a_real_kernel() -> None:
    view = fixture_view(read(FIXTURES / "3.6.0/cuda-90/two_calls_in_a_line.ttgir"))
    plan = make_plan(view, parse_selectors(["func(_tile)"]))

    assert [scope.record for scope in plan.scopes] == ["_tile@18#0", "_tile@18#1"]
    assert len({scope.called_from[0].column for scope in plan.scopes}) == 2


COMBINE = kernel(
    '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
    "^bb0(%a: f32, %b: f32):",
    "  %c = tt.call @combine__f(%a, %b) : (f32, f32) -> f32 @5",
    "  tt.reduce.return %c : f32",
    "}) : (tensor<128xf32>) -> f32 @5",
    rest="""\
  tt.func private @combine__f(%a: f32, %b: f32) -> f32 {
    %c = tt.call @inner__f(%a, %b) : (f32, f32) -> f32 @9
    tt.return %c : f32
  }
  tt.func private @inner__f(%a: f32, %b: f32) -> f32 {
    %c = tt.atomic_rmw fadd, %p, %a : f32 @12
    tt.return %c : f32
  }
""",
)


def test_a_helper_that_a_reduction_calls_gets_no_records() -> None:
    for selector in ("op(tt.atomic_rmw)", "op(tt.call)", "line(12)"):
        plan = plan_of(COMBINE, selector)
        assert plan.scopes == ()
        assert {reason.split(", ")[0] for _, reason in missed(plan)} == {"inside tt.reduce"}
    assert sequence(COMBINE, "func").startswith("[func tt.reduce")


def test_a_call_in_a_reduction_is_not_covered() -> None:
    plan = plan_of(COMBINE, "func(combine)")

    assert plan.scopes == ()
    assert [(name, reason.split(", ")[0]) for name, reason in missed(plan)] == [("tt.call", "inside tt.reduce")]
