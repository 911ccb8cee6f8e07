"""Statements and headers over several lines: the first line finds what Triton locates on any of them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from golden import distinct, fixture_id, fixtures, form_of, kernel_of, read
from planning import fixture_view, plan_of
from small_modules import FILE, kernel, sequence

from kprof_inject.select.plan import make_plan
from kprof_inject.select.python_source import Sources
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.locations import SourcePoint

MARKED_HEADERS = [path for path in fixtures() if kernel_of(path) == "marked_headers" and not form_of(path)]
WITH_LOOPS = [path for path in distinct(fixtures()) if "scf.for" in read(path) or "scf.while" in read(path)]
LOOPS = {"tiles": 38, "rows": 53, "parts": 57, "halve": 66}
STATEMENTS = {"load_x": 44, "positive": 75, "store_level": 85}

LOOP = "scf.for %i = %a to %n step %c  : i32 {"
LOAD = "%x = tt.load %p : !tt.ptr<f32>"
STORE = "tt.store %p, %x : !tt.ptr<f32>"

SOURCE = """\
@triton.jit
def k(
    x, n
):
    a = tl.load(
        x
    )
    # a comment
    for i in range(
        0,  # from here
        n,
    ):
        tl.store(
            x,
            a)
    tl.store(x, a); tl.store(x, \\
        a)
"""


def selected(text: str, selector: str) -> str:
    return sequence(text, f"{selector}=here", sources={FILE: SOURCE})


@pytest.mark.parametrize("line", [9, 10, 11])
def test_a_loop_is_found_by_the_first_line_of_its_header(line: int) -> None:
    text = kernel(LOOP, f"  {STORE} @13", f"}} @{line}")

    assert selected(text, "loop@9") == "[here scf.for tt.store } here] tt.return"
    assert selected(text, "line(9)") == "[here scf.for tt.store } here] tt.return"
    assert selected(text, "iter@k.py:9") == "scf.for [here tt.store } here] tt.return"


@pytest.mark.parametrize("line", [4, 8, 12, 13])
def test_lines_around_a_header_do_not_find_it(line: int) -> None:
    text = kernel(LOOP, f"  {STORE} @15", "} @11")

    assert not plan_of(text, f"loop@{line}", sources={FILE: SOURCE}).scopes


@pytest.mark.parametrize("line", [5, 6])
def test_a_statement_is_found_by_its_first_line(line: int) -> None:
    assert selected(kernel(f"{LOAD} @{line}", f"{STORE} @16"), "line(5)") == "[here tt.load here] tt.store tt.return"


def test_a_line_inside_a_statement_is_that_line_alone() -> None:
    text = kernel(f"{LOAD} @6", f"{STORE} @13", f"{STORE} @15")

    assert selected(text, "line(14-15)") == "tt.load tt.store [here tt.store here] tt.return"
    assert selected(text, "line(13)") == "tt.load [here tt.store tt.store here] tt.return"


def test_statements_that_share_a_line_are_selected_together() -> None:
    assert selected(kernel(f"{LOAD} @6", f"{STORE} @17"), "line(16)") == "tt.load [here tt.store here] tt.return"


@pytest.mark.parametrize("path", MARKED_HEADERS, ids=fixture_id)
def test_every_shape_of_header_that_a_compiler_located(path: Path) -> None:
    view = fixture_view(read(path))
    selectors = [f"loop@{line}={name}" for name, line in LOOPS.items()]
    selectors += [f"line({line})={name}" for name, line in STATEMENTS.items()]
    by_line = make_plan(view, parse_selectors(selectors))
    by_marker = make_plan(view, parse_selectors(["marker"]))

    assert {scope.name for scope in by_line.scopes} == {*LOOPS, *STATEMENTS}
    assert {scope.name for scope in by_marker.scopes} == {*LOOPS, *STATEMENTS, "tile", "half", "before_add"}
    assert not any(selection.findings.dropped for selection in by_marker.selections)
    starts = {scope.name: site.start for scope, site in zip(by_marker.scopes, by_marker.sites, strict=True)}
    for scope, site in zip(by_line.scopes, by_line.sites, strict=True):
        assert scope.name not in LOOPS or starts[scope.name] == site.start


@pytest.mark.parametrize("path", WITH_LOOPS, ids=fixture_id)
def test_every_loop_of_a_fixture_is_found_by_its_first_line(path: Path) -> None:
    view = fixture_view(read(path))
    found: dict[str, set[int]] = {}
    for function in view.functions:
        for loop in function.loops:
            for point in function.source_of(loop.operation)[:1]:
                first = _first_line_of_loop(view.sources, point)
                if first:
                    found.setdefault(f"loop@{point.file}:{first}", set()).add(loop.operation.start)

    assert found
    for selector, loops in found.items():
        plan = make_plan(view, parse_selectors([selector]))
        assert loops <= {start for selection in plan.selections for start in selection.findings.covered}


def _first_line_of_loop(sources: Sources, point: SourcePoint) -> int:
    """Return the line of the ``for`` or ``while`` whose header holds a point, as Python parses it; 0 if none does."""
    text = sources.texts.get(point.file)
    loops = (node for node in ast.walk(ast.parse(text or "")) if isinstance(node, ast.For | ast.While))
    ends = {node.lineno: (node.iter if isinstance(node, ast.For) else node.test).end_lineno or 0 for node in loops}
    return next((first for first, last in ends.items() if first <= point.line <= last), 0)
