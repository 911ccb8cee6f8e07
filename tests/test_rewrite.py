"""Putting records in and taking them out again, on every fixture; Triton's parser judges the result."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from golden import fixture_id, fixtures, installed_fixtures, parse_with_triton, read

from kprof_inject.errors import KprofError
from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import Plan, make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.parser import parse

SELECTOR_SETS = (["func"], ["loop"], ["iter"], ["func", "loop", "iter"], ["iter[0]=x", "loop=x", "func=a b"])

# Proton lowers modules of one function only, so nothing is inserted into these.
REFUSED = "noinline_helper"


def insertable(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.stem != REFUSED]


def planned(text: str, selectors: list[str]) -> tuple[Module, Plan]:
    module = parse(text)
    return module, make_plan(module, parse_selectors(selectors))


@pytest.mark.parametrize("selectors", SELECTOR_SETS, ids=" ".join)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("path", insertable(fixtures()), ids=fixture_id)
def test_inserting_adds_the_plans_lines_and_stripping_removes_them(
    path: Path, newline: str, selectors: list[str]
) -> None:
    text = read(path).replace("\n", newline)
    module, plan = planned(text, selectors)
    instrumented = apply(module, plan)

    records = [line for line in instrumented.split(newline) if line.lstrip().startswith("proton.record")]
    others = [line for line in instrumented.split(newline) if not line.lstrip().startswith("proton.record")]
    assert records == [record.line for record in plan.records]
    assert newline.join(others) == text
    assert strip(parse(instrumented)) == text


@pytest.mark.parametrize("path", insertable(fixtures()), ids=fixture_id)
def test_every_fixture_has_something_to_insert(path: Path) -> None:
    _, plan = planned(read(path), ["func", "loop", "iter"])

    has_loops = "scf.for" in read(path) or "scf.while" in read(path)
    assert {scope.site.kind for scope in plan.scopes} == ({"func", "loop", "iter"} if has_loops else {"func"})


@pytest.mark.parametrize("path", [path for path in fixtures() if path.stem == REFUSED], ids=fixture_id)
def test_the_fixture_of_two_functions_is_refused(path: Path) -> None:
    with pytest.raises(
        KprofError, match=r"^this module has 2 functions, and Proton lowers modules of one function only$"
    ):
        planned(read(path), ["func"])


@pytest.mark.parametrize("selectors", SELECTOR_SETS, ids=" ".join)
@pytest.mark.parametrize("path", insertable(installed_fixtures()), ids=fixture_id)
def test_triton_sees_the_plans_records_and_nothing_else_new(path: Path, selectors: list[str], tmp_path: Path) -> None:
    module, plan = planned(read(path), selectors)
    instrumented = tmp_path / "instrumented.ttgir"
    instrumented.write_text(apply(module, plan), newline="")

    assert operations(instrumented) - operations(path) == Counter({"proton.record": len(plan.records)})
    assert operations(path) - operations(instrumented) == Counter()
    assert Counter(records(instrumented)) == Counter(record.line.strip() for record in plan.records)


@pytest.mark.parametrize("path", insertable(installed_fixtures()), ids=fixture_id)
def test_records_that_triton_printed_are_stripped(path: Path, tmp_path: Path) -> None:
    module, plan = planned(read(path), ["func", "loop", "iter"])
    instrumented = tmp_path / "instrumented.ttgir"
    instrumented.write_text(apply(module, plan), newline="")

    assert strip(parse(printed(instrumented))) == printed(path)


def operations(path: Path) -> Counter[str]:
    """How often Triton's parser sees each operation."""
    names: Counter[str] = Counter()
    parse_with_triton(path).walk(lambda operation: names.update([operation.get_name()]))
    return names


def records(path: Path) -> list[str]:
    """The records of a file as Triton prints them."""
    return [line.strip() for line in printed(path).splitlines() if line.lstrip().startswith("proton.record")]


def printed(path: Path) -> str:
    """The file as Triton prints it. It goes without locations, whose numbers a record may change."""
    return str(parse_with_triton(path).str_nodebug())


def test_a_plan_of_nothing_changes_nothing() -> None:
    text = "module {\n  tt.func @k() {\n    tt.return\n  }\n}"
    module, plan = planned(text, ["loop"])

    assert apply(module, plan) == text


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
