"""MLIR's strings, and the names and places that are made of them. Needs no parser."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_UNPRINTED = re.compile(r'["\\\x00-\x1f\x7f]')
_LETTERS = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def unquote(text: str) -> str:
    r"""The string that MLIR prints as ``"a\22b"``: a backslash and two hexadecimal digits stand for a byte."""

    def byte(found: re.Match[bytes]) -> bytes:
        digits, letter = found.groups()
        return bytes.fromhex(digits.decode()) if digits else _LETTERS.get(letter, found.group())

    return _ESCAPE.sub(byte, text[1:-1].encode()).decode(errors="replace")


def quote(text: str) -> str:
    """The text as a string of MLIR's."""
    return '"' + _UNPRINTED.sub(lambda found: f"\\{ord(found[0]):02X}", text) + '"'


STRING = r'"(?:[^"\\\n]|\\.)*"'
"""Matches a string with its quotes."""

POINT = rf"(?P<file>{STRING}):(?P<line>[0-9]{{1,10}}):(?P<column>[0-9]{{1,10}})(?![0-9])"
"""Matches a line of a source file as a location has it."""

SYMBOL = rf"{STRING}|[\w$.-]+"
"""Matches a symbol's name as it stands behind ``@``; it is quoted where it has other letters."""


def symbol_name(printed: str) -> str:
    """The name that ``SYMBOL`` matched."""
    return unquote(printed) if printed.startswith('"') else printed


_SOURCE_FILE = re.compile(rf"loc\((?:callsite\()?{POINT}")


def source_files(ttgir: str) -> tuple[str, ...]:
    """The source files that a module's locations name, in the order of the text."""
    names = dict.fromkeys(unquote(found["file"]) for found in _SOURCE_FILE.finditer(ttgir))
    return tuple(name for name in names if name)
