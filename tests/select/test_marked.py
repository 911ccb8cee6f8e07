"""Marker selectors, from the comments in a source to records: what each kind of marker brackets."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import fixture_id, fixtures, form_of, kernel_of, read
from insertion_cases import cases
from planning import fixture_view, view_of_text
from small_modules import FILE

from kprof_inject.select.candidates import candidates
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.select.spans import Style


def test_markers_of_functions_that_are_not_in_the_module_are_none_of_its() -> None:
    (case,) = (case for case in cases("marked") if case.name == "what a scope says of its marker")
    others = """

@triton.jit
def other(x):
    tl.store(x, 1)  # kprof: elsewhere


def host():
    k[(1,)](x)  # kprof: launch
"""
    unused = {"/src/unused.py": "def f():\n    g()  # kprof: unused\n"}
    view = view_of_text(case.input, {FILE: case.sources[FILE] + others, **unused})

    assert [marker.name for marker in view.markers] == [
        *("setup", "before_loop", "main", "step", "load_c", "store", "loop", "done")
    ]
    assert "marker(elsewhere)" not in candidates(view)


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

    runs = make_plan(view, parse_selectors(["marker"]), Style("runs"))
    assert len(runs.scopes) >= len(once.scopes)
    assert not any(scope.crosses for scope in runs.scopes)
