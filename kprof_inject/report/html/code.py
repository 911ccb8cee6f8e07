"""The kernel's source and its TTGIR, with the scopes that stand on each line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kprof_inject.analysis.summary import LaunchSummary, ScopeSummary
from kprof_inject.capture.model import lines_of, shown_line, sources_of, ttgir_of
from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.errors import printable
from kprof_inject.report.html.pictures import packed
from kprof_inject.report.source_text import file_and_line
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.ttgir.strings import STRING, unquote

# The kernel's source with the time of the scopes that begin on each line.

# Of longer files, what stands around the scopes.
_MOST_SOURCE_LINES = 4000
_AROUND = 200


def source_lines(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    """An object for each source file, those with the most time first. ``pieces`` are ``[number of the first line,
    lines]``, ascending, with gaps between; none if the capture has no text of the file. ``timed`` has the lines with
    scopes: of those, ``self_ns`` is the sum, and ``total_ns`` that of such as stand in no other one of the line; both
    are None if no time of these is known."""
    places = [file_and_line(scope.source) for scope in summary.scopes]
    texts = sources_of(timeline.launch.kernel)
    scopes_of: dict[str, dict[int, list[int]]] = {path: {} for path in texts}
    for index, place in enumerate(places):
        if place:
            scopes_of.setdefault(place[0], {}).setdefault(place[1], []).append(index)
    parents = [scope.parent for scope in timeline.table.scopes]
    files = [
        {
            "path": printable(path),
            "pieces": _pieces(texts.get(path, ""), sorted(by_line)),
            "timed": [_timed(number, by_line[number], summary, parents) for number in sorted(by_line)],
        }
        for path, by_line in scopes_of.items()
    ]
    return sorted(files, key=lambda file: -sum(line["self_ns"] or 0 for line in file["timed"]))


def _timed(number: int, indices: list[int], summary: LaunchSummary, parents: list[int]) -> dict[str, Any]:
    scopes = [summary.scopes[index] for index in indices]
    outermost = [summary.scopes[index] for index in indices if not _is_within(index, set(indices), parents)]
    return {
        "line": number,
        "scopes": indices,
        "count": sum(scope.count for scope in outermost),
        "iterations": sum(_iterations(scope) for scope in scopes),
        "self_ns": _sum(scope.self_ns for scope in scopes),
        "total_ns": _sum(scope.total_ns for scope in outermost),
    }


def _sum(times_ns: Iterable[int | None]) -> int | None:
    known = [time_ns for time_ns in times_ns if time_ns is not None]
    return sum(known) if known else None


def _is_within(index: int, others: set[int], parents: list[int]) -> bool:
    """Whether one of ``others`` stands around a scope of the table."""
    # A parent stands before what is in it, so that this ends.
    while 0 <= parents[index] < index:
        index = parents[index]
        if index in others:
            return True
    return False


def _iterations(scope: ScopeSummary) -> int:
    return scope.count if scope.kind == "iter" else 0


def _pieces(text: str, numbers: list[int]) -> list[tuple[int, list[str]]]:
    """All lines, or, of a long file, those around the numbered ones."""
    if not text:
        return []
    lines = lines_of(text)
    kept = np.ones(len(lines), dtype=bool)
    if len(lines) > _MOST_SOURCE_LINES:
        kept[:] = False
        for number in numbers:
            kept[max(number - 1 - _AROUND, 0) : number + _AROUND] = True
    begins = np.flatnonzero(kept & ~np.append(False, kept[:-1]))
    ends = np.flatnonzero(kept & ~np.append(kept[1:], False)) + 1
    return [
        (begin + 1, [shown_line(line) for line in lines[begin:end]])
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)
    ]


# Where the lines of a TTGIR text come from, and which of them are one operation's: by its locations and its braces.
#
# No more of the text is understood than that: a capture is read without the parser, and texts that are not TTGIR do no
# harm. MLIR's locations: https://mlir.llvm.org/docs/Dialects/Builtin/#location-attributes

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


# Which lines of a TTGIR text a scope goes around.
#
# A capture has the module without records, and no table says where in it they stood. So they are looked for by the
# source line that a scope begins on and the calls that lead to it, which the module's locations tell.

_MOST_RANGES = 200
_LOOP = re.compile(r"\bscf\.(?:for|while)\b")
_FUNCTION = re.compile(r"\btt\.func\b")
# By the scope's kind: the operation with regions that it goes around.
_HEADS = {"func": _FUNCTION, "loop": _LOOP, "iter": _LOOP}
_OPERATION = "op"

Range = tuple[int, int]
"""First and last line, from 0."""


def sites_of(scopes: Sequence[ScopeInfo], lines: Sequence[str], chains: Sequence[Chain]) -> list[list[Range]]:
    """The ranges of each scope, ascending; none if its source is unknown, or if nothing of that is left.

    Of a function or a loop they are the whole of it; of any other scope the operations of the line that it begins on,
    within the loop or function that it stands in. Several scopes of one line have the same ranges.
    """
    text = _Text(lines, chains)
    sites: list[list[Range]] = []
    for index, scope in enumerate(scopes):
        found = text.ranges_of(scope)
        around = sites[scope.parent] if 0 <= scope.parent < index else []
        inside = [mine for mine in found if any(first <= mine[0] <= mine[1] <= last for first, last in around)]
        # What stands in something whose lines are unknown, or are single ones, may be anywhere.
        sites.append(list(_runs(inside or found))[:_MOST_RANGES])
    return sites


class _Text:
    """The lines by where they come from."""

    def __init__(self, lines: Sequence[str], chains: Sequence[Chain]) -> None:
        self._lines = lines
        # Of an operation with regions, the last line bears the location.
        first_of = {region.last: region.first for region in regions_of(lines)}
        self._ranges: dict[Chain, list[Range]] = {}
        for number, chain in enumerate(chains):
            if chain:
                self._ranges.setdefault(chain, []).append((first_of.get(number, number), number))

    def ranges_of(self, scope: ScopeInfo) -> list[Range]:
        if not scope.source:
            return []
        ranges = self._ranges.get((scope.source, *scope.called_from), [])
        if head := _HEADS.get(scope.kind):
            # A helper that was inlined has no operation of its own.
            return [found for found in ranges if head.search(self._lines[found[0]])] or self._inlined(scope)
        if scope.kind == _OPERATION and scope.label:
            return [found for found in ranges if scope.label in self._lines[found[0]]]
        return ranges

    def _inlined(self, scope: ScopeInfo) -> list[Range]:
        """The lines that the scope's calls lead to."""
        calls = scope.called_from
        if not calls:
            return []
        found = [ranges for chain, ranges in self._ranges.items() if chain[-len(calls) :] == calls]
        return sorted(one for ranges in found for one in ranges)


def _runs(ranges: Sequence[Range]) -> Iterator[Range]:
    """Ranges that touch become one."""
    run: Range | None = None
    for first, last in ranges:
        if run and first <= run[1] + 1:
            run = run[0], max(run[1], last)
            continue
        if run:
            yield run
        run = first, last
    if run:
        yield run


# The kernel's TTGIR with the lines of each scope.

_MOST_TTGIR_LINES = 200_000


def ttgir_lines(timeline: Timeline) -> dict[str, Any] | None:
    """None if the capture has no module.

    ``lines`` are those of the module without records, from 0. ``places`` are source lines as ``[file, line]``, and
    ``place_of`` says for each line of the module which of them it comes from, -1 if that is unknown. ``sites`` has for
    each scope of the table its ranges of lines (see ``sites_of``).
    """
    text = ttgir_of(timeline.launch.kernel)
    if not text:
        return None
    all_lines = lines_of(text)
    lines = all_lines[:_MOST_TTGIR_LINES]
    chains = chains_of(lines)
    numbers: dict[str, int] = {}
    place_of = [numbers.setdefault(chain[0], len(numbers)) if chain else -1 for chain in chains]
    return {
        "lines": [shown_line(line) for line in lines],
        "left_out": len(all_lines) - len(lines),
        "places": [_ttgir_place(place) for place in numbers],
        "place_of": packed(np.array(place_of, dtype=np.int64), "i4"),
        "sites": sites_of(timeline.table.scopes, lines, chains),
    }


def _ttgir_place(place: str) -> tuple[str, int]:
    path, _, line = place.rpartition(":")
    return printable(path), int(line)
