"""Putting records in and taking them out again, on every fixture; Triton's parser judges the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import triton
from golden import fixture_id, fixtures, installed_fixtures, kernel_of, one_of_each_kernel, parse_with_triton, read
from planning import SELECTOR_SETS, fixture_view, plans_of, view_of_text

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

FIXTURES = fixtures()
VERSIONS = sorted({path.parts[-3] for path in FIXTURES})
TARGETS = sorted({path.parts[-2] for path in FIXTURES})


@cache
def view(path: Path) -> ModuleView:
    """A fixture with its sources, parsed once for all tests."""
    return fixture_view(read(path))


def check(module: Module, plan: Plan) -> None:
    """Inserting adds the plan's lines and changes no other, and stripping removes them."""
    newline = module.newline
    instrumented = apply(module, plan)

    lines = instrumented.split(newline)
    assert [line for line in lines if is_record(line)] == [record.line for record in plan.records]
    assert newline.join(line for line in lines if not is_record(line)) == module.text
    assert strip(parse(instrumented)) == module.text


EVENTS = """\
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32, ttg.target = "cuda:90", \
"ttg.threads-per-warp" = 32 : i32} {
  tt.func public @k(%p: !tt.ptr<i32>, %n: i32) {
    %ticket = proton.allocate_event "load" : i32 loc("k.py":3:1)
    proton.event start %ticket : i32
    tt.store %p, %n : !tt.ptr<i32>
    proton.event end %ticket : i32
    tt.return
  }
}
"""
STORE = "    tt.store %p, %n : !tt.ptr<i32>\n"


@pytest.mark.triton
@pytest.mark.skipif(triton.__version__ < "3.9", reason="earlier ones have no events")
@pytest.mark.parametrize("text", [EVENTS, EVENTS.replace(STORE, STORE.replace("%n", "%ticket"))], ids=["", "passed on"])
def test_events_of_protons_own_language_are_stripped(text: str, tmp_path: Path) -> None:
    stripped = strip(parse(text))
    path = tmp_path / "stripped.ttgir"
    path.write_text(stripped)

    assert "proton" not in stripped and "tt.store" in stripped
    parse_with_triton(path)


def test_the_number_of_an_event_that_is_passed_on_becomes_a_constant() -> None:
    text = EVENTS.replace(STORE, STORE.replace("%n", "%ticket"))

    assert strip(parse(EVENTS)).splitlines()[2:4] == [STORE.rstrip(), "    tt.return"]
    assert strip(parse(text)).splitlines()[2:4] == [
        '    %ticket = arith.constant 0 : i32 loc("k.py":3:1)',
        "    tt.store %p, %ticket : !tt.ptr<i32>",
    ]


def some_plans_of(path: Path) -> Iterator[Plan]:
    """Every fifth of a fixture's plans, others for each target and for each Triton version: a kernel gets them all."""
    version, target = path.parts[-3:-1]
    return plans_of(view(path), SELECTOR_SETS[(VERSIONS.index(version) + TARGETS.index(target)) % 5 :: 5])


def is_record(line: str) -> bool:
    return line.lstrip().startswith("proton.record")


@pytest.mark.parametrize("path", FIXTURES, ids=fixture_id)
def test_inserting_adds_the_plans_lines_and_stripping_removes_them(path: Path) -> None:
    structure = make_plan(view(path), parse_selectors(["func", "loop", "iter"]))
    has_loops = "scf.for" in read(path) or "scf.while" in read(path)
    assert {scope.site.kind for scope in structure.scopes} == ({"func", "loop", "iter"} if has_loops else {"func"})

    for plan in some_plans_of(path):
        check(view(path).module, plan)


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", FIXTURES, ids=fixture_id)
def test_so_it_is_with_every_plan(path: Path) -> None:
    for plan in plans_of(view(path)):
        check(view(path).module, plan)


CRLF = [path for path in installed_fixtures() if kernel_of(path) in ("while_if", "inline_asm", "marked_attention")]


@pytest.mark.parametrize("path", CRLF, ids=fixture_id)
def test_lines_end_as_they_did(path: Path) -> None:
    crlf = fixture_view(read(path).replace("\n", "\r\n"))
    for plan, unix in zip(plans_of(crlf), plans_of(view(path)), strict=True):
        check(crlf.module, plan)
        assert [record.line for record in plan.records] == [record.line for record in unix.records]


@pytest.mark.triton
@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_triton_sees_the_plans_records_and_nothing_else_new(path: Path, tmp_path: Path) -> None:
    before = operations(path)
    for number, plan in enumerate(some_plans_of(path)):
        instrumented = tmp_path / f"{number}.ttgir"
        instrumented.write_bytes(apply(view(path).module, plan).encode())

        assert operations(instrumented) == before + Counter({"proton.record": len(plan.records)})


@pytest.mark.triton
@pytest.mark.parametrize("path", one_of_each_kernel(), ids=fixture_id)
def test_records_that_triton_printed_are_stripped(path: Path, tmp_path: Path) -> None:
    plan = make_plan(view(path), parse_selectors(["func", "loop", "iter"]))
    instrumented = tmp_path / "instrumented.ttgir"
    instrumented.write_bytes(apply(view(path).module, plan).encode())

    text = printed(instrumented)
    assert Counter(line.strip() for line in text.splitlines() if is_record(line)) == Counter(
        record.line.strip() for record in plan.records
    )
    assert strip(parse(text)) == printed(path)


def operations(path: Path) -> Counter[str]:
    """How often Triton's parser sees each operation."""
    names: Counter[str] = Counter()
    parse_with_triton(path).walk(lambda operation: names.update([operation.get_name()]))
    return names


def printed(path: Path) -> str:
    """The file as Triton prints it. It goes without locations, whose numbers a record may change."""
    return str(parse_with_triton(path).str_nodebug())


def test_a_plan_of_nothing_changes_nothing() -> None:
    text = "module {\n  tt.func @k() {\n    tt.return\n  }\n}"
    plan = make_plan(view_of_text(text), parse_selectors(["loop"]))

    assert apply(parse(text), plan) == text


def test_stripping_what_has_no_records_changes_nothing() -> None:
    text = "// proton.record\nmodule {\r\n  tt.func @k() {\n    tt.return\n\n  } // end\n}"

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
