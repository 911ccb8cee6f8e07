"""TTIR with other values of constants: what Triton itself makes, with everything else as in the program."""

from __future__ import annotations

from typing import Any

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kprof_inject.capture.edits import WantedValues, combinations
from kprof_inject.runtime.compiling.compiler import other_values

pytestmark = pytest.mark.triton

TARGET = GPUTarget("cuda", 90, 32)


@triton.jit
def rows(x_ptr, out_ptr, length, BLOCK: tl.constexpr, IS_EVEN: tl.constexpr, HALF: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None if IS_EVEN else places < length
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=mask) * HALF, mask=mask)


def source(**constants: Any) -> ASTSource:
    signature = {"x_ptr": "*fp32", "out_ptr": "*fp32", "length": "i32", **dict.fromkeys(constants, "constexpr")}
    return ASTSource(rows, signature, constants, {(0,): [["tt.divisibility", 16]]})


GIVEN = {"BLOCK": 256, "IS_EVEN": False, "HALF": 0.5}


def made(**wanted: Any) -> dict[str, str]:
    others = other_values(source(**GIVEN), TARGET, {"num_warps": 8}, wanted)
    return {one.text: one.ttir or one.refusal for one in others}


def test_the_text_is_what_triton_compiles() -> None:
    found = made(BLOCK=(512,), IS_EVEN=(True,))
    assert list(found) == ["BLOCK=256,IS_EVEN=True", "BLOCK=512,IS_EVEN=False", "BLOCK=512,IS_EVEN=True"]
    for text, values in zip(found.values(), [(256, True), (512, False), (512, True)], strict=True):
        block, is_even = values
        constants = {**GIVEN, "BLOCK": block, "IS_EVEN": is_even}
        assert text == triton.compile(source(**constants), target=TARGET, options={"num_warps": 8}).asm["ttir"]


def test_values_that_triton_refuses() -> None:
    (refusal,) = made(BLOCK=(100,)).values()
    assert refusal.startswith("Triton refuses them: ")


def test_kernels_without_the_constants_have_no_others() -> None:
    assert made(OTHER=(1,)) == {}
    assert made(HALF=(1,)) == {}, "it is no integer"


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"A": (2,)}, [{"A": 2}]),
        ({"A": (1,)}, []),
        ({"A": (2,), "C": (5,)}, [{"A": 2}]),
        ({"A": (2,), "B": (True,)}, [{"A": 1, "B": True}, {"A": 2, "B": False}, {"A": 2, "B": True}]),
    ],
)
def test_combinations(wanted: WantedValues, expected: list[dict[str, Any]]) -> None:
    assert combinations(wanted, {"A": 1, "B": False}) == expected
