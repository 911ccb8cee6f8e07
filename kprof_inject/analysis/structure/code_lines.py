"""Where two modules have other code, whatever a comparison looks for: their text, line by line.

What is no code does not count: locations, comments, records, and how values are called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kprof_inject.rewrite import strip
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.nodes import Module
from kprof_inject.ttgir.strings import STRING

_MARK = re.compile(rf"{STRING}|//[^\n]*|[ \t]*(?<![\w.])loc\(|[()]")
_LOCATION_ALIAS = re.compile(r"#[\w$.-]+ *=")
_NAME = re.compile(rf"{STRING}|(%[\w$.-]+)")
_RESULTS = re.compile(r"%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=")
_BOUND = re.compile(r"\s*=(?!=)")
_TAKES_ARGUMENTS = re.compile(r"tt\.func\b|\^|\}?\s*partition\d+\(")


@dataclass(frozen=True, slots=True)
class DifferingLines:
    """Lines of code that are not the same, as far as lines can be told from others; none only if all are, and name the
    same values. They are numbered as ``Module.line_numbers`` does if it has no records. ``count`` takes two that stand
    for each other as one."""

    count: int
    lines_a: tuple[int, ...]
    lines_b: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _CodeLine:
    """``text`` has no names of values in it; these are ``names``, and those of them that it gives ``given``."""

    number: int
    text: str
    names: tuple[str, ...]
    given: frozenset[str]


def differing_lines(a: Module, b: Module) -> DifferingLines:
    lines_a, lines_b = list(_code_lines(a)), list(_code_lines(b))
    found = []
    if len(lines_a) == len(lines_b):
        found.append(_differing(([one], [other]) for one, other in zip(lines_a, lines_b, strict=True)))
    if not found or found[0].count:
        found.append(_differing(_aligned(lines_a, lines_b)))
    # Where many lines have the same text, one may be taken for another: what finds fewer is right.
    return min(found, key=lambda one: one.count)


_Lines = Sequence[_CodeLine]


def _aligned(a: _Lines, b: _Lines) -> Iterator[tuple[_Lines, _Lines]]:
    matcher = SequenceMatcher(None, [line.text for line in a], [line.text for line in b], autojunk=False)
    for _, a_begin, a_end, b_begin, b_end in matcher.get_opcodes():
        yield a[a_begin:a_end], b[b_begin:b_end]


def _differing(parts: Iterable[tuple[_Lines, _Lines]]) -> DifferingLines:
    values = _Values()
    count = 0
    lines_a: list[int] = []
    lines_b: list[int] = []
    for mine, theirs in parts:
        if [line.text for line in mine] == [line.text for line in theirs]:
            pairs = [pair for pair in zip(mine, theirs, strict=True) if not values.are_same(*pair)]
            count += len(pairs)
            mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            count += max(len(mine), len(theirs))
            values.forget(mine, theirs)
        lines_a += [line.number for line in mine]
        lines_b += [line.number for line in theirs]
    return DifferingLines(count, tuple(lines_a), tuple(lines_b))


def records_differ(a: Module, b: Module) -> bool:
    """Whether one has other records than the other."""
    return list(map(str.strip, _records(a))) != list(map(str.strip, _records(b)))


def _records(module: Module) -> Iterator[str]:
    return (module.text[one.start : one.end] for one in module.walk() if is_inserted(one))


class _Values:
    """Which value of A is which of B, as far as the lines say that were read."""

    def __init__(self) -> None:
        self._b_of: dict[str, str] = {}
        self._a_of: dict[str, str] = {}

    def are_same(self, a: _CodeLine, b: _CodeLine) -> bool:
        """Whether two lines of one text name the same values. What nothing is known of yet is the same from here on."""
        # Other regions and functions give the same names again.
        self.forget([a], [b])
        pairs = list(zip(a.names, b.names, strict=True))
        # Not lazily: each pair is to be known.
        agree = [self._b_of.setdefault(mine, theirs) == theirs for mine, theirs in pairs]
        agree += [self._a_of.setdefault(theirs, mine) == mine for mine, theirs in pairs]
        return all(agree)

    def forget(self, a: Sequence[_CodeLine], b: Sequence[_CodeLine]) -> None:
        """The values that these lines give are new ones."""
        for known, lines in ((self._b_of, a), (self._a_of, b)):
            for name in (name for line in lines for name in line.given):
                known.pop(name, None)


def _code_lines(module: Module) -> Iterator[_CodeLine]:
    for number, line in enumerate(_without_locations(strip(module)).split("\n"), 1):
        text = line.strip()
        if text and not _LOCATION_ALIAS.fullmatch(text):
            yield _code_line(number, text)


def _without_locations(text: str) -> str:
    """Without comments, too."""
    pieces: list[str] = []
    done = depth = 0
    for mark in _MARK.finditer(text):
        word = mark[0]
        is_location = word.endswith("loc(")
        if depth:
            depth += (word == "(" or is_location) - (word == ")")
            if not depth:
                done = mark.end()
        elif is_location or word.startswith("//"):
            pieces.append(text[done : mark.start()])
            depth, done = int(is_location), mark.end()
    return "".join([*pieces, text[done:]])


def _code_line(number: int, text: str) -> _CodeLine:
    results = _RESULTS.match(text)
    takes_arguments = _TAKES_ARGUMENTS.match(text) is not None
    found = [name for name in _NAME.finditer(text) if name[1]]
    given = {
        name[1]
        for name in found
        if (results and name.start() < results.end())
        or _BOUND.match(text, name.end())
        or (takes_arguments and text.startswith(":", name.end()))
    }
    without_names = _NAME.sub(lambda name: "%" if name[1] else name[0], text)
    return _CodeLine(number, without_names, tuple(name[1] for name in found), frozenset(given))
