"""The values that are visible at a place."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import beside, fixture_id, fixtures, form_of, read

from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.scalars import Scalar, scalars_at

TEXT = """\
#loc1 = loc("k.py":5:1)
#loc2 = loc("tile"(#loc1))
#loc3 = loc(callsite("h.py":2:1 at #loc2))
module {
  tt.func public @k(%p: !tt.ptr<i32>, %n: i32 loc("n"("k.py":1:0))) {
    %c = arith.constant 4 : i32 loc(#loc1)
    %tile = tt.get_program_id x : i32 loc(#loc2)
    %tile_0 = arith.divsi %tile, %c : i32 loc(#loc3)
    %0 = tt.load %p : !tt.ptr<i32> loc("k.py":6:1)
    %q = tt.addptr %p, %0 : !tt.ptr<i32>, i32 loc("q"("k.py":7:1))
    %1:2 = scf.for %i = %c to %n step %c iter_args(%tile_1 = %tile_0, %t = %q) -> (i32, !ttg.async.token)  : i32 {
      %less = arith.cmpi slt, %i, %n : i32
      "here"() : () -> ()
      scf.yield %tile_1, %t : i32, !ttg.async.token
    }
    "behind"() : () -> ()
    tt.return
  }
}
"""


def operation(module: Module, name: str) -> Operation:
    return next(one for one in module.walk() if one.name == name)


def visible(name: str) -> list[Scalar]:
    module = parse(TEXT)
    return list(scalars_at(module, operation(module, name)))


def test_the_nearest_come_first_with_their_variables_lines_and_types() -> None:
    assert [(one.name, one.variable, one.line, one.type, one.distance) for one in visible("here")] == [
        ("%less", "less", 0, "i1", 0),
        ("%i", "i", 0, "i32", 0),
        ("%tile_1", "tile", 0, "i32", 0),
        ("%t", "t", 0, "", 0),
        ("%q", "q", 7, "", 1),
        ("%0", "", 6, "i32", 1),
        ("%tile_0", "tile", 5, "i32", 1),
        ("%tile", "tile", 5, "i32", 1),
        ("%c", "", 5, "i32", 1),
        ("%p", "p", 0, "", 1),
        ("%n", "n", 1, "i32", 1),
    ]


def test_a_loop_gives_its_results_and_hides_what_is_in_it() -> None:
    names = {one.name: one.type for one in visible("behind")}
    assert (names["%1#0"], names["%1#1"]) == ("i32", "")
    assert not {"%i", "%tile_1", "%less"} & names.keys()


def test_an_operation_that_says_nothing_gives_no_scalar() -> None:
    text = "module {\n  tt.func public @k() {\n    %c = arith.constant\n    tt.return\n  }\n}\n"
    module = parse(text)
    assert [(one.name, one.type) for one in scalars_at(module, operation(module, "tt.return"))] == [("%c", "")]


GENERIC = [path for path in fixtures() if form_of(path) == "generic"]


@pytest.mark.parametrize("path", GENERIC, ids=fixture_id)
def test_the_generic_form_has_the_same_integers(path: Path) -> None:
    """Behind each loop, and at its end: as many of each type as in the usual form."""
    (usual,) = (one for one in fixtures() if fixture_id(one) == fixture_id(beside(path, "")))
    kinds = [[_kinds_around(module, loop) for loop in _loops(module)] for module in map(_parsed, (path, usual))]

    assert kinds[0] == kinds[1]


def _parsed(path: Path) -> Module:
    return parse(read(path), str(path))


def _loops(module: Module) -> list[Operation]:
    return [one for one in module.walk() if one.traits.is_loop]


def _kinds_around(module: Module, loop: Operation) -> list[list[str]]:
    """Return the types of all values visible right behind a loop and before the last operation of its body."""
    assert loop.block is not None
    behind = loop.block.operations[loop.block.operations.index(loop) + 1]
    places = [behind, *loop.regions[-1].blocks[-1].operations[-1:]]
    return [sorted(one.type for one in scalars_at(module, place) if one.name) for place in places]
