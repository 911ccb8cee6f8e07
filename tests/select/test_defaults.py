"""What is selected without ``--at``, and what is said when a selector matches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import NEWEST, distinct, fixture_id, fixtures, kernel_of, read
from planning import counts, fixture_view, insertion_of, plan_of, view_of_text
from small_modules import FILE, kernel, sequence
from snapshots import check

from kprof_inject.errors import KprofError
from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.sites import Dropped

STORE = "tt.store %p, %x : !tt.ptr<f32>"
LOOP = "scf.for %i = %a to %n step %c  : i32 {"
TEXT = kernel(f"{STORE} @3", LOOP, f"  {STORE} @5", "} @4", "tt.return @2")


def source(*lines: str) -> dict[str, str]:
    return {FILE: "\n".join(("@triton.jit", "def k(x):", *lines, ""))}


def test_markers_of_functions_elsewhere_do_not() -> None:
    elsewhere = source("    tl.store(x, 1)", "    for i in range(9):", "        tl.store(x, 2)")
    elsewhere[FILE] += "\n\ndef other():\n    tl.store(x)  # kprof: other\n"

    assert counts(plan_of(TEXT, sources=elsewhere)) == {"func": 1, "loop": 1, "iter": 1}


def test_what_is_asked_for_goes_before_markers() -> None:
    marked = source("    tl.store(x, 1)  # kprof: first")

    assert counts(plan_of(TEXT, "iter", sources=marked)) == {"iter": 1}


def test_where_nothing_is_left_of_any_marker_the_function_and_its_loops_are_taken() -> None:
    """As of one in a branch that is compiled out."""
    marked = source(
        "    tl.store(x, 1)", "    for i in range(9):", "        tl.store(x, 2)", "    y = x + 1  # kprof: gone"
    )
    plan = plan_of(TEXT, sources=marked)

    assert counts(plan) == {"func": 1, "loop": 1, "iter": 1}
    assert [selection.selector.text for selection in plan.selections] == ["marker", "func", "loop", "iter"]
    assert plan.selections[0].findings.dropped == (Dropped(f"gone ({FILE}:6)", "operation"),)


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        ("loop[3]", "loop[0]"),
        ("iter[0.0]=each", "iter[0]"),
        ("func(helpr)", "func(helper)"),
        ("op(tt.stores)", "op(tt.store)"),
        ("marker(lod)", "marker(load)"),
    ],
)
def test_a_selector_that_finds_nothing_names_the_nearest(selector: str, meant: str) -> None:
    text = kernel(f"{STORE} @8<3", LOOP, "} @4", "tt.return @2")
    sources = source(
        *("    helper(x)  # kprof: load", "    for i in range(9):", "        pass", ""),
        *("def helper(x):", "    tl.store(x, 1)"),
    )
    with pytest.raises(KprofError) as caught:
        insertion_of(text, selector, sources=sources)

    assert repr(selector) in caught.value.what
    assert caught.value.hint.startswith(f"did you mean {meant}")
    if selector == "loop[3]":
        check("select/errors", caught.value.render(), "a loop that is not there")


def test_a_hint_does_not_name_everything() -> None:
    with pytest.raises(KprofError) as caught:
        insertion_of(kernel(*25 * (LOOP, "}")), "default")

    listed = caught.value.hint.removeprefix("you can select: ")
    assert " 31 more " in listed
    assert len(listed.split(", ")) == 20
    check("select/errors", caught.value.hint, "much to select")


def test_a_wrong_marker_is_an_error_where_markers_are_looked_for() -> None:
    wrong = source("    # kprof: begin a", "    tl.store(x, 1)")
    with pytest.raises(KprofError) as caught:
        insertion_of(TEXT, sources=wrong)

    assert str(caught.value.where) == f"{FILE}:3:14"
    assert counts(plan_of(TEXT, "func", sources=wrong)) == {"func": 1}


@pytest.mark.parametrize(
    ("signature", "end"),
    [
        ("tt.func private @k() {", "}"),
        ('"tt.func"() <{sym_name = "k", sym_visibility = "private"}> ({', "}) : () -> ()"),
    ],
)
def test_a_module_without_a_kernel(signature: str, end: str) -> None:
    text = f"module {{\n  {signature}\n    {STORE}\n    tt.return\n  {end}\n}}\n"
    with pytest.raises(KprofError) as caught:
        insertion_of(text)

    check("select/errors", caught.value.render(), "a module without a kernel")


def test_a_function_without_a_body_is_none() -> None:
    text = kernel(STORE, rest="  tt.func private @declared(i32)\n")

    assert [function.symbol for function in view_of_text(text).functions] == ["k"]
    assert sequence(text, "func").startswith("[func tt.store func] tt.return")


@pytest.mark.parametrize("path", distinct(fixtures(NEWEST)), ids=fixture_id)
def test_what_there_is_to_select_in_a_fixture_finds_something(path: Path) -> None:
    view = fixture_view(read(path))
    names = candidates(view)

    # The tutorial's layer norm has a lock.
    spins = ["spin"] if kernel_of(path) == "layer_norm_backward" else []
    assert [selection.selector.text for selection in make_plan(view, []).selections] == (
        ["marker"] if kernel_of(path).startswith("marked_") else [*spins, "func", "loop", "iter"]
    )
    assert len(set(names)) == len(names)
    assert [name for name in names if not make_plan(view, parse_selectors([name])).scopes] == []
