"""The names of values: what an operation is given, what a region calls its arguments, and where a value is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import argument_names, constant_of, definition_of, operand_names, result_names

TEXT = """\
module {
  tt.func public @k(%p: !tt.ptr<i32> {tt.divisibility = 16 : i32} loc("%p: a"), %n: i32, %arg-2: f32) {
    %c = arith.constant 1 : i32
    %pair:2 = scf.for %i = %c to %n step %c iter_args(%a = %c, %b = %n) -> (i32, i32)  : i32 {
      %sum = arith.addi %a, %i : i32 loc("%other"(#loc))
      scf.yield %sum, %b : i32, i32
    }
    %whole = arith.addi %pair#1, %c : i32
    tt.print "%hidden: " {hex = false} : %whole : i32
    ttg.warp_specialize(%whole, %p) attributes {requestedRegisters = array<i32: 24>}
    default {
      ttg.warp_yield
    }
    partition0(%mine: i32, %to: !tt.ptr<i32>) num_warps(1) {
      tt.store %to, %mine : !tt.ptr<i32>
      ttg.warp_return
    } : (i32, !tt.ptr<i32>) -> ()
    %end = scf.while (%w = %whole) : (i32) -> i32 {
      %go = arith.cmpi slt, %w, %n : i32
      scf.condition(%go) %w : i32
    } do {
    ^bb0(%x: i32, %y: i32):
      scf.yield %x : i32
    }
    tt.return
  }
}
"""


@pytest.fixture(scope="module")
def module() -> Module:
    return parse(TEXT)


def of_name(module: Module, name: str) -> Operation:
    """The first operation of this name, of those that give nothing, or the one that gives a value of it."""
    return next(one for one in module.walk() if name in (one.name, *result_names(one)))


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("%c", []),
        ("%sum", ["%a", "%i"]),
        ("%whole", ["%pair#1", "%c"]),
        ("tt.print", ["%whole"]),
        ("tt.store", ["%to", "%mine"]),
        ("scf.condition", ["%go", "%w"]),
    ],
)
def test_operands_stand_in_the_order_of_the_text(module: Module, name: str, operands: list[str]) -> None:
    assert operand_names(of_name(module, name)) == operands


def test_functions_and_regions_name_their_arguments(module: Module) -> None:
    assert argument_names(module, of_name(module, "tt.func")) == ["%p", "%n", "%arg-2"]
    default, partition = of_name(module, "ttg.warp_specialize").regions
    assert (argument_names(module, default), argument_names(module, partition)) == ([], ["%mine", "%to"])
    before, after = of_name(module, "%end").regions
    assert (argument_names(module, before), argument_names(module, after)) == ([], ["%x", "%y"])


def test_several_results_have_numbers(module: Module) -> None:
    assert result_names(of_name(module, "scf.for")) == ["%pair#0", "%pair#1"]
    assert result_names(of_name(module, "%c")) == ["%c"]
    assert result_names(of_name(module, "tt.store")) == []


@pytest.mark.parametrize(
    ("name", "user", "maker"),
    [
        ("%c", "%whole", "%c"),
        ("%pair#1", "%whole", "%pair#0"),
        ("%whole", "tt.print", "%whole"),
        ("%go", "scf.condition", "%go"),
        ("%sum", "scf.yield", "%sum"),
    ],
)
def test_a_value_is_made_by_an_operation_before(module: Module, name: str, user: str, maker: str) -> None:
    assert definition_of(name, of_name(module, user)) is of_name(module, maker)


@pytest.mark.parametrize(("name", "user"), [("%p", "%whole"), ("%a", "%sum"), ("%i", "%sum"), ("%end", "%whole")])
def test_arguments_and_what_comes_later_are_made_by_none(module: Module, name: str, user: str) -> None:
    assert definition_of(name, of_name(module, user)) is None


def test_what_is_made_around_a_region_is_found_from_inside(module: Module) -> None:
    assert definition_of("%c", of_name(module, "%sum")) is of_name(module, "%c")
    assert definition_of("%whole", of_name(module, "%go")) is of_name(module, "%whole")


# An operation, and below it its integer.
PRINTED = dict(
    pair.split("\n> ") for pair in Path(__file__).with_name("constants.txt").read_text().rstrip().split("\n\n")
)


@pytest.mark.parametrize("line", PRINTED)
def test_a_constant_is_its_integer(line: str) -> None:
    module = parse(f"module {{\n  tt.func public @k() {{\n    %x = {line}\n    tt.return\n  }}\n}}\n")
    operation = module.operations[0].regions[0].blocks[0].operations[0].regions[0].blocks[0].operations[0]
    found = constant_of(operation)

    assert ("no integer" if found is None else str(found).lower()) == PRINTED[line]
