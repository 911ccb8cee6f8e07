"""Places of the records that ``cases/record_places.txt`` does not have."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from planning import insertion_of, plan_of
from small_modules import TWO_RECORDS

from kprof_inject.select.plan import BODY_RECORD
from kprof_inject.select.spans import USUAL_STYLE, Style

HEAD, TAIL = "module {\n  tt.func public @k(%n: i32) {\n", "  }\n}\n"
LOOP = "scf.for %i = %a to %n step %c  : i32 {\n}\n"


def instrumented(text: str, *selectors: str, style: Style = USUAL_STYLE) -> str:
    return insertion_of(text, *selectors, style=style).text


def inserted(body: str, *selectors: str, style: Style = USUAL_STYLE) -> str:
    """A kernel's body with its records, less those around a body that nobody selected."""
    lines = all_inserted(body, *selectors, style=style).splitlines(keepends=True)
    return "".join(line for line in lines if BODY_RECORD not in line)


def all_inserted(body: str, *selectors: str, style: Style = USUAL_STYLE) -> str:
    text = instrumented(kernel(body), *selectors, style=style)
    return dedent(text.removeprefix(HEAD).removesuffix(TAIL))


def kernel(body: str) -> str:
    return HEAD + indent(dedent(body), "    ") + TAIL


@pytest.mark.parametrize(
    "work",
    [
        "%more = tt.load %p : !tt.ptr<i1>",
        "scf.if %c {\n}",
        "%y = arith.addi %x, %x : tensor<16xi32, #b>\ntt.store %q, %y : tensor<16x!tt.ptr<i32>, #b>",
    ],
    ids=["load", "if", "store"],
)
@pytest.mark.parametrize("style", [USUAL_STYLE, TWO_RECORDS], ids=["one", "two"])
def test_an_iteration_of_while_ends_before_the_work_of_the_condition(work: str, style: Style) -> None:
    head = (
        f"%0 = scf.while (%x = %n) : (i32) -> i32 {{\n{indent(work, '  ')}\n  scf.condition(%more) %x : i32\n}} do {{\n"
    )

    assert inserted(f"{head}^bb0(%x: i32):\n  scf.yield %x : i32\n}}\ntt.return\n", "iter", style=style) == (
        f'{head}^bb0(%x: i32):\n  proton.record start "iter[0]"\n  proton.record end "iter[0]"\n'
        "  scf.yield %x : i32\n}\ntt.return\n"
    )


def test_records_stand_around_a_body_that_is_not_selected() -> None:
    body = """\
      cf.cond_br %c, ^bb1, ^bb2
    ^bb1:  // pred: ^bb0
      tt.return
    ^bb2:  // pred: ^bb0
      tt.store %p, %n : !tt.ptr<i32>
      tt.return
    """

    assert all_inserted(body, "op(tt.store)") == dedent("""\
          proton.record start "kernel body"
          cf.cond_br %c, ^bb1, ^bb2
        ^bb1:  // pred: ^bb0
          proton.record end "kernel body"
          tt.return
        ^bb2:  // pred: ^bb0
          proton.record start "tt.store"
          tt.store %p, %n : !tt.ptr<i32>
          proton.record end "tt.store"
          proton.record end "kernel body"
          tt.return
        """)
    assert BODY_RECORD not in all_inserted(body, "op(tt.store)", "func=all")
    assert plan_of(kernel(body), "loop").records == ()


def test_no_records_stand_around_a_body_that_is_never_left() -> None:
    body = f"{LOOP}cf.br ^bb1\n^bb1:\ncf.br ^bb1\n"

    assert all_inserted(body, "loop") == body.replace(
        LOOP, f'proton.record start "loop[0]"\n{LOOP}proton.record end "loop[0]"\n'
    )


def test_the_order_of_selectors_does_not_move_records() -> None:
    body = "scf.for %i = %a to %n step %c  : i32 {\n  scf.for %j = %a to %n step %c  : i32 {\n  }\n}\ntt.return\n"

    assert inserted(body, "iter", "loop", "func") == inserted(body, "func", "loop", "iter")
