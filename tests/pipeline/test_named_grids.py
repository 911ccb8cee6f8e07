"""Grids that users name."""

from __future__ import annotations

import pytest

from kprof_inject.errors import KprofError
from kprof_inject.pipeline.edit_choice import named_grid

NUMBERS = {"M": 1000, "BLOCK_M": 64, "GROUP": 8}


@pytest.mark.parametrize(
    ("expression", "grid"),
    [
        ("cdiv(M, BLOCK_M)", (16, 1, 1)),
        ("triton.cdiv(M, BLOCK_M) * 2, GROUP", (32, 8, 1)),
        ("(M // BLOCK_M - 1, M % 7, max(GROUP, 2))", (14, 6, 8)),
    ],
)
def test_an_expression(expression: str, grid: tuple[int, int, int]) -> None:
    assert named_grid(expression, NUMBERS) == grid


@pytest.mark.parametrize(
    ("expression", "message", "column"),
    [
        ("cdiv(M, BLOCK_N)", "BLOCK_N is no number of the launch", 9),
        ("M // 0", "cannot compute", 1),
        ("M - 1000", "is none of one to three sizes", 1),
        ("__import__('os').system('x')", "a grid cannot have this", 1),
        ("M ** 9", "a grid cannot have this", 1),
        ("M +", "cannot compute", 1),
    ],
)
def test_what_is_no_grid(expression: str, message: str, column: int) -> None:
    with pytest.raises(KprofError, match=message) as error:
        named_grid(expression, NUMBERS)
    assert error.value.where is not None
    assert error.value.where.column == column
