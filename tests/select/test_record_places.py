"""Where each record goes: the text of small kernels before and after."""

from __future__ import annotations

from textwrap import dedent, indent

from planning import insertion_of

EVERYTHING = ("func", "loop", "iter")


def instrumented(text: str, *selectors: str) -> str:
    return insertion_of(text, *selectors).text


def inserted(body: str, *selectors: str) -> str:
    """A kernel's body with its records."""
    head = "module {\n  tt.func public @k(%n: i32) {\n"
    text = instrumented(head + indent(dedent(body), "    ") + "  }\n}\n", *selectors)
    return dedent(text.removeprefix(head).removesuffix("  }\n}\n"))


def check(body: str, *selectors: str, expected: str) -> None:
    assert inserted(body, *selectors) == dedent(expected)


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
          proton.record end "iter[0]"
        }
        proton.record end "loop[0]"
        proton.record start "loop[1]"
        scf.for %i = %a to %n step %c  : i32 {
          proton.record start "iter[1]"
          tt.store %p, %i : !tt.ptr<i32>
          proton.record end "iter[1]"
        }
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


def test_an_iteration_ends_before_the_yield() -> None:
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
          proton.record end "iter[0]"
          scf.yield %less : i32
        }
        proton.record end "loop[0]"
        tt.return
        """,
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
          proton.record end "iter[0]"
        } // closed
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
      proton.record end "iter[0]"
      "scf.yield"() : () -> ()
    }) : (i32, i32, i32) -> ()
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
