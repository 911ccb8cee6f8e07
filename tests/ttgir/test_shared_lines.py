"""Records between operations that share a line: Triton reads them, and stripping leaves no trace of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from golden import our_tree, parse_with_triton, triton_tree
from planning import view_of_text
from ttgir_forms import ONE_LINE

from kprof_inject.rewrite import apply, strip
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse

WITHOUT_RECORDS = ONE_LINE.text.replace('proton.record start "x" ', "")
DENSE = """\
module{tt.func public @k(%n: i32, %c: i1){%a = arith.constant 1 : i32%b = arith.constant 2 : i32
scf.for %i = %a to %n step %b : i32{scf.if %c{gpu.barrier}else{gpu.barrier}}scf.for %j = %a to %n step %b : i32{}
tt.return}}
"""
SELECTIONS = (
    ["func"],
    ["func", "loop", "iter"],
    ["op(*)"],
    ["op(arith.*)", "op(gpu.barrier)"],
    ["partition", "default", "func(helper)"],
)


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("text", [WITHOUT_RECORDS, DENSE], ids=["blanks", "no blanks"])
def test_records_between_operations_of_one_line(text: str, newline: str, tmp_path: Path) -> None:
    text = text.replace("\n", newline)
    view = view_of_text(text)
    path = tmp_path / "kernel.ttgir"
    path.write_bytes(text.encode())
    names = Counter(operation.name for operation in view.module.walk())
    inserted = 0
    for selectors in SELECTIONS:
        plan = make_plan(view, parse_selectors(selectors))
        instrumented = apply(view.module, plan)
        path.write_bytes(instrumented.encode())

        assert our_tree(parse(instrumented)) == triton_tree(path)
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


@pytest.mark.parametrize(
    ("records", "stripped"),
    [
        ('    gpu.barrier proton.record start "a"\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
        ('    proton.record start "a" gpu.barrier\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
        ('    proton.record start "a" proton.record end "a"\n    tt.return\n', "    tt.return\n"),
        ('    gpu.barrier proton.record start "a" // why\n    tt.return\n', "    gpu.barrier\n    tt.return\n"),
        ('  gpu.barrier proton.record start "a"\n  proton.record end "a" tt.return\n', "  gpu.barrier\n  tt.return\n"),
    ],
)  # fmt: skip
def test_records_that_someone_else_put_beside_operations(records: str, stripped: str, tmp_path: Path) -> None:
    around = "module {{\n  tt.func public @k() {{\n{}  }}\n}}\n"
    path = tmp_path / "kernel.ttgir"
    without = strip(parse(around.format(records)))
    path.write_text(without)

    parse_with_triton(path)
    assert without.split() == around.format(stripped).split()
