"""Grammars in the form that Lark takes, the tables that Lark makes of them, and the lexer of whole files.

Making the tables of a grammar takes up to a tenth of a second, which every command would wait for. So the package
contains them, for one version of Lark; ``scripts/parser-tables`` writes them. Another Lark or grammar makes its own.

Lark's own lexers compile all terminals that a state accepts into one expression, some of them four times. What a token
can be is visible from its first character, so the lexer here compiles each terminal once, when a file first needs it,
and reads successive operations without regions in one go.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from lark import Lark, Token, UnexpectedCharacters
from lark import __version__ as lark_version
from lark.lexer import Lexer

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
    return _TERMINAL.sub(lambda found: found[0].replace(found[2], _expanded(found[2])), _source()[0])


@cache
def _source() -> tuple[str, dict[str, str]]:
    text = (TTGIR_FOLDER / "ttgir.lark").read_text(encoding="utf-8")
    return text, dict(_TERMINAL.findall(text))


def _expanded(expression: str) -> str:
    return _REFERENCE.sub(lambda found: f"(?:{_expanded(_source()[1][found[1]])})", supported(expression))


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
    return re.compile(_expanded(_source()[1][name]))


GAP = terminal("GAP")  # pattern of what may separate two words of a file: blanks, line ends and comments


def after_gap(text: str, offset: int = 0) -> int:
    """Return the offset of the first word at or after ``offset``."""
    found = GAP.match(text, offset)
    return found.end() if found else offset


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
                plain, full = terminal(_PLAIN.get(name, name)).match, terminal(name).match
                found = plain(text, offset) or full(text, offset)
                if found is None:
                    continue
                if name in _RUNS:
                    matches = [found]
                    while more := plain(text, matches[-1].end()) or full(text, matches[-1].end()):
                        matches.append(more)
                    token = Run(_RUNS[name], "", offset, end_pos=matches[-1].end())
                    token.matches = matches
                    yield token
                    offset = matches[-1].end()
                else:
                    yield Token(name.removeprefix("PLAIN_"), found.group(), offset, end_pos=found.end())
                    offset = found.end()
                break
            else:
                raise UnexpectedCharacters(text, offset, 1, 1)  # type: ignore[no-untyped-call]
