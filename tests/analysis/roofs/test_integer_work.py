"""What integers cost: of arithmetic on data, what no compiler can leave out."""

from __future__ import annotations

import pytest

from kprof_inject.analysis.roofs.integer_work import work_with_integers
from kprof_inject.analysis.roofs.operation_work import NO_WORK, Work
from kprof_inject.ttgir.parser import parse

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


@pytest.mark.parametrize(
    ("lines", "work"),
    [
        ([two("%z", "xori", "%x", "%y")], Work(logic=1)),
        # Three operands are one instruction; a value that is used twice is computed.
        ([two("%z", "xori", "%x", "%y"), two("%w", "andi", "%z", "%x")], Work(logic=1)),
        (
            [two("%z", "xori", "%x", "%y"), two("%w", "andi", "%z", "%x"), two("%v", "shrui", "%z", "%c3")],
            Work(logic=3),
        ),
        # A rotation, and bits that are taken out.
        (
            [two("%l", "shli", "%x", "%c3"), two("%r", "shrui", "%x", "%c3"), two("%o", "ori", "%l", "%r")],
            Work(logic=1),
        ),
        ([two("%r", "shrui", "%x", "%c3"), two("%o", "andi", "%r", "%mask")], Work(logic=1)),
        ([two("%r", "shrui", "%x", "%c16")], NO_WORK),
        ([two("%r", "shrui", "%x", "%y"), two("%o", "andi", "%r", "%c77")], Work(logic=2)),
        # Whole bytes can be taken from where they are; a test of bits is one instruction.
        ([two("%o", "andi", "%x", "%mask")], NO_WORK),
        ([two("%o", "andi", "%x", "%c77"), f"%c = arith.cmpi ne, %o, %c3 : {TENSOR}"], Work(logic=1)),
        ([two("%r", "shrui", "%x", "%c3"), f"%c = arith.trunci %r : {TENSOR} to tensor<128xi1, #b>"], NO_WORK),
        ([two("%l", "shli", "%x", "%c16"), two("%o", "ori", "%l", "%y")], NO_WORK),
        ([two("%m", "minsi", "%x", "%y"), two("%n", "maxsi", "%m", "%c3")], Work(logic=1)),
        ([two("%z", "muli", "%x", "%c3")], NO_WORK),
        ([two("%z", "muli", "%x", "%c77")], Work(integer_multiplications=1)),
        ([two("%z", "muli", "%x", "%c16")], NO_WORK),
        ([f"%z = tt.mulhiui %x, %y : {TENSOR}"], Work(integer_multiplications=1, upper_halves=1)),
        ([two("%z", "divsi", "%x", "%y")], Work(integer_multiplications=1)),
        ([two("%z", "divsi", "%x", "%c16")], NO_WORK),
        (
            [
                f"%c = arith.cmpi sgt, %x, %y : {TENSOR}",
                f"%z = arith.select %c, %x, %y : tensor<128xi1, #b>, {TENSOR}",
            ],
            Work(logic=1),
        ),
        ([f"%c = arith.cmpi sgt, %x, %y : {TENSOR}"], Work(logic=1)),
        # Sums may be parts of products, addresses, bounds: of these, none is sure.
        ([two("%z", "addi", "%x", "%y")], NO_WORK),
        # What is combined bit by bit with what a reduction made of the same may be the other one again.
        (
            [
                '%h = "tt.reduce"(%x) <{axis = 0 : i32}> ({',
                "^bb0(%a: i32, %b: i32):",
                "  %t = arith.xori %a, %b : i32",
                "  tt.reduce.return %t : i32",
                f"}}) : ({TENSOR}) -> tensor<1xi32, #b>",
                f"%i = tt.broadcast %h : tensor<1xi32, #b> -> {TENSOR}",
                two("%z", "xori", "%x", "%i"),
            ],
            NO_WORK,
        ),
    ],
)
def test_what_instructions_are_sure(lines: list[str], work: Work) -> None:
    assert work_in(*lines) == work


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
