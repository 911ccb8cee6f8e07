"""Count the operations in which two modules differ, whatever a comparison looks for.

Locations, comments, records, and the names of values and layouts are no code and do not count.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kprof_inject.analysis.structure.printed_code import CodeLine, code_lines, printed_pieces, with_current_names
from kprof_inject.analysis.structure.two_forms import TwoForms, is_generic
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.nodes import Module


@dataclass(frozen=True, slots=True)
class DifferingLines:
    """Lines of code that are not the same; none only if all are, and name the same values.

    They have the numbers of ``Module.line_numbers``. ``count`` counts a line and the one that replaced it as one, and
    all lines that differ in a layout alone as one if that has become another one throughout."""

    count: int
    lines_a: tuple[int, ...]
    lines_b: tuple[int, ...]


def differing_lines(a: Module, b: Module) -> DifferingLines:
    """Compare two modules. The result is the same from either side, and takes n log n steps for n lines."""
    lines_a, lines_b = _lines_of(with_current_names(a), with_current_names(b))
    # Several alignments may be equally good: which is found must not depend on the direction.
    if [line.text for line in lines_b] < [line.text for line in lines_a]:
        found = _fewest(lines_b, lines_a)
        return DifferingLines(found.count, found.lines_b, found.lines_a)
    return _fewest(lines_a, lines_b)


_Lines = Sequence[CodeLine]


def _lines_of(a: Module, b: Module) -> tuple[_Lines, _Lines]:
    pieces_of = printed_pieces
    if is_generic(a) != is_generic(b):
        pieces_of = (TwoForms(a, b) if is_generic(b) else TwoForms(b, a)).pieces
    return code_lines(a, list(pieces_of(a))), code_lines(b, list(pieces_of(b)))


def _fewest(a: _Lines, b: _Lines) -> DifferingLines:
    """Compare line by line and aligned, and return the result with fewer differences: where many lines have the same
    text, one may be taken for another."""
    found = []
    if len(a) == len(b):
        found.append(_differing(a, b, (([one], [other]) for one, other in zip(a, b, strict=True))))
    if not found or found[0].count:
        runs = blocks([line.text for line in a], [line.text for line in b])
        found.append(_differing(a, b, ((a[in_a], b[in_b]) for in_a, in_b, _ in runs)))
    return min(found, key=lambda one: one.count)


def _differing(a: _Lines, b: _Lines, parts: Iterable[tuple[_Lines, _Lines]]) -> DifferingLines:
    values, layouts = _Values(), _LineLayouts.of(a, b)
    count = 0
    lines_a: list[int] = []
    lines_b: list[int] = []
    for mine, theirs in parts:
        if [line.text for line in mine] == [line.text for line in theirs]:
            pairs = [*zip(mine, theirs, strict=True)]
            # Not lazily: each pair is to be known.
            differ = [[values.differ(*pair), layouts.differ(*pair)] for pair in pairs]
            pairs = [pair for pair, found in zip(pairs, differ, strict=True) if any(found)]
            count += len(pairs)
            mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            count += max(len(mine), len(theirs))
            values.forget(mine, theirs)
        lines_a += [line.number for line in mine]
        lines_b += [line.number for line in theirs]
    # Lines that differ in a layout alone count together.
    count += len(layouts.changed)
    lines_a += [line.number for line, _ in layouts.lines]
    lines_b += [line.number for _, line in layouts.lines]
    return DifferingLines(count, tuple(sorted({*lines_a})), tuple(sorted({*lines_b})))


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

    def differ(self, a: CodeLine, b: CodeLine) -> bool:
        """Return whether two lines of one text name different values. What nothing is known of yet is the same from
        here on."""
        # Other regions and functions give the same names again.
        self.forget([a], [b])
        pairs = list(zip(a.names, b.names, strict=True))
        # Not lazily: each pair is to be known.
        agree = [self._b_of.setdefault(mine, theirs) == theirs for mine, theirs in pairs]
        agree += [self._a_of.setdefault(theirs, mine) == mine for mine, theirs in pairs]
        return not all(agree)

    def forget(self, a: Sequence[CodeLine], b: Sequence[CodeLine]) -> None:
        """Forget the values that these lines give: they are new ones."""
        for known, lines in ((self._b_of, a), (self._a_of, b)):
            for name in (name for line in lines for name in line.given):
                known.pop(name, None)


@dataclass(slots=True)
class _LineLayouts:
    """The layouts of A alone that became layouts of B alone (``changed``), and the pairs of ``lines`` that use them."""

    only_a: frozenset[str]
    only_b: frozenset[str]
    changed: set[tuple[str, str]] = field(default_factory=set)
    lines: list[tuple[CodeLine, CodeLine]] = field(default_factory=list)
    _b_of: dict[str, str] = field(default_factory=dict)
    _a_of: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, a: _Lines, b: _Lines) -> _LineLayouts:
        in_a, in_b = (frozenset(layout for line in side for layout in line.layouts) for side in (a, b))
        return cls(in_a - in_b, in_b - in_a)

    def differ(self, a: CodeLine, b: CodeLine) -> bool:
        """Return whether two lines of one text have different layouts, of which one has not become the other."""
        if len(a.layouts) != len(b.layouts):
            return True
        pairs = {pair for pair in zip(a.layouts, b.layouts, strict=True) if pair[0] != pair[1]}
        for mine, theirs in pairs:
            if mine not in self.only_a or theirs not in self.only_b:
                return True
            if self._b_of.setdefault(mine, theirs) != theirs or self._a_of.setdefault(theirs, mine) != mine:
                return True
        if pairs:
            self.changed |= pairs
            self.lines.append((a, b))
        return False


Pair = tuple[int, int]

# Each round looks for unique elements between those of the round before. Real modules need three or four.
_MAX_ROUNDS = 12


def aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Return the places of the elements that are matched, in order. Takes n log n steps.

    Python's ``difflib`` takes time that grows with the square of the length. This is patience diff, as in Bazaar and
    Git ("git diff --patience"): elements that occur once on both sides are matched first, then those between them.
    """
    pairs: list[Pair] = []
    waiting = [(0, len(a), 0, len(b), 0)]
    while waiting:
        a_begin, a_end, b_begin, b_end, rounds = waiting.pop()
        while a_begin < a_end and b_begin < b_end and a[a_begin] == b[b_begin]:
            pairs.append((a_begin, b_begin))
            a_begin, b_begin = a_begin + 1, b_begin + 1
        while a_begin < a_end and b_begin < b_end and a[a_end - 1] == b[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
            pairs.append((a_end, b_end))
        if a_begin == a_end or b_begin == b_end:
            continue
        gap = range(a_begin, a_end), range(b_begin, b_end)
        anchors = _longest_increasing(_unique(a, b, *gap)) if rounds < _MAX_ROUNDS else []
        if not anchors:
            pairs += _longest_increasing(_in_turn(a, b, *gap))
            continue
        pairs += anchors
        edges = [(a_begin - 1, b_begin - 1), *anchors, (a_end, b_end)]
        for (a_before, b_before), (a_behind, b_behind) in pairwise(edges):
            waiting.append((a_before + 1, a_behind, b_before + 1, b_behind, rounds + 1))
    return sorted(pairs)


def _unique(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range) -> list[Pair]:
    """Return the places of the elements that occur once on both sides."""
    times_a, times_b = Counter(a[at] for at in in_a), Counter(b[at] for at in in_b)
    places = {b[at]: at for at in in_b if times_b[b[at]] == 1}
    return [(at, places[a[at]]) for at in in_a if times_a[a[at]] == 1 and a[at] in places]


def _in_turn(a: Sequence[Hashable], b: Sequence[Hashable], in_a: range, in_b: range) -> list[Pair]:
    """Return the places of equal elements, the first with the first and so on."""
    places: dict[Hashable, list[int]] = {}
    for at in reversed(in_b):
        places.setdefault(b[at], []).append(at)
    return [(at, places[a[at]].pop()) for at in in_a if places.get(a[at])]


def _longest_increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """Return as many pairs as increase on both sides; ``pairs`` increase on the first."""
    last: list[int] = []  # of the chains of each length, the smallest second place that one ends with
    ends: list[int] = []  # and the pair that has it
    before: list[int] = []
    for index, (_, place) in enumerate(pairs):
        length = bisect_left(last, place)
        before.append(ends[length - 1] if length else -1)
        last[length : length + 1] = [place]
        ends[length : length + 1] = [index]
    found = []
    at = ends[-1] if ends else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def blocks(a: Sequence[Hashable], b: Sequence[Hashable]) -> Iterator[tuple[slice, slice, bool]]:
    """Yield runs of both sequences, in order, and whether their elements are matched one by one."""
    a_done = b_done = 0
    for a_at, b_at in [*aligned(a, b), (len(a), len(b))]:
        if (a_done, b_done) != (a_at, b_at):
            yield slice(a_done, a_at), slice(b_done, b_at), False
        if a_at < len(a):
            yield slice(a_at, a_at + 1), slice(b_at, b_at + 1), True
        a_done, b_done = a_at + 1, b_at + 1
