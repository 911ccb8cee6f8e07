"""Names in MLIR text."""

from __future__ import annotations

import pytest

from kprof_inject.ttgir.strings import variable_in


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("%acc", "acc"),
        ("%acc_3", "acc"),
        ("%x_block_12", "x_block"),
        ("%acc#1", "acc"),
        ("%_absmax", "_absmax"),
        ("%_tmp14_0", "_tmp14"),
        ("%3", ""),
        ("%arg3", ""),
        ("%arguments", "arguments"),
        ("acc", ""),
        ("", ""),
    ],
)
def test_a_values_name_has_its_variable(name: str, variable: str) -> None:
    assert variable_in(name) == variable
