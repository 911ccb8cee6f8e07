"""What to say of a text that is no TTGIR, or none that we read."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lark.exceptions import UnexpectedInput

from kprof_inject.errors import KprofError, Position
from kprof_inject.ttgir.grammar import after_gap, open_grammar

# What a file consists of, in a diagnostic's words.
_WORDS = {
    "ALIASES": "an alias definition",
    "LEAVES": "an operation",
    "CLAUSED": "an operation",
    "OPENING": "an operation",
    "LABEL": "a block label",
    "CLAUSE": "a clause",
    "CLOSE_END": "'}'",
    "CLOSE_OPEN": "'}'",
    "METADATA": "'{-# … #-}'",
    "$END": "the end of the file",
}

GIVE_TTGIR = "give a .ttgir file as Triton writes it (see 'kprof-inject dump')"
_BYTE_ORDER_MARK = "the file begins with a byte order mark; save it without one"


def syntax_error(error: UnexpectedInput, text: str, file: str) -> KprofError:
    """The diagnostic for what the file's parser could not take; ``text`` is what it was given."""
    found = getattr(getattr(error, "token", None), "type", "")
    if found == "$END":
        return KprofError(
            f"the file ends inside a region; expected {_accepted(error)}",
            where=Position.at_offset(file, text, len(text.rstrip())),
            hint="the file is cut off; dump it again",
        )
    start = after_gap(text, error.pos_in_stream or 0)
    readable = None if found in _WORDS else _readable().match(text, start)
    if readable is None:
        return _not_ttgir(_accepted(error), Position.at_offset(file, text, start))
    where = Position.at_offset(file, text, after_gap(text, readable.end()))
    return _not_ttgir("an operation" if readable.group().endswith("=") else "the rest of the line", where)


def _not_ttgir(expected: str, where: Position) -> KprofError:
    return KprofError(
        f"this is not TTGIR as Triton prints it; expected {expected}",
        where=where,
        hint=_BYTE_ORDER_MARK if where.text.startswith("\ufeff") else GIVE_TTGIR,
    )


def _accepted(error: Any) -> str:
    """What the parser would have taken instead."""
    words = sorted({_WORDS[name] for name in error.interactive_parser.accepts() if name in _WORDS})
    return " or ".join(words)


@cache
def _readable() -> re.Pattern[str]:
    """Matches what can be read of a text that is no terminal of a file."""
    parser = open_grammar("readable", lexer="basic")
    return re.compile(parser.get_terminal("READABLE").pattern.to_regexp())
