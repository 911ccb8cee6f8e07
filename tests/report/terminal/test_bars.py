"""Shares, drawn."""

from __future__ import annotations

import pytest

from kprof_inject.report.terminal.tables import BLOCKS, PLAIN, Bars

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
