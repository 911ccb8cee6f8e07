"""Records between operations that share a line: stripping leaves no trace of them."""

from __future__ import annotations

from collections import Counter

import pytest
from planning import view_of_text
from shared_lines import BESIDE_OPERATIONS, DENSE, SELECTIONS, WITHOUT_RECORDS, kernel_of

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("text", [WITHOUT_RECORDS, DENSE], ids=["blanks", "no blanks"])
def test_records_between_operations_of_one_line(text: str, newline: str) -> None:
    text = text.replace("\n", newline)
    view = view_of_text(text)
    names = Counter(operation.name for operation in view.module.walk())
    inserted = 0
    for selectors in SELECTIONS:
        plan = make_plan(view, parse_selectors(selectors))
        instrumented = apply(view.module, plan)

        found = Counter(operation.name for operation in parse(instrumented).walk())
        assert found == names + Counter({"proton.record": len(plan.records)})
        assert strip(parse(instrumented)) == text
        inserted += len(plan.records)
    assert inserted > 20


def test_a_record_stands_where_its_operation_does() -> None:
    view = view_of_text(DENSE)
    plan = make_plan(view, parse_selectors(["op(arith.constant)=c", "iter"]))

    assert apply(view.module, plan).splitlines() == [
        'module{tt.func public @k(%n: i32, %c: i1){ proton.record start "kernel body" proton.record start "c#0"'
        '%a = arith.constant 1 : i32 proton.record end "c#0" proton.record start "c#1"%b = arith.constant 2 : i32',
        'proton.record end "c#1"',
        'scf.for %i = %a to %n step %b : i32{ proton.record start "iter[0]"scf.if %c{gpu.barrier}else{gpu.barrier}} '
        'proton.record end "iter[0]"scf.for %j = %a to %n step %b : i32{ proton.record start "iter[1]"}',
        'proton.record end "iter[1]"',
        'proton.record end "kernel body"',
        "tt.return}}",
    ]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("records", "stripped"), BESIDE_OPERATIONS)
def test_records_that_someone_else_put_beside_operations(records: str, stripped: str, newline: str) -> None:
    lines = strip(parse(kernel_of(records).replace("\n", newline))).split(newline)
    assert [line.rstrip(" ") for line in lines] == kernel_of(stripped).split("\n")
