"""How many records a warp writes at most, as far as the text alone tells."""

from __future__ import annotations

import pytest
from planning import insertion_of
from small_modules import kernel

from kprof_inject.select.plan import most_records

LOOP = ("scf.for %i = %a to %b step %c : i32 {", "  tt.call_me %n : i32", "}")
BRANCH = ("scf.if %c {", "  tt.store %p, %v : !tt.ptr<f32>", "}")


def bound(text: str, *selectors: str) -> int | None:
    done = insertion_of(text, *selectors)
    return most_records(done.view, done.plan)


def test_a_function_without_loops_writes_each_record_once() -> None:
    assert bound(kernel("%x = tt.load %p : !tt.ptr<f32>"), "func", "op(tt.load)") == 4


def test_those_around_a_body_that_is_not_selected_count_too() -> None:
    assert bound(kernel("%x = tt.load %p : !tt.ptr<f32>"), "op(tt.load)") == 4


def test_records_around_a_loop_are_written_once() -> None:
    assert bound(kernel(*LOOP), "func", "loop") == 4


def test_records_in_a_loop_are_as_many_as_it_likes() -> None:
    assert bound(kernel(*LOOP), "func", "iter") is None


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
