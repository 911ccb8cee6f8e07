"""What a module may hold at most: the last that is read, and the first that is not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.parser import MAX_DIGITS, MAX_NESTING, MAX_UNLISTED_RESULTS, parse
from kprof_inject.ttgir.types import types_of


def kernel(*lines: str) -> str:
    return "\n".join(["module {", "tt.func public @k(%n: i32) {", *lines, "tt.return", "}", "}"])


def nested(depth: int) -> str:
    """A function, and in it operations around each other: so many in all."""
    inner = depth - 1
    return kernel(*["scf.if %c {"] * (inner - 1), "%x = arith.constant 1 : i32", *["}"] * (inner - 1))


CASES = {
    "digits": (lambda more: kernel(f"%x = arith.constant {'1' * (MAX_DIGITS - 1 + more)} : i32"), "a number has "),
    "nesting": (lambda more: nested(MAX_NESTING + more), "operations are nested more than "),
    "results": (lambda more: kernel(f"%x:{MAX_UNLISTED_RESULTS + more} = tt.call @f()"), "cannot have 17 results"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("more", [0, 1])
def test_the_first_beyond_a_bound_is_refused(case: str, more: int) -> None:
    text, message = CASES[case]
    with pytest.raises(KprofError, match=message) if more else nullcontext():
        parse(text(more))


@pytest.mark.parametrize(("elements", "is_possible"), [(0, False), (1, True), (1 << 31, True), ((1 << 31) + 1, False)])
def test_a_tensor_has_as_many_elements_as_one_of_tritons_can_have(elements: int, is_possible: bool) -> None:
    module = parse(kernel(f"%x = tt.load %p : tensor<{elements}xf32>"))
    (load,) = (operation for operation in module.walk() if operation.name == "tt.load")
    assert [one.elements for one in types_of(load)] == [elements] * is_possible
