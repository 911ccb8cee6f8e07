"""Which lines of a TTGIR text a scope goes around.

A capture has the module without records, and no table says where in it they stood. So they are looked for by the source
line that a scope begins on and the calls that lead to it, which the module's locations tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.report.html.sections.ttgir_places import Chain, regions_of

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
