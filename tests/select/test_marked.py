"""Marker selectors, from the comments in a source to records: what each kind of marker brackets."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixture_id, fixtures, form_of, kernel_of, read
from planning import counts, fixture_view, insertion_of, plan_of, view_of_text
from small_modules import FILE, found, kernel, missed, sequence
from snapshots import check

from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.sites import Dropped
from kprof_inject.select.spans import Style, in_runs

LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"
INDEX = "%i = arith.addi %n, %n : i32"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"

SOURCE = """\
@triton.jit
def k(x, n):
    # kprof: begin setup
    a = tl.load(x)
    b = a + 1
    # kprof: end setup
    # kprof: mark before_loop
    for i in range(n):  # kprof: loop main; iter step
        c = tl.load(x + i)  # kprof: load_c
        tl.store(x, c)  # kprof: store
    while a < n:  # kprof: loop
        a = tl.load(x)
    tl.store(x, b)
    # kprof: mark done
"""
MODULE = kernel(
    *(f"{LOAD} @4", f"{INDEX} @5", f"{LOAD} @9", f"{INDEX} @8"),
    *(LOOP, f"  {STORE} @10", f"  {LOAD} @9", "} @8"),
    *("scf.while : () -> () {", "  scf.condition(%c) @11", "} do {", f"  {LOAD} @12", "  scf.yield @11", "} @11"),
    *(f"{STORE} @13", "tt.return @2"),
)


def plan(text: str, source: str, *selectors: str) -> Plan:
    return plan_of(text, *selectors, sources={FILE: source})


def test_what_a_scope_says_of_its_marker() -> None:
    scopes = {scope.record: scope for scope in plan(MODULE, SOURCE, "marker").scopes}

    assert {name: (s.kind, s.label, s.block) for name, s in scopes.items()} == {
        "setup": ("marker", "setup", "function"),
        "load_c#0": ("marker", "load_c", "prologue"),
        "before_loop": ("mark", "before_loop", "function"),
        "main": ("loop", "loop[0]", "function"),
        "step": ("iter", "iter[0]", "body"),
        "store": ("marker", "store", "body"),
        "load_c#1": ("marker", "load_c", "body"),
        "loop": ("loop", "loop[1]", "function"),
        "done": ("mark", "done", "function"),
    }
    assert {name: s.source and s.source.line for name, s in scopes.items()} == {
        **{"setup": 4, "load_c#0": 9, "before_loop": 8, "main": 8, "step": 8, "store": 10, "load_c#1": 9},
        **{"loop": 11, "done": 13},
    }


def test_what_a_marker_covers() -> None:
    markers = plan(MODULE, SOURCE, "marker")

    assert [
        (record, own, others) for record, _, own, others in found(markers) if record in ("setup", "before_loop")
    ] == [
        ("setup", 1, 0),
        ("before_loop", 0, 0),
    ]
    assert missed(markers) == [("arith.addi", "index arithmetic elsewhere")]


def test_a_marker_by_its_name() -> None:
    assert counts(plan(MODULE, SOURCE, "marker(s*)", "marker(load_c)=mine", "marker(nothing)")) == {
        "marker(s*)": 3,
        "marker(load_c)=mine": 2,
    }
    assert [s.record for s in plan(MODULE, SOURCE, "marker(load_c)=mine").scopes] == ["mine#0", "mine#1"]


def test_a_marked_loop_is_the_same_site_as_the_loop() -> None:
    both = plan(MODULE, SOURCE, "marker(main)", "loop[0]")
    assert [(s.record, s.selector) for s in both.scopes] == [("main", "marker(main)")]

    turned = plan(MODULE, SOURCE, "loop[0]", "marker(main)")
    assert [(s.record, s.selector) for s in turned.scopes] == [("main", "marker(main)")]


def test_two_names_of_one_loop_are_one_scope() -> None:
    source = SOURCE.replace("loop main; iter step", "loop main; loop again")

    assert [s.record for s in plan(MODULE, source, "marker(main)", "marker(again)").scopes] == ["main"]


# ---- what the compiler dropped, and whose markers they are ----------------------------------------------


def test_a_marker_of_which_nothing_is_left() -> None:
    text = MODULE.replace("10:0", "13:0")

    assert plan(text, SOURCE, "marker").selections[0].findings.dropped == (Dropped(f"store ({FILE}:10)", "operation"),)
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "marker(store)", sources={FILE: SOURCE})
    check("select/errors", caught.value.render(), "a marker without operations")


def test_a_loop_of_which_nothing_is_left() -> None:
    source = "@triton.jit\ndef k(x):\n    for i in tl.static_range(2):  # kprof: loop\n        tl.store(x, i)\n"
    text = kernel(f"{STORE} @4", f"{STORE} @4", "tt.return @2")

    assert plan(text, source, "marker").selections[0].findings.dropped == (Dropped(f"loop ({FILE}:3)", "loop"),)
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "marker", sources={FILE: source})
    check("select/errors", caught.value.render(), "a loop that was unrolled")


def test_a_marker_that_gets_no_record_is_not_called_dropped() -> None:
    source = """\
@triton.jit
def add(a, b):
    return a + b  # kprof: add


@triton.jit
def k(x):
    tl.reduce(x, 0, add)
"""
    text = kernel(
        '%r = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
        "^bb0(%l: f32, %m: f32):",
        "  %s = arith.addf %l, %m : f32 @3<8",
        "  tt.reduce.return %s : f32 @8",
        "}) : (tensor<16xf32, #b>) -> f32 @8",
    )

    assert plan(text, source, "marker").selections[0].findings.dropped == ()
    with pytest.raises(KprofError) as caught:
        insertion_of(text, "marker", sources={FILE: source})
    check("select/errors", caught.value.render(), "a marker in a reduction")


OTHERS = f"""\
{SOURCE}

@triton.jit
def other(x):
    tl.store(x, 1)  # kprof: elsewhere


def host():
    k[(1,)](x)  # kprof: launch
"""


def test_markers_of_functions_that_are_not_in_the_module_are_none_of_its() -> None:
    view = view_of_text(MODULE, {FILE: OTHERS, "/src/unused.py": "def f():\n    g()  # kprof: unused\n"})

    assert [marker.name for marker in view.markers] == [
        *("setup", "before_loop", "main", "step", "load_c", "store", "loop", "done")
    ]
    assert "marker(elsewhere)" not in candidates(view)


def test_the_same_lines_of_another_file_are_not_meant() -> None:
    text = kernel(f"{LOAD} @9", f"{STORE} @/other{FILE}:9", f"{STORE} @9<3", "tt.return @2")

    assert sequence(text, "marker(load_c)=x", sources={FILE: SOURCE}).startswith("[x#0 tt.load x#0] tt.store [x#1 tt.")


def test_a_marker_in_a_helper_is_apart_for_each_call() -> None:
    source = """\
@triton.jit
def helper(x):
    a = tl.load(x)  # kprof: load
    for i in range(9):  # kprof: iter rounds
        tl.store(x, a)


@triton.jit
def k(x):
    helper(x)  # kprof: first
    helper(x + 1)
"""
    body = [line for call in (10, 11) for line in (f"{LOAD} @3<{call}", LOOP, f"  {STORE} @5<{call}", f"}} @4<{call}")]
    marked = plan(kernel(*body, "tt.return @9"), source, "marker")

    assert [(s.record, s.parent, [p.line for p in s.called_from]) for s in marked.scopes] == [
        ("first", -1, []),
        ("load#0", 0, [10]),
        ("rounds#0", 0, [10]),
        ("load#1", -1, [11]),
        ("rounds#1", -1, [11]),
    ]
    assert counts(marked) == {"marker": 5}


def test_a_marker_in_a_helper_that_stays_a_function() -> None:
    source = """\
@triton.jit(noinline=True)
def h(x):
    tl.store(x, 1)  # kprof: inside


def k(x):
    h(x)  # kprof: call
"""
    helper = f"  tt.func private @h__() {{\n    {STORE} @3\n    tt.return @2\n  }} @2\n"
    text = kernel("tt.call @h__() : () -> () @7", "tt.return @6", rest=helper)

    assert [(s.record, s.function, s.parent) for s in plan(text, source, "marker").scopes] == [
        ("call", "k", -1),
        ("inside", "h__", -1),
    ]


def test_a_wrong_marker_is_pointed_at_in_the_source() -> None:
    source = SOURCE.replace("    # kprof: end setup\n", "")
    with pytest.raises(KprofError) as caught:
        plan(MODULE, source, "marker")

    assert str(caught.value.where) == f"{FILE}:3:14"
    assert "'begin setup'" in caught.value.what
    assert len(plan(MODULE, source, "func").scopes) == 1


def test_without_sources_there_are_no_markers() -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(MODULE, "marker")

    check("select/errors", caught.value.render(), "no markers without sources")
    assert plan(MODULE, "not python(", "marker").scopes == ()


# ---- Triton's own ----------------------------------------------------------------------------------------

OF_MARKED = {
    "marked_attention": {"keys", "load_k", "load_v", "qk", "softmax", "maximum", "pv", "epilogue", "diagonal"},
    "marked_matmul": {"main", "loads", "dot", "epilogue", "before_store"},
}
MARKED = [p for p in fixtures() if kernel_of(p) in OF_MARKED and not form_of(p)]


@pytest.mark.parametrize("path", MARKED, ids=fixture_id)
def test_markers_of_a_pipelined_kernel(path: Path) -> None:
    view = fixture_view(read(path))
    once = make_plan(view, parse_selectors(["marker"]))
    assert OF_MARKED[kernel_of(path)] <= {scope.name for scope in once.scopes}
    assert once.selections[0].findings.dropped == ()
    assert {scope.kind for scope in once.scopes if scope.name in ("before_store", "diagonal")} == {"mark"}

    runs = make_plan(view, parse_selectors(["marker"]), Style(in_runs))
    assert len(runs.scopes) >= len(once.scopes)
    assert not any(scope.crosses for scope in runs.scopes)


def test_loads_are_found_before_and_inside_the_loop_that_they_were_moved_out_of() -> None:
    for path in MARKED:
        if kernel_of(path) == "marked_matmul" and path.parent.name == "cuda-90":
            plan = make_plan(fixture_view(read(path)), parse_selectors(["marker(loads)", "marker(dot)"]))
            blocks = [(scope.name, scope.block) for scope in plan.scopes]
            assert blocks == [("loads", "prologue"), ("loads", "body"), ("dot", "body")]
