"""The grammar's text as Lark takes it, and the tables that Lark makes of it.

Making them takes a tenth of a second, which every command would wait for. So those of whole files are shipped, for one
version of Lark; ``scripts/parser-tables`` writes them. Where Lark or the grammar is another, they are made anew.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.resources import files
from io import BytesIO
from typing import Any

from lark import Lark
from lark import __version__ as lark_version

_TERMINAL = re.compile(r"^([A-Z_0-9]+)(?:\.-?[0-9]+)?: /(.+)/$", re.MULTILINE)
_REFERENCE = re.compile(r"\(\?&([A-Z_0-9]+)\)")


_OF_FILES: dict[str, Any] = {"start": ["file", "leaf", "alias"], "lexer": "contextual"}
_TABLES = "ttgir.tables"


def file_parser(transformer: Any) -> Any:
    """The parser of whole files and of what is in their lines."""
    tables = _shipped_tables()
    if tables is None:
        return open_grammar(**_OF_FILES, transformer=transformer)
    # ``Lark.load`` takes no transformer. The tables are of this very version of Lark.
    return Lark.__new__(Lark)._load(BytesIO(tables), transformer=transformer)


def tables_of_grammar() -> bytes:
    """What the file of the tables is to hold."""
    made = BytesIO()
    open_grammar(**_OF_FILES).save(made)
    return _made_by() + made.getvalue()


def _shipped_tables() -> bytes | None:
    """None if there are none, or if they are of another Lark or grammar."""
    path = files("kprof_inject.ttgir") / _TABLES
    shipped = path.read_bytes() if path.is_file() else b""
    return shipped.removeprefix(_made_by()) if shipped.startswith(_made_by()) else None


def _made_by() -> bytes:
    return f"{lark_version} {hashlib.sha256(_source().encode()).hexdigest()}\n".encode()


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
