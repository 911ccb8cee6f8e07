"""Texts that a kernel was compiled from, as far as its capture has them, and places in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import SOURCES_FILE, TTGIR_FILE
from kprof_inject.errors import printable
from kprof_inject.ttgir.strings import POINT, unquote


def ttgir_of(kernel: Kernel) -> str:
    """Return the kernel's TTGIR; empty if there is none, as with a file of Proton's own buffer."""
    return kernel.ttgir() if (kernel.folder / TTGIR_FILE).is_file() else ""


def sources_of(kernel: Kernel) -> dict[str, str]:
    """Return the kernel's source files by path; empty if there are none."""
    return kernel.sources() if (kernel.folder / SOURCES_FILE).is_file() else {}


def lines_of(text: str) -> list[str]:
    """Split a text into lines as editors do: form feeds and the like do not end a line."""
    lines = text.replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def shown_line(line: str) -> str:
    """Return a line for display: tabs become blanks, and characters that would move the rest are escaped."""
    line = line.expandtabs()
    return line if line.isprintable() else printable(line)


class SourceText:
    """Lines of a kernel's source that scopes refer to as ``file:line``; ``texts`` are by path, perhaps not all."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._lines: dict[str, list[str]] = {}

    def line(self, source: str) -> str:
        """Return the line of ``source``; empty if its text is unknown."""
        path, number = file_and_line(source) or ("", 0)
        if path not in self._texts:
            return ""
        if path not in self._lines:
            self._lines[path] = lines_of(self._texts[path])
        lines = self._lines[path]
        return lines[number - 1] if 0 < number <= len(lines) else ""


def file_and_line(source: str) -> tuple[str, int] | None:
    """Split ``file:line``; None if it has another form."""
    path, _, number = source.rpartition(":")
    return (path, int(number)) if path and number.isdecimal() else None


def without_folders(source: str) -> str:
    """Return ``file:line`` with the name of the file alone: ``file.py:12``."""
    return PurePath(source).name if source else ""


SourceLine = tuple[str, int]

_ALIAS = re.compile(r"(#loc\w*) = loc\((.*)\)\s*")
_POINT_OR_ALIAS = re.compile(rf"{POINT}|(#loc\w*)")
_LOCATION = re.compile(r" loc\((.*)\)\s*")
_MAX_DEPTH = 200  # no compiler nests locations deeper


def places_of(lines: Sequence[str]) -> list[SourceLine | None]:
    """Return the source line of each line of a TTGIR text: the first one in the location at the line's end.

    An operation with regions has its location at the end of its last line. A capture is read without the parser.
    https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes
    """
    found = [_ALIAS.fullmatch(line) if line.startswith("#loc") else None for line in lines]
    aliases = {alias[1]: alias[2] for alias in found if alias}
    known: dict[str, SourceLine | None] = {}
    places: list[SourceLine | None] = []
    for line, alias in zip(lines, found, strict=True):
        begin = -1 if alias else line.rfind(" loc(")
        location = _LOCATION.fullmatch(line, begin) if begin >= 0 else None
        places.append(_place(location[1], aliases, known) if location else None)
    openings: list[int] = []
    for number, line in enumerate(lines):
        begins, ends = line.rstrip().endswith("{"), line.lstrip().startswith("}")
        if ends and begins:
            continue  # between two regions of one operation
        if begins:
            openings.append(number)
        elif ends and openings:
            opening = openings.pop()
            places[opening] = places[opening] or places[number]
    return places


def _place(
    location: str, aliases: dict[str, str], known: dict[str, SourceLine | None], depth: int = 0
) -> SourceLine | None:
    if location not in known:
        # Ends the recursion of a location that refers to itself.
        known[location] = None
        for file, line, _, alias in _POINT_OR_ALIAS.findall(location) if depth < _MAX_DEPTH else ():
            place = _place(aliases.get(alias, ""), aliases, known, depth + 1) if alias else (unquote(file), int(line))
            if place:
                known[location] = place
                break
    return known[location]
