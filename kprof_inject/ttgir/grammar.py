"""The grammar's text as Lark takes it."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from lark import Lark

_TERMINAL = re.compile(r"^([A-Z_0-9]+)(?:\.-?[0-9]+)?: /(.+)/$", re.MULTILINE)
_REFERENCE = re.compile(r"\(\?&([A-Z_0-9]+)\)")


def open_grammar(start: str | list[str], **options: Any) -> Lark:
    """The LALR parser of a start rule, or of several."""
    return Lark(_text(), start=start, parser="lalr", **options)


@cache
def _text() -> str:
    """The grammar, with what each ``(?&NAME)`` stands for in its place.

    Lark puts terminals together by their names, too, but not in lookaheads and not under possessive quantifiers; and
    for as many as these it takes half a second."""
    return _TERMINAL.sub(lambda found: found[0].replace(found[2], _expanded(found[2])), _source())


@cache
def _source() -> str:
    return (files("kprof_inject.ttgir") / "ttgir.lark").read_text(encoding="utf-8")


@cache
def _terminals() -> dict[str, str]:
    return dict(_TERMINAL.findall(_source()))


def _expanded(expression: str) -> str:
    return _REFERENCE.sub(lambda found: f"(?:{_expanded(_terminals()[found[1]])})", expression)


GAP = re.compile(_expanded("(?&GAP)"))
"""What may stand between any two words of a file: blanks, line ends and comments."""


def after_gap(text: str, offset: int = 0) -> int:
    """Where the first word at ``offset`` or behind it begins."""
    found = GAP.match(text, offset)
    return found.end() if found else offset
