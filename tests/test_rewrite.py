"""Putting records in and taking them out again, on every fixture."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import NEWEST, distinct, fixture_id, fixtures, kernel_of, read
from planning import fixture_view, plans_of, view_of_text
from rewriting import inserted_lines, is_record, some_plans_of, view

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

FIXTURES = fixtures()


def check(module: Module, plan: Plan) -> None:
    """Inserting adds the plan's lines and changes no other, and stripping removes them."""
    newline = module.newline
    instrumented = apply(module, plan)

    lines = instrumented.split(newline)
    assert [line for line in lines if is_record(line)] == inserted_lines(plan, newline)
    assert newline.join(line for line in lines if not is_record(line)) == module.text
    assert strip(parse(instrumented)) == module.text


@pytest.mark.parametrize("path", distinct(FIXTURES), ids=fixture_id)
def test_inserting_adds_the_plans_lines_and_stripping_removes_them(path: Path) -> None:
    structure = make_plan(view(path), parse_selectors(["func", "loop", "iter"]))
    has_loops = "scf.for" in read(path) or "scf.while" in read(path)
    # The only loop of the tutorial's layer norm waits for a lock.
    loop = "spin" if kernel_of(path) == "layer_norm_backward" else "loop"
    assert {scope.kind for scope in structure.scopes} == ({"func", loop, "iter"} if has_loops else {"func"})

    for plan in some_plans_of(path):
        check(view(path).module, plan)


CRLF = [path for path in fixtures(NEWEST) if kernel_of(path) in ("while_if", "inline_asm", "marked_attention")]


@pytest.mark.parametrize("path", CRLF, ids=fixture_id)
def test_lines_end_as_they_did(path: Path) -> None:
    crlf = fixture_view(read(path).replace("\n", "\r\n"))
    for plan, unix in zip(plans_of(crlf), plans_of(view(path)), strict=True):
        check(crlf.module, plan)
        assert [record.line for record in plan.records] == [record.line for record in unix.records]


def test_a_plan_of_nothing_changes_nothing_nor_does_stripping_what_has_no_records() -> None:
    text = "// proton.record\nmodule {\r\n  tt.func @k() {\n    tt.return\n\n  } // end\n}"
    assert apply(parse(text), make_plan(view_of_text(text), parse_selectors(["loop"]))) == text
    assert strip(parse(text)) == text


def test_records_are_stripped_in_every_form_and_place() -> None:
    text = """\
module {
  tt.func @k(%c: i1) {
    proton.record start "a" loc(#loc)
    scf.if %c {
proton.record end "a" // here
    } else {
      "proton.record"() <{isStart, name = "b"}> : () -> ()
      tt.print "proton.record" {hex = false}
    }
\tproton.record start "c"

    tt.return
  }
}
"""
    assert (
        strip(parse(text))
        == """\
module {
  tt.func @k(%c: i1) {
    scf.if %c {
    } else {
      tt.print "proton.record" {hex = false}
    }

    tt.return
  }
}
"""
    )
