"""Grammars in the form that Lark takes, and the tables that Lark makes of them.

Making the tables of a grammar takes up to a tenth of a second, which every command would wait for. So the package
contains them, for one version of Lark; ``scripts/parser-tables`` writes them. Another Lark or grammar makes its own.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from lark import Lark
from lark import __version__ as lark_version

_TERMINAL = re.compile(r"^([A-Z_0-9]+)(?:\.-?[0-9]+)?: /(.+)/$", re.MULTILINE)
_REFERENCE = re.compile(r"\(\?&([A-Z_0-9]+)\)")


TTGIR_FOLDER = Path(__file__).parent


class Grammar:
    """An LALR grammar whose tables are in the package, as ``{name}.tables`` in ``folder``."""

    def __init__(self, folder: Path, name: str, text: Callable[[], str], **options: Any) -> None:
        """Prepare a grammar; ``text`` returns it, and ``options`` are Lark's."""
        self.tables_file = folder / f"{name}.tables"
        self._text = text
        self._options = {"parser": "lalr", "lexer": "contextual", **options}

    def parser(self, transformer: Any) -> Any:
        """Return the parser that hands what it reduces to ``transformer``."""
        tables = self.shipped_tables()
        if tables is None:
            return Lark(self._text(), **self._options, transformer=transformer)
        # ``Lark.load`` takes no transformer. The header guarantees that this version of Lark made the tables.
        return Lark.__new__(Lark)._load(BytesIO(tables), transformer=transformer)

    def tables(self) -> bytes:
        """Return the content of the tables' file."""
        made = BytesIO()
        Lark(self._text(), **self._options).save(made)
        return self._header() + made.getvalue()

    def shipped_tables(self) -> bytes | None:
        """Return the tables in the package; None if there are none, or if another Lark or grammar made them."""
        shipped = self.tables_file.read_bytes() if self.tables_file.is_file() else b""
        header = self._header()
        return shipped.removeprefix(header) if shipped.startswith(header) else None

    def _header(self) -> bytes:
        return f"{lark_version} {hashlib.sha256(self._text().encode()).hexdigest()}\n".encode()


@cache
def ttgir_grammar() -> str:
    """Return the grammar of TTGIR, with each ``(?&NAME)`` replaced by its terminal.

    Lark can join terminals by their names, too, but not in lookaheads and not under possessive quantifiers, and for a
    grammar of this size it takes half a second.
    """
    return _TERMINAL.sub(lambda found: found[0].replace(found[2], _expanded(found[2])), _source())


@cache
def _source() -> str:
    return (TTGIR_FOLDER / "ttgir.lark").read_text(encoding="utf-8")


@cache
def _terminals() -> dict[str, str]:
    return dict(_TERMINAL.findall(_source()))


def _expanded(expression: str) -> str:
    return _REFERENCE.sub(lambda found: f"(?:{_expanded(_terminals()[found[1]])})", supported(expression))


# Before Python 3.11.5, a group with a possessive quantifier may match less than it should (CPython issue 106052). It
# may then give back what it matched, which takes longer in long files.
_HAS_POSSESSIVE_GROUPS = sys.version_info >= (3, 11, 5)
_POSSESSIVE_GROUP = re.compile(r"(\)[*+?])\+")


def supported(expression: str) -> str:
    """Return an expression that matches the same text with this version of Python."""
    return expression if _HAS_POSSESSIVE_GROUPS else _POSSESSIVE_GROUP.sub(r"\1", expression)


@cache
def terminal(name: str) -> re.Pattern[str]:
    """Return the pattern of a terminal of the TTGIR grammar; its groups are those that the grammar writes."""
    return re.compile(_expanded(_terminals()[name]))


GAP = terminal("GAP")
"""Pattern of what may separate two words of a file: blanks, line ends and comments."""


def after_gap(text: str, offset: int = 0) -> int:
    """Return the offset of the first word at or after ``offset``."""
    found = GAP.match(text, offset)
    return found.end() if found else offset
