"""Texts from elsewhere (names in a kernel, paths), for eyes."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with a space for each character that a terminal would obey or cannot show: escapes, line ends, marks of
    writing direction, lone surrogates."""
    return "".join(character if character.isprintable() else " " for character in text)


def printable_lines(text: str) -> str:
    """The same for a text of several lines: line feeds and tabs stay. No column moves."""
    return "".join(character if character.isprintable() or character in "\n\t" else " " for character in text)
