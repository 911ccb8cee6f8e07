"""Where the lines of a TTGIR text come from, and which of them are one operation's: by its locations and its braces.

No more of the text is understood than that: a capture is read without the parser, and texts that are not TTGIR do no
harm. MLIR's locations: https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kprof_inject.ttgir.strings import STRING, unquote

Chain = tuple[str, ...]
"""Source lines as ``file:line``: that of an operation, then the calls that inlined it, innermost first."""

_ALIAS = re.compile(r"(#loc\w*) = loc\((.*)\)\s*")
_POINT_OR_ALIAS = re.compile(rf"({STRING}):(\d+):\d+|(#loc\w*)")
_LOCATION = re.compile(r" loc\((.*)\)\s*")
# Deeper or longer ones no compiler makes.
_DEEPEST = 200
_LONGEST = 16


@dataclass(frozen=True, slots=True)
class Region:
    """Lines ``first`` to ``last``, from 0, of an operation with regions; ``head`` is the first one's text."""

    head: str
    first: int
    last: int


def chains_of(lines: Sequence[str]) -> list[Chain]:
    """The chain of each line, empty if it has no location that is known. An operation with regions has it on its last
    line."""
    found = [_ALIAS.fullmatch(line) if line.startswith("#loc") else None for line in lines]
    aliases = {alias[1]: alias[2] for alias in found if alias}
    known: dict[str, Chain] = {}
    return [() if alias else _chain(_split(line)[1], aliases, known) for line, alias in zip(lines, found, strict=True)]


def _split(line: str) -> tuple[str, str]:
    """The code of a line, and what stands between the braces of the location that ends it."""
    begin = line.rfind(" loc(")
    found = _LOCATION.fullmatch(line, begin) if begin >= 0 else None
    return (line[:begin], found[1]) if found else (line, "")


def _chain(location: str, aliases: dict[str, str], known: dict[str, Chain], depth: int = 0) -> Chain:
    if location in known:
        return known[location]
    # For a location that leads to itself.
    known[location] = ()
    chain: Chain = ()
    for file, line, alias in _POINT_OR_ALIAS.findall(location) if depth < _DEEPEST else ():
        chain += _chain(aliases.get(alias, ""), aliases, known, depth + 1) if alias else (f"{unquote(file)}:{line}",)
        if len(chain) >= _LONGEST:
            break
    known[location] = chain
    return chain


def regions_of(lines: Sequence[str]) -> Iterator[Region]:
    """The operations with regions, inner ones before those around them. Of what is never closed nothing is known."""
    opened: list[tuple[str, int]] = []
    for number, line in enumerate(lines):
        code = _split(line)[0].strip()
        closes, opens = code.startswith("}"), code.endswith("{")
        if opens and not closes:
            opened.append((code, number))
        elif closes and not opens and opened:
            head, first = opened.pop()
            yield Region(head, first, number)
