"""Names in a narrow table are folded between their words; nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from kprof_inject.report.terminal.tables import folded_name


@pytest.mark.parametrize(
    ("name", "width", "folded"),
    [
        ("_gemm_kernel", 12, ["_gemm_kernel"]),
        ("_chunk_scan_fwd_kernel", 16, ["_chunk_scan_fwd_", "kernel"]),
        ("reduce_kernel<512, 1, float>", 14, ["reduce_kernel<", "512, 1, float>"]),
        ("  loop[0] of matmul", 12, ["  loop[0] of", "matmul"]),
        ("attention", 4, ["atte", "ntio", "n"]),
        ("a_backward_kernel", 8, ["a_", "backward", "_kernel"]),
        ("", 8, [""]),
    ],
)
def test_words_stay_whole_where_they_fit(name: str, width: int, folded: list[str]) -> None:
    assert folded_name(name, width).split("\n") == folded


@given(st.text("ab_ .<世", max_size=30), st.integers(2, 12))
def test_no_line_is_too_long_and_no_letter_is_lost(name: str, width: int) -> None:
    lines = folded_name(name, width).split("\n")
    assert all(cell_len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(name.split())
