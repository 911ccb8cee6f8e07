"""What a capture keeps of a launch's arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kprof_inject.capture.schema import MAX_ARGUMENT
from kprof_inject.runtime.compiling.recording_build import ArgumentKinds


@dataclass(frozen=True)
class Tensor:
    """As torch has them."""

    address: int

    def data_ptr(self) -> int:
        return self.address


@dataclass(frozen=True)
class TensorDescriptor:
    """As Triton has them on the host."""

    base: Tensor
    shape: Sequence[Any]
    strides: Sequence[Any]
    block_shape: Sequence[int]


class Whole:
    """As a size may be, that is none but in name."""

    def __int__(self) -> int:
        return 96


MATRIX = TensorDescriptor(Tensor(4096), [128, Whole()], [64, 1], [32, 32])
X = Tensor(256)


def kinds(*names: str) -> ArgumentKinds:
    return ArgumentKinds.of({f"argument{place}": name for place, name in enumerate(names)})


@pytest.mark.parametrize(
    ("names", "arguments", "numbers"),
    [
        (("*fp32", "i32", "i64"), (X, 7, -9), (256, 7, -9)),
        (("*fp32", "constexpr", "i32"), (X, 128, 7), (256, 7)),
        (("constexpr", "*fp16", "constexpr"), (1, X, None), (256,)),
        (("i1", "fp32", "i32"), (True, 0.5, 3), (1, None, 3)),
        (("*fp32", "i32"), (None, "seven"), (None, None)),
        (("*i64",), (1 << 40,), (1 << 40,)),
        (("tensordesc<fp16[32, 32]>", "i32"), (MATRIX, 5), (4096, 128, 96, 64, 1, 5)),
        (("('i32', '*fp32')", "i32"), ((3, X), 4), (3, 256, 4)),
        (("('i32', ('constexpr', 'i32'), 'constexpr')", "i32"), ((3, (8, 9), 10), 4), (3, 9, 4)),
        (("()", "i32"), ((), 4), (4,)),
        ((), (), ()),
        (("constexpr",), (7,), ()),
    ],
)
def test_arguments_are_numbers_in_the_order_of_parameters(
    names: Sequence[str], arguments: Sequence[Any], numbers: Sequence[int | None]
) -> None:
    assert kinds(*names).numbers(arguments) == numbers


@pytest.mark.parametrize("names", [("*fp32", "constexpr", "i32"), ("constexpr", "*fp32", "i32", "constexpr")])
def test_inductor_leaves_the_constants_out(names: Sequence[str]) -> None:
    assert kinds(*names).numbers((X, 7)) == (256, 7)


@pytest.mark.parametrize("arguments", [(), (X,), (X, 1, 2, 3, 4), (X, 1, 2, 3, 4, 5)])
def test_of_another_kernels_arguments_nothing_is_kept(arguments: Sequence[Any]) -> None:
    assert kinds("*fp32", "constexpr", "i32", "i32").numbers(arguments) == ()


@pytest.mark.parametrize("sign", [1, -1])
def test_what_has_no_room_in_a_capture_is_left_out(sign: int) -> None:
    found = kinds("i64", "u64", "i32").numbers((sign * MAX_ARGUMENT, sign * (MAX_ARGUMENT + 1), 3))
    assert found == (sign * MAX_ARGUMENT, None, 3)


def test_numbers_are_plain() -> None:
    """No subclass of an integer that a program made is kept alive."""

    class Own(int):
        pass

    found = kinds("i32", "i1").numbers((Own(5), True))
    assert [type(number) for number in found] == [int, int]
