"""Tables on a terminal: layouts that fit, names folded between their words, letters of the encoding, and bars."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from kprof_inject.report.terminal.tables import BLOCKS, PLAIN, Bars, Column, folded_name, print_fitted, shown

NAMES = Column("name", ["attention", "x" * 60], name=True)
TIMES = Column("time", ["3.40 µs", "12.4 µs"])
MORE = Column("more", ["1.00 µs", "1.00 µs"])


def printed(*layouts: list[Column], width: int, encoding: str = "utf-8") -> tuple[list[str], list[str]]:
    """The titles that were printed, and the lines."""
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    columns = print_fitted(layouts, Console(file=file, width=width))
    file.flush()
    return [column.title for column in columns], [
        line.rstrip() for line in raw.getvalue().decode(encoding).splitlines()
    ]


def test_the_first_layout_that_fits_is_taken_and_else_the_last() -> None:
    layouts = [[NAMES, TIMES, MORE], [NAMES, TIMES]]
    assert [printed(*layouts, width=width)[0] for width in (100, 40, 33, 10)] == [
        *([["name", "time", "more"]] * 2),
        *([["name", "time"]] * 2),
    ]


def test_long_words_are_folded_to_the_room_there_is() -> None:
    _, lines = printed([NAMES, TIMES], width=40)
    assert lines[2].split() == ["attention", "3.40", "µs"]
    assert lines[3].split() == ["x" * 32, "12.4", "µs"]
    assert max(map(len, lines)) == 40


def test_no_figure_is_cut_on_a_terminal_that_is_narrower_than_all() -> None:
    _, lines = printed([NAMES, TIMES, MORE], width=5)
    assert lines[2].split()[0] == "attentio"
    assert lines[2].endswith(" 3.40 µs 1.00 µs")


def test_letters_are_replaced_before_columns_are_measured() -> None:
    arrows = Column("change", ["1 → 2", "± 3 …"])
    _, lines = printed([arrows, Column("end", ["|", "|"])], width=40, encoding="ascii")
    assert [line.strip("| ").split("|")[0].strip() for line in lines if "1" in line or "3" in line] == [
        "1 -> 2",
        "+- 3 ...",
    ]
    assert len({len(line) for line in lines}) == 1


def test_an_encoding_keeps_the_letters_that_it_has() -> None:
    latin = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert shown("1 µs ± 2 → é", latin).plain == "1 µs ± 2 -> é"
    ascii_only = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    assert shown("é\x1b[0m [b]", ascii_only).plain == "\\xe9 [0m [b]"


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


BARS = Bars("#", ".", 10)


@pytest.mark.parametrize(
    ("share", "self_share", "bar"),
    [
        (0.0, 0.0, ""),
        (1.0, 1.0, "##########"),
        (0.6, 0.2, "##...."),
        (0.6, 0.0, "......"),
        # A little is not nothing, and what has no scopes in it shows none.
        (0.001, 0.001, "#"),
        (0.04, 0.04, "#"),
        (0.26, 0.26 * (1 - 1e-15), "###"),
        (0.04, 0.01, "."),
        # What calls itself takes longer than the launch.
        (2.5, 1.5, "##########"),
    ],
)
def test_a_bar(share: float, self_share: float, bar: str) -> None:
    assert BARS.drawn(share, self_share) == bar


def test_the_title_says_what_is_what() -> None:
    assert (BLOCKS.title, PLAIN.title) == ("█ self ░ in it", "# self . in it")
    assert PLAIN.title.isascii()
