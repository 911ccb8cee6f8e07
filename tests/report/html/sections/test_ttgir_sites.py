"""The lines of scopes, against the plan that put records around them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kprof_inject.capture.schema import ScopeTableRecord
from kprof_inject.capture.scopes import ScopeInfo, ScopeTable
from kprof_inject.insertion import view_of
from kprof_inject.report.html.code import Range, chains_of, sites_of
from kprof_inject.select.plan import Plan, make_plan, scope_table
from kprof_inject.select.selectors import parse_selectors

SOURCES = Path(__file__).parents[4] / "ttgir_fixtures" / "kernels"
FIXTURES = SOURCES.parent / "3.6.0"
KERNELS = [
    "cuda-90/attention",
    "cuda-90/matmul",
    "cuda-90/inlined_helpers",
    "cuda-90/loop_in_if",
    "cuda-90/layer_norm_backward",
    "cuda-90/gluon_warp_specialized",
    "hip-gfx942/attention",
    "hip-gfx942/matmul",
]


def planned(path: Path, *selectors: str) -> tuple[str, Plan, list[list[Range]]]:
    """The text, its plan, and what is found of the plan's scopes."""
    text = path.read_text()
    source = SOURCES / f"{path.stem}.py"
    view = view_of(text, str(path), {f"/kprof-inject/ttgir_fixtures/kernels/{source.name}": source.read_text()})
    plan = make_plan(view, parse_selectors(selectors))
    lines = text.split("\n")
    scopes = ScopeTable.of(msgspec.convert(scope_table(plan), ScopeTableRecord)).scopes
    return text, plan, sites_of(scopes, lines, chains_of(lines))


def lines_between(text: str, start: int, end: int) -> Range:
    """The first and the last line that begin between two offsets."""
    return text.count("\n", 0, start), text.count("\n", 0, end) - 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_loops_are_found_where_their_records_stand(kernel: str) -> None:
    text, plan, sites = planned(FIXTURES / f"{kernel}.ttgir", "loop", "func")
    for scope, found in zip(plan.scopes, sites, strict=True):
        first, last = lines_between(text, scope.site.start.offset, scope.site.last_end_offset)
        if scope.site.kind == "loop":
            assert (first, last) in found
        else:
            # The head, the terminator and the brace are the function's too.
            assert any(begin < first and last < end for begin, end in found)


@pytest.mark.parametrize("kernel", ["attention", "matmul", "layer_norm_backward"])
def test_iterations_stand_in_the_lines_of_their_loop(kernel: str) -> None:
    text, plan, sites = planned(FIXTURES / "cuda-90" / f"{kernel}.ttgir", "iter")
    assert plan.scopes
    for scope, found in zip(plan.scopes, sites, strict=True):
        first, last = lines_between(text, scope.site.start.offset, scope.site.last_end_offset)
        assert any(begin < first and last < end for begin, end in found)


@pytest.mark.parametrize("kernel", ["attention", "matmul", "layer_norm_backward"])
def test_operations_are_among_those_of_their_line_with_that_name(kernel: str) -> None:
    text, plan, sites = planned(FIXTURES / "cuda-90" / f"{kernel}.ttgir", "op(tt.load)", "op(tt.store)", "op(*dot)")
    assert plan.scopes
    lines = text.split("\n")
    for scope, found in zip(plan.scopes, sites, strict=True):
        first, last = lines_between(text, scope.site.start.offset, scope.site.last_end_offset)
        assert any(begin <= first and last <= end for begin, end in found)
        assert all(scope.site.label in lines[line] for begin, end in found for line in range(begin, end + 1))


def test_an_inlined_helper_is_what_its_call_leads_to() -> None:
    text, plan, sites = planned(FIXTURES / "cuda-90" / "attention.ttgir", "func(_attn_inner)")
    assert len(plan.scopes) == 2
    for scope, found in zip(plan.scopes, sites, strict=True):
        first, last = lines_between(text, scope.site.start.offset, scope.site.last_end_offset)
        covered = {line for begin, end in found for line in range(begin, end + 1)}
        assert len(covered & set(range(first, last + 1))) > 0.9 * (last + 1 - first)


def scope(kind: str, line: int, parent: int = -1) -> ScopeInfo:
    return ScopeInfo("", "", kind, f"k.py:{line}" if line else "", (), parent)


def test_a_scope_has_the_lines_within_what_it_stands_in() -> None:
    lines = [
        '%a = tt.load %p loc("k.py":8:1)',
        "scf.for %i = %x to %y {",
        '  %b = tt.load %p loc("k.py":8:1)',
        '  %c = tt.addptr %p loc("k.py":8:1)',
        '} loc("k.py":7:1)',
    ]
    scopes = [scope("iter", 7), scope("marker", 8, 0), scope("marker", 8), scope("marker", 99), scope("marker", 0)]
    assert sites_of(scopes, lines, chains_of(lines)) == [[(1, 4)], [(2, 3)], [(0, 0), (2, 3)], [], []]
