"""Where each record goes: the text of small kernels before and after."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
from planning import insertion_of, plan_of
from small_modules import TWO_RECORDS

from kprof_inject.select.plan import BODY_RECORD
from kprof_inject.select.style import USUAL_STYLE, Style

EVERYTHING = ("func", "loop", "iter")
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


def check(body: str, *selectors: str, expected: str, style: Style = USUAL_STYLE) -> None:
    assert inserted(body, *selectors, style=style) == dedent(expected)


def test_a_body_of_a_return_alone() -> None:
    check(
        """\
        tt.return
        """,
        "func",
        expected="""\
        proton.record start "func"
        proton.record end "func"
        tt.return
        """,
    )


def test_adjacent_loops_end_one_before_the_other_begins() -> None:
    check(
        """\
        scf.for %i = %a to %n step %c  : i32 {
          tt.store %p, %i : !tt.ptr<i32>
        }
        scf.for %i = %a to %n step %c  : i32 {
          tt.store %p, %i : !tt.ptr<i32>
        }
        tt.return
        """,
        *EVERYTHING,
        expected="""\
        proton.record start "func"
        proton.record start "loop[0]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[0]"
          tt.store %p, %i : !tt.ptr<i32>
        }
        proton.record end "iter[0]"
        proton.record end "loop[0]"
        proton.record start "loop[1]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[1]"
          tt.store %p, %i : !tt.ptr<i32>
        }
        proton.record end "iter[1]"
        proton.record end "loop[1]"
        proton.record end "func"
        tt.return
        """,
    )


def test_a_loop_that_is_all_of_a_loops_body_stands_inside_the_iteration() -> None:
    check(
        """\
        scf.for %i = %a to %n step %c  : i32 {
          scf.for %j = %a to %n step %c  : i32 {
          }
        }
        tt.return
        """,
        *EVERYTHING,
        expected="""\
        proton.record start "func"
        proton.record start "loop[0]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[0]"
          proton.record start "loop[0.0]"
          scf.for %j = %a to %n step %c  : i32 {
            proton.record start "iter[0.0]"
          }
          proton.record end "iter[0.0]"
          proton.record end "loop[0.0]"
        }
        proton.record end "iter[0]"
        proton.record end "loop[0]"
        proton.record end "func"
        tt.return
        """,
    )


def test_with_two_records_each_iteration_ends_in_the_body() -> None:
    check(
        """\
        scf.for %i = %a to %n step %c  : i32 {
          scf.for %j = %a to %n step %c  : i32 {
          }
        }
        tt.return
        """,
        *EVERYTHING,
        style=TWO_RECORDS,
        expected="""\
        proton.record start "func"
        proton.record start "loop[0]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[0]"
          proton.record start "loop[0.0]"
          scf.for %j = %a to %n step %c  : i32 {
            proton.record start "iter[0.0]"
            proton.record end "iter[0.0]"
          }
          proton.record end "loop[0.0]"
          proton.record end "iter[0]"
        }
        proton.record end "loop[0]"
        proton.record end "func"
        tt.return
        """,
    )


def test_adjacent_loops_that_fill_a_loops_body() -> None:
    check(
        """\
        scf.for %i = %a to %n step %c  : i32 {
          scf.for %j = %a to %n step %c  : i32 {
          }
          scf.for %j = %a to %n step %c  : i32 {
          }
        }
        tt.return
        """,
        "loop",
        "iter[0]",
        style=TWO_RECORDS,
        expected="""\
        proton.record start "loop[0]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[0]"
          proton.record start "loop[0.0]"
          scf.for %j = %a to %n step %c  : i32 {
          }
          proton.record end "loop[0.0]"
          proton.record start "loop[0.1]"
          scf.for %j = %a to %n step %c  : i32 {
          }
          proton.record end "loop[0.1]"
          proton.record end "iter[0]"
        }
        proton.record end "loop[0]"
        tt.return
        """,
    )


def test_an_iteration_of_two_records_ends_before_the_yield() -> None:
    check(
        """\
        %0 = scf.for %i = %a to %n step %c iter_args(%x = %a) -> (i32)  : i32 {
          %1 = arith.addi %x, %i : i32
          scf.yield %1 : i32
        }
        %2 = scf.for %i = %a to %n step %c iter_args(%x = %a) -> (i32)  : i32 {
          scf.yield %x : i32
        }
        tt.return
        """,
        "iter",
        style=TWO_RECORDS,
        expected="""\
        %0 = scf.for %i = %a to %n step %c iter_args(%x = %a) -> (i32)  : i32 {
          proton.record start "iter[0]"
          %1 = arith.addi %x, %i : i32
          proton.record end "iter[0]"
          scf.yield %1 : i32
        }
        %2 = scf.for %i = %a to %n step %c iter_args(%x = %a) -> (i32)  : i32 {
          proton.record start "iter[1]"
          proton.record end "iter[1]"
          scf.yield %x : i32
        }
        tt.return
        """,
    )


def test_an_iteration_of_while_is_its_do_region() -> None:
    check(
        """\
        %0 = scf.while (%x = %n) : (i32) -> i32 {
          %more = arith.cmpi sgt, %x, %c : i32
          scf.condition(%more) %x : i32
        } do {
        ^bb0(%x: i32):
          %less = arith.subi %x, %c : i32
          scf.yield %less : i32
        }
        tt.return
        """,
        "loop",
        "iter",
        expected="""\
        proton.record start "loop[0]"
        %0 = scf.while (%x = %n) : (i32) -> i32 {
          %more = arith.cmpi sgt, %x, %c : i32
          scf.condition(%more) %x : i32
        } do {
        ^bb0(%x: i32):
          proton.record start "iter[0]"
          %less = arith.subi %x, %c : i32
          scf.yield %less : i32
        }
        proton.record end "iter[0]"
        proton.record end "loop[0]"
        tt.return
        """,
    )


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


def test_an_iteration_of_while_ends_before_a_scope_in_the_condition() -> None:
    body = """\
        %0 = scf.while (%x = %n) : (i32) -> i32 {
          %more = arith.cmpi sgt, %x, %c : i32
          scf.condition(%more) %x : i32
        } do {
        ^bb0(%x: i32):
          scf.yield %x : i32
        }
        tt.return
    """
    expected = """\
        %0 = scf.while (%x = %n) : (i32) -> i32 {
          proton.record start "arith.cmpi"
          %more = arith.cmpi sgt, %x, %c : i32
          proton.record end "arith.cmpi"
          scf.condition(%more) %x : i32
        } do {
        ^bb0(%x: i32):
          proton.record start "iter[0]"
          proton.record end "iter[0]"
          scf.yield %x : i32
        }
        tt.return
    """
    check(body, "iter", "op(arith.cmpi)", expected=expected)


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


@pytest.mark.parametrize(("count", "around"), [(255, True), (256, False)])
def test_records_stand_around_a_body_where_an_id_is_left(count: int, around: bool) -> None:
    text = all_inserted(f"{count * LOOP}tt.return\n", "loop")

    assert text.startswith(f'proton.record start "{BODY_RECORD if around else "loop[0]"}"\n')
    assert text.count("proton.record") == 2 * (count + around)


def test_no_records_stand_around_a_body_that_is_never_left() -> None:
    body = f"{LOOP}cf.br ^bb1\n^bb1:\ncf.br ^bb1\n"

    assert all_inserted(body, "loop") == body.replace(
        LOOP, f'proton.record start "loop[0]"\n{LOOP}proton.record end "loop[0]"\n'
    )


def test_the_function_ends_at_each_return() -> None:
    check(
        """\
          cf.cond_br %c, ^bb1, ^bb2
        ^bb1:  // pred: ^bb0
          tt.return
        ^bb2:  // pred: ^bb0
          tt.store %p, %n : !tt.ptr<i32>
          tt.return
        """,
        "func",
        expected="""\
          proton.record start "func"
          cf.cond_br %c, ^bb1, ^bb2
        ^bb1:  // pred: ^bb0
          proton.record end "func"
          tt.return
        ^bb2:  // pred: ^bb0
          tt.store %p, %n : !tt.ptr<i32>
          proton.record end "func"
          tt.return
        """,
    )


def test_the_function_ends_at_a_return_that_is_all_of_its_entry() -> None:
    check(
        """\
          tt.return
        ^bb1:  // no predecessors
          tt.return
        """,
        "func",
        expected="""\
          proton.record start "func"
          proton.record end "func"
          tt.return
        ^bb1:  // no predecessors
          proton.record end "func"
          tt.return
        """,
    )


def test_records_stand_in_branches_and_partitions() -> None:
    check(
        """\
        scf.if %c {
          scf.for %i = %a to %n step %c  : i32 {
          }
        } else {
          scf.for %i = %a to %n step %c  : i32 {
          }
        }
        ttg.warp_specialize()
        default {
          scf.for %i = %a to %n step %c  : i32 {
          }
          ttg.warp_yield
        }
        partition0() num_warps(4) {
          scf.for %i = %a to %n step %c  : i32 {
          }
          ttg.warp_return
        } : () -> ()
        tt.return
        """,
        "loop",
        expected="""\
        scf.if %c {
          proton.record start "loop[0]"
          scf.for %i = %a to %n step %c  : i32 {
          }
          proton.record end "loop[0]"
        } else {
          proton.record start "loop[1]"
          scf.for %i = %a to %n step %c  : i32 {
          }
          proton.record end "loop[1]"
        }
        ttg.warp_specialize()
        default {
          proton.record start "loop[2]"
          scf.for %i = %a to %n step %c  : i32 {
          }
          proton.record end "loop[2]"
          ttg.warp_yield
        }
        partition0() num_warps(4) {
          proton.record start "loop[3]"
          scf.for %i = %a to %n step %c  : i32 {
          }
          proton.record end "loop[3]"
          ttg.warp_return
        } : () -> ()
        tt.return
        """,
    )


def test_comments_and_blank_lines_stay_where_they_are() -> None:
    check(
        """\

        // before

        scf.for %i = %a to %n step %c  : i32 { // opens {
          // first

          tt.store %p, %i : !tt.ptr<i32> // }

          // last
        } // closed
        // after
        tt.return
        """,
        *EVERYTHING,
        expected="""\
        proton.record start "func"

        // before

        proton.record start "loop[0]"
        scf.for %i = %a to %n step %c  : i32 { // opens {
          proton.record start "iter[0]"
          // first

          tt.store %p, %i : !tt.ptr<i32> // }

          // last
        } // closed
        proton.record end "iter[0]"
        proton.record end "loop[0]"
        // after
        proton.record end "func"
        tt.return
        """,
    )


def test_the_generic_form() -> None:
    text = """\
"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> (), sym_name = "k"}> ({
  ^bb0(%arg0: i32):
    "scf.for"(%arg0, %arg0, %arg0) ({
    ^bb0(%arg1: i32):
      "scf.yield"() : () -> ()
    }) : (i32, i32, i32) -> ()
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    assert (
        instrumented(text, *EVERYTHING)
        == """\
"builtin.module"() ({
  "tt.func"() <{function_type = (i32) -> (), sym_name = "k"}> ({
  ^bb0(%arg0: i32):
    proton.record start "func"
    proton.record start "loop[0]"
    "scf.for"(%arg0, %arg0, %arg0) ({
    ^bb0(%arg1: i32):
      proton.record start "iter[0]"
      "scf.yield"() : () -> ()
    }) : (i32, i32, i32) -> ()
    proton.record end "iter[0]"
    proton.record end "loop[0]"
    proton.record end "func"
    "tt.return"() : () -> ()
  }) : () -> ()
}) : () -> ()
"""
    )


def test_the_order_of_selectors_does_not_move_records() -> None:
    body = "scf.for %i = %a to %n step %c  : i32 {\n  scf.for %j = %a to %n step %c  : i32 {\n  }\n}\ntt.return\n"

    assert inserted(body, "iter", "loop", "func") == inserted(body, "func", "loop", "iter")
