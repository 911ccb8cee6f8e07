"""How many records a warp writes at most, as far as the text alone tells."""

from __future__ import annotations

import pytest
from planning import insertion_of
from small_modules import kernel

from kprof_inject.select.plan import max_records

LOOP = ("scf.for %i = %a to %b step %c : i32 {", "  tt.call_me %n : i32", "}")
BRANCH = ("scf.if %c {", "  tt.store %p, %v : !tt.ptr<f32>", "}")


def bound(text: str, *selectors: str) -> int | None:
    done = insertion_of(text, *selectors)
    return max_records(done.view, done.plan)


def test_a_function_without_loops_writes_each_record_once() -> None:
    assert bound(kernel("%x = tt.load %p : !tt.ptr<f32>"), "func", "op(tt.load)") == 4


def test_those_around_a_body_that_is_not_selected_count_too() -> None:
    assert bound(kernel("%x = tt.load %p : !tt.ptr<f32>"), "op(tt.load)") == 4


def test_records_around_a_loop_are_written_once() -> None:
    assert bound(kernel(*LOOP), "func", "loop") == 4


def test_records_around_a_loop_that_is_not_indented_are_not_in_it() -> None:
    text = "".join(f"{line.strip()}\n" for line in kernel(*LOOP).splitlines())
    assert bound(text, "func", "loop") == 4


def test_records_in_a_loop_are_as_many_as_it_likes() -> None:
    assert bound(kernel(*LOOP), "func", "iter") is None


CONSTANTS = tuple(f"%{name} = arith.constant {value} : i32" for name, value in (("a", 2), ("b", 11), ("c", 3)))
NESTED = ("scf.for %i = %a to %b step %c : i32 {", *(f"  {line}" for line in LOOP), "}")


def test_a_loop_of_constant_bounds_has_as_many_iterations() -> None:
    """Of 2, 5 and 8, each with a record, and one behind them."""
    assert bound(kernel(*CONSTANTS, *LOOP), "func", "iter") == 2 + 3 + 1
    assert bound(kernel(*CONSTANTS, *LOOP), "func", "op(tt.call_me)") == 2 + 2 * 3


def test_the_iterations_of_nested_loops_multiply() -> None:
    assert bound(kernel(*CONSTANTS, *NESTED), "func", "loop", "iter") == 2 + 2 + (3 + 1) + 3 * 2 + 3 * (3 + 1)


def test_a_loop_that_is_never_entered_has_its_end_alone() -> None:
    backwards = (*CONSTANTS, *(line.replace("%a to %b", "%b to %a") for line in LOOP))
    assert bound(kernel(*backwards), "func", "iter") == 2 + 1


@pytest.mark.parametrize("lines", [CONSTANTS[:2], (*CONSTANTS, *CONSTANTS[:1])], ids=["no constant", "given twice"])
def test_bounds_that_are_not_known_decide(lines: tuple[str, ...]) -> None:
    assert bound(kernel(*lines, *LOOP), "func", "iter") is None


def test_constants_of_the_generic_form() -> None:
    constants = (f'%{name} = "arith.constant"() <{{value = {value} : i32}}> : () -> i32' for name, value in
                 (("a", 0), ("b", 7), ("c", 2)))  # fmt: skip
    loop = ('"scf.for"(%a, %b, %c) ({', "^bb0(%i: i32):", '  "scf.yield"() : () -> ()', "}) : (i32, i32, i32) -> ()")
    assert bound(kernel(*constants, *loop), "func", "iter") == 2 + 4 + 1


def test_of_the_ends_of_a_scope_one_is_passed() -> None:
    """The second block is never reached."""
    text = kernel("tt.return", "^bb1:", "%x = tt.load %p : !tt.ptr<f32>", "tt.return")
    assert bound(text, "func") == 2
    assert bound(text, "func", "op(tt.load)") == 4


def test_a_branch_is_taken_once_at_most() -> None:
    assert bound(kernel(*BRANCH), "func", "op(tt.store)") == 4


@pytest.mark.parametrize(
    "text",
    [
        kernel("cf.br ^bb1", "^bb1:", "%x = tt.load %p : !tt.ptr<f32>"),
        kernel(
            "tt.call @h(%n) : (i32) -> ()",
            rest="  tt.func private @h(%n: i32) attributes {noinline = true} {\n    tt.return\n  }\n",
        ),
    ],
    ids=["blocks", "helper"],
)
def test_where_the_text_does_not_tell_nothing_is_said(text: str) -> None:
    assert bound(text, "func") is None
