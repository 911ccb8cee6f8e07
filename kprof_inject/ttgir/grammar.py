"""The grammar's text in the form that Lark takes, and the tables that Lark makes of it.

Making the tables takes a tenth of a second, which every command would wait for. So the package contains those of whole
files, for one version of Lark; ``scripts/parser-tables`` writes them. Another Lark or grammar makes its own.
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


_FILE_PARSER: dict[str, Any] = {"start": ["file", "leaf", "alias"], "lexer": "contextual"}
_TABLES = "ttgir.tables"


def file_parser(transformer: Any) -> Any:
    """Return the parser of whole files and of the parts of their lines."""
    tables = _shipped_tables()
    if tables is None:
        return open_grammar(**_FILE_PARSER, transformer=transformer)
    # ``Lark.load`` takes no transformer. The header guarantees that this version of Lark made the tables.
    return Lark.__new__(Lark)._load(BytesIO(tables), transformer=transformer)


def parser_tables() -> bytes:
    """Return the content of the tables' file."""
    made = BytesIO()
    open_grammar(**_FILE_PARSER).save(made)
    return _tables_header() + made.getvalue()


def _shipped_tables() -> bytes | None:
    """Return the tables in the package; None if there are none, or if another Lark or grammar made them."""
    path = files("kprof_inject.ttgir") / _TABLES
    shipped = path.read_bytes() if path.is_file() else b""
    return shipped.removeprefix(_tables_header()) if shipped.startswith(_tables_header()) else None


def _tables_header() -> bytes:
    return f"{lark_version} {hashlib.sha256(_source().encode()).hexdigest()}\n".encode()


def open_grammar(start: str | list[str], **options: Any) -> Lark:
    """Return the LALR parser of one or several start rules."""
    return Lark(_text(), start=start, parser="lalr", **options)


@cache
def _text() -> str:
    """Return the grammar, with each ``(?&NAME)`` replaced by its terminal.

    Lark can join terminals by their names, too, but not in lookaheads and not under possessive quantifiers, and for a
    grammar of this size it takes half a second.
    """
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
"""Pattern of what may separate two words of a file: blanks, line ends and comments."""


def after_gap(text: str, offset: int = 0) -> int:
    """Return the offset of the first word at or after ``offset``."""
    found = GAP.match(text, offset)
    return found.end() if found else offset
