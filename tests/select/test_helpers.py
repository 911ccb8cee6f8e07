"""``func(NAME)`` in kernels that Triton compiled; small ones are in ``cases/helpers.txt``."""

from __future__ import annotations

from pathlib import Path

import pytest
from golden import FIXTURES, fixture_id, fixtures, kernel_of, read
from planning import fixture_view

from kprof_inject.select.functions import functions_of
from kprof_inject.select.module_view import called_only_by
from kprof_inject.select.plan import make_plan
from kprof_inject.select.selectors import parse_selectors
from kprof_inject.ttgir.parser import parse

INLINED = [path for path in fixtures() if kernel_of(path) == "inlined_helpers"]


@pytest.mark.parametrize("path", INLINED, ids=fixture_id)
def test_helpers_two_levels_deep(path: Path) -> None:
    plan = make_plan(fixture_view(read(path)), parse_selectors(["func(_quantize)", "func(_absmax)"]))

    assert [(s.record, s.parent, [p.line for p in s.calls]) for s in plan.scopes] == [
        ("_quantize@35", -1, [35]),
        ("_absmax@17#0", 0, [17, 35]),
        ("_quantize@40", -1, [40]),
        ("_absmax@17#1", 2, [17, 40]),
    ]


def test_two_calls_in_a_line_of_a_real_kernel() -> None:
    view = fixture_view(read(FIXTURES / "3.6.0/cuda-90/two_calls_in_a_line.ttgir"))
    plan = make_plan(view, parse_selectors(["func(_tile)"]))

    assert [scope.record for scope in plan.scopes] == ["_tile@18#0", "_tile@18#1"]
    assert len({scope.calls[0].column for scope in plan.scopes}) == 2


CALLS = """\
module {
  tt.func public @kernel(%n: i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    scf.for %i = %c0 to %n step %c1  : i32 {
      %v = tt.call @outer(%i) : (i32) -> i32
      %w = tt.call @shared(%i) : (i32) -> i32
    }
    %x = tt.call @shared(%n) : (i32) -> i32
    tt.return
  }
  tt.func private @outer(%a: i32) -> i32 {
    %s = tt.call @inner(%a) : (i32) -> i32
    tt.return %s : i32
  }
  tt.func private @inner(%a: i32) -> i32 {
    tt.return %a : i32
  }
  tt.func private @shared(%a: i32) -> i32 {
    tt.return %a : i32
  }
}
"""


def test_functions_that_a_loop_alone_calls() -> None:
    module = parse(CALLS, "kernel.ttgir")
    functions = functions_of(module)
    (loop,) = (one for one in module.walk() if one.traits.is_loop)
    assert [one.symbol for one in called_only_by(functions, [loop])] == ["outer", "inner"]
    assert not called_only_by(functions, [])
