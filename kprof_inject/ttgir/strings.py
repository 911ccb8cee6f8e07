"""MLIR's strings, names and source positions; no parser needed."""

from __future__ import annotations

import re

_ESCAPE = re.compile(rb"\\(?:([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_UNPRINTED = re.compile(r'["\\\x00-\x1f\x7f]')
_LETTERS = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\"}


def unquote(text: str) -> str:
    r"""Return the string that MLIR prints as ``"a\22b"``: a backslash and two hexadecimal digits encode a byte."""

    def byte(found: re.Match[bytes]) -> bytes:
        digits, letter = found.groups()
        return bytes.fromhex(digits.decode()) if digits else _LETTERS.get(letter, found.group())

    return _ESCAPE.sub(byte, text[1:-1].encode()).decode(errors="replace")


def quote(text: str) -> str:
    """Return the text as an MLIR string."""
    return '"' + _UNPRINTED.sub(lambda found: f"\\{ord(found[0]):02X}", text) + '"'


STRING = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'  # pattern of a string with its quotes

POINT = rf"(?P<file>{STRING}):(?P<line>[0-9]{{1,10}}):(?P<column>[0-9]{{1,10}})(?![0-9])"
"""Pattern of a source position in a location."""

SYMBOL = rf"{STRING}|[\w$.-]+"  # pattern of a symbol's name after ``@``; it is quoted if it has other letters


def symbol_name(printed: str) -> str:
    """Return the name that ``SYMBOL`` matched."""
    return unquote(printed) if printed.startswith('"') else printed


# Triton's printer names a value after its variable, with a number where names would collide. A value without a
# variable is %3, %arg3 or, for a constant, %c3_i32.
_VARIABLE = re.compile(r"%(?!arg\d)([A-Za-z_]\w*?)(?:_\d+)?(?:#\d+)?")


def variable_in(name: str) -> str:
    """Return the variable in the name of a value, such as *acc* in ``%acc_3``; empty if it has none."""
    found = _VARIABLE.fullmatch(name)
    return found[1] if found else ""


_SOURCE_FILE = re.compile(rf"loc\((?:callsite\()?{POINT}")


def source_files(ttgir: str) -> tuple[str, ...]:
    """Return the source files that a module's locations name, in the order of the text."""
    printed = dict.fromkeys(file for file, _, _ in _SOURCE_FILE.findall(ttgir))
    return tuple(dict.fromkeys(filter(None, map(unquote, printed))))


_MARK = re.compile(rf"{STRING}|//[^\n]*|\s*(?<![\w.])loc\(|[()]|[\t\r\n]\s*|  +")


def without_locations(text: str) -> str:
    """Return the text without locations and comments, with one space for any other blanks."""
    pieces: list[str] = []
    done = depth = 0
    for mark in _MARK.finditer(text):
        word = mark[0]
        is_location = word.endswith("loc(")
        if depth:
            depth += (word == "(" or is_location) - (word == ")")
            if not depth:
                done = mark.end()
        elif is_location or word.isspace() or word.startswith("//"):
            pieces.append(text[done : mark.start()])
            if word.isspace() and pieces[-1]:
                pieces.append(" ")
            depth, done = int(is_location), mark.end()
    return "".join([*pieces, text[done:]]).strip()
