"""What integers cost: of arithmetic on data, what no compiler can leave out."""

from __future__ import annotations

from pathlib import Path

import pytest
from text_cases import facts_in
from work_facts import work_named

from kprof_inject.analysis.limits.operation_work import NO_WORK, Work, work_with_integers
from kprof_inject.ttgir.parser import parse

WORK = facts_in(Path(__file__).with_name("integer_work.txt"))
TENSOR = "tensor<128xi32, #b>"
LOADED = f"""\
    %x = tt.load %p : tensor<128x!tt.ptr<i32>, #b>
    %y = tt.load %q : tensor<128x!tt.ptr<i32>, #b>
    %c1 = arith.constant dense<1> : {TENSOR}
    %c3 = arith.constant dense<3> : {TENSOR}
    %c16 = arith.constant dense<16> : {TENSOR}
    %c77 = arith.constant dense<77> : {TENSOR}
    %mask = arith.constant dense<255> : {TENSOR}
"""


def work_in(*lines: str) -> Work:
    """Of a kernel with these lines, for each of its 128 elements."""
    body = "\n".join(f"    {line}" for line in lines)
    text = f"module {{\n  tt.func public @k(%p: i32, %q: i32) {{\n{LOADED}{body}\n    tt.return\n  }}\n}}\n"
    total = NO_WORK
    for work in work_with_integers(parse(text)).values():
        total += work
    return total * (1 / 128)


def two(result: str, name: str, one: str, other: str) -> str:
    return f"{result} = arith.{name} {one}, {other} : {TENSOR}"


@pytest.mark.parametrize("name", WORK)
def test_what_instructions_are_sure(name: str) -> None:
    text, work = WORK[name]
    assert work_in(text) == work_named(work)


def test_sizes_count_by_words() -> None:
    wide = "tensor<128xi64, #b>"
    lines = [f"%w = arith.extsi %x : {TENSOR} to {wide}", f"%z = arith.xori %w, %w : {wide}"]
    assert work_in(*lines) == Work(logic=1)
    narrow = "tensor<128xi8, #b>"
    assert work_in(f"%n = arith.trunci %x : {TENSOR} to {narrow}", f"%z = arith.xori %n, %n : {narrow}").logic == 0.25


def test_addresses_and_masks_cost_nothing() -> None:
    lines = [
        "%r = tt.make_range {end = 128 : i32, start = 0 : i32} : tensor<128xi32, #b>",
        two("%o", "muli", "%r", "%c3"),
        two("%n", "xori", "%o", "%r"),
        two("%s", "xori", "%x", "%c3"),
        "%a = tt.addptr %p, %s : tensor<128x!tt.ptr<i32>, #b>, tensor<128xi32, #b>",
    ]
    assert work_in(*lines) == NO_WORK
