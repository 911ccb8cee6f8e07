"""What is left of a text for eyes."""

from __future__ import annotations

import pytest

from kprof_inject.errors import printable, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe → 𝛼 [b]", "größe → 𝛼 [b]"),
        ("\x1b[31mred", " [31mred"),
        ("a\tb\r\nc\x07", "a b  c "),
        ("\u202ebackwards \ud800", " backwards  "),
        ("", ""),
    ],
    ids=["plain", "escape", "white space", "direction and surrogate", "empty"],
)
def test_only_what_can_be_shown_is_left(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_lines_and_tabs_stay_where_a_text_has_several() -> None:
    assert printable_lines("a\tb\r\nc\x1b[31m\x9b\u2069\n") == "a\tb \nc [31m  \n"
