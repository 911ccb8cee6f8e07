"""The lexer of whole files: TTGIR text in, the tokens of the grammar out.

Lark's own lexers compile all terminals that a state accepts into one expression, some of them four times. What a token
can be is visible from its first character, so this lexer compiles each terminal once, when a file first needs it, and
reads successive operations without regions in one go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lark import Token, UnexpectedCharacters
from lark.lexer import Lexer

from kprof_inject.ttgir.grammar import after_gap, terminal

_BY_FIRST_CHARACTER = {
    "}": ("PLAIN_CLOSE_END", "CLOSE_END", "CLOSE_OPEN"),
    "^": ("LABEL",),
    "#": ("PLAIN_ALIAS", "ALIAS"),
    "!": ("PLAIN_ALIAS", "ALIAS"),
    "{": ("METADATA",),
}
_OPERATIONS = ("PLAIN_LEAF", "OPENING", "LEAF", "CLAUSED", "CLAUSE")
"""Terminals that begin with any other character.

Apart from a plain form and its full one, no text matches two terminals. The order saves time: few files need the
expressions at its end.
"""

_RUNS = {"PLAIN_LEAF": "LEAVES", "LEAF": "LEAVES", "PLAIN_ALIAS": "ALIASES", "ALIAS": "ALIASES"}
"""The token that successive matches of a terminal, or of its plain form, make."""

_PLAIN = {"LEAF": "PLAIN_LEAF", "ALIAS": "PLAIN_ALIAS"}


class Run(Token):
    """A token of ``LEAVES`` or ``ALIASES``, with a match for each of its parts."""

    matches: list[re.Match[str]]


class FileLexer(Lexer):
    """The lexer for the start rule ``file``. Its tokens have offsets, but no lines and columns."""

    def __init__(self, _: Any) -> None:
        """Ignore Lark's terminals: each is compiled when it is first needed."""

    def lex(self, text: str) -> Iterator[Token]:  # type: ignore[override]  # the interface of custom lexers
        """Yield the tokens of a file that ends with a line end. Raises ``UnexpectedCharacters``."""
        offset = 0
        while (start := after_gap(text, offset)) < len(text):
            for name in _BY_FIRST_CHARACTER.get(text[start], _OPERATIONS):
                token = _run(name, text, offset) if name in _RUNS else _single(name, text, offset)
                if token is not None:
                    yield token
                    offset = token.end_pos or 0
                    break
            else:
                raise UnexpectedCharacters(text, offset, 1, 1)  # type: ignore[no-untyped-call]


def _single(name: str, text: str, offset: int) -> Token | None:
    found = terminal(name).match(text, offset)
    return Token(name.removeprefix("PLAIN_"), found.group(), offset, end_pos=found.end()) if found else None


def _run(name: str, text: str, offset: int) -> Run | None:
    plain, full = terminal(_PLAIN.get(name, name)).match, terminal(name).match
    matches, end = [], offset
    while found := plain(text, end) or full(text, end):
        matches.append(found)
        end = found.end()
    if not matches:
        return None
    run = Run(_RUNS[name], "", offset, end_pos=end)
    run.matches = matches
    return run
