"""Count the operations in which two modules differ, regardless of their kind.

Locations, comments, records, and the names of values and layouts do not count as code.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from kprof_inject.analysis.structure.two_forms import TwoForms, is_generic
from kprof_inject.select.tags import is_inserted
from kprof_inject.ttgir.nodes import Module, Operation
from kprof_inject.ttgir.parser import parse
from kprof_inject.ttgir.ssa_values import label_text
from kprof_inject.ttgir.strings import STRING, without_locations
from kprof_inject.ttgir.types import closing_bracket

_NAME = re.compile(rf"{STRING}|(%[\w$.-]+)")
_LAYOUT = re.compile(rf"{STRING}|(?<![\w@])(#[\w$.-]+)")
_RESULTS = re.compile(r"%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=")
_BOUND = re.compile(r"\s*=(?!=)")
_TAKES_ARGUMENTS = re.compile(r"(?:tt\.)?func\b|\^|\}?\s*partition\d+\(")

# Bounds of an attribute's nesting and number of parts. Real layouts nest four deep; in a hostile file they may double
# at each level.
_MAX_DEPTH = 32
_MAX_PARTS = 256


class CodeLine(Struct, frozen=True):
    """An operation up to its first region, or the text between its regions or after them."""

    number: int
    """Number of its first line."""
    text: str
    """Text without the names of values and layouts."""
    names: tuple[str, ...]
    """Names of its values."""
    given: frozenset[str]
    """Results and arguments among ``names``."""
    layouts: tuple[str, ...]
    """Texts of its layouts."""


def code_lines(module: Module, pieces: Sequence[tuple[int, str]]) -> list[CodeLine]:
    """Return the lines that begin at these offsets and have these texts."""
    layouts_of = _PrintedLayouts(module.aliases)
    lines = []
    for number, (_, printed) in zip(module.line_numbers([start for start, _ in pieces]), pieces, strict=True):
        text, layouts = layouts_of.take(without_locations(printed))
        results = _RESULTS.match(text)
        takes_arguments = _TAKES_ARGUMENTS.search(text) is not None
        found = [name for name in _NAME.finditer(text) if name[1]]
        given = {
            name[1]
            for name in found
            if (results and name.start() < results.end())
            or _BOUND.match(text, name.end())
            or (takes_arguments and text.startswith(":", name.end()))
        }
        without_names = _NAME.sub(lambda name: "%" if name[1] else name[0], text)
        lines.append(CodeLine(number, without_names, tuple(name[1] for name in found), frozenset(given), layouts))
    return lines


def printed_pieces(module: Module) -> Iterator[tuple[int, str]]:
    """Yield the offset and the text of each operation except records, without what is in its regions."""
    text = module.text
    waiting: list[Operation | tuple[int, str]] = list(reversed(module.operations))
    while waiting:
        one = waiting.pop()
        if isinstance(one, tuple):
            yield one
        elif not is_inserted(one):
            inside: list[Operation | tuple[int, str]] = []
            start = one.start
            for region in one.regions:
                first, *others = region.blocks
                inside += [(start, text[start : first.start]), *first.operations]
                for block in others:
                    label = label_text(module, region, block)
                    inside += [(block.start - len(label), label), *block.operations]
                start = region.end
            inside.append((start, text[start : one.end]))
            waiting += reversed(inside)


class _PrintedLayouts:
    """Attributes of a module by their text: a name, or a whole attribute."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases
        self._known: dict[str, tuple[str, ...]] = {}
        self._depth = 0

    def take(self, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the text with a ``#`` for each attribute, and the attributes.

        Each is without the attributes in it, which follow it.
        """
        found: list[str] = []
        pieces: list[str] = []
        done = 0
        for mark in _LAYOUT.finditer(text):
            if not mark[1] or mark.start() < done:
                continue
            pieces.append(text[done : mark.start()])
            done = mark.end()
            if text.startswith("<", done):
                done = closing_bracket(text, done + 1) + 1
            found += self._whole(text[mark.start() : done])
        return "#".join([*pieces, text[done:]]), tuple(found)

    def _whole(self, attribute: str) -> tuple[str, ...]:
        if attribute not in self._known:
            body = self._aliases.get(attribute)
            self._known[attribute] = (attribute,)  # an attribute that refers to itself is left unchanged
            if self._depth < _MAX_DEPTH:
                self._depth += 1
                own, inner = self.take(attribute[1:] if body is None else without_locations(body))
                self._depth -= 1
                parts = inner if body is not None and own == "#" else (f"#{own}", *inner)
                if len(parts) <= _MAX_PARTS:
                    self._known[attribute] = parts
        return self._known[attribute]


_CURRENT = {
    "#triton_gpu.shared<": "#ttg.swizzled_shared<",
    "triton_gpu.": "ttg.",
    "triton_nvidia_gpu.": "ttng.",
    "amdgpu.": "amdg.",
    "!tt.memdesc<": "!ttg.memdesc<",
    "tt.experimental_descriptor_": "tt.descriptor_",
}
_FORMER = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}" for name in _CURRENT))


def with_current_names(module: Module) -> Module:
    """Return the module with today's names for what Triton has renamed; its lines keep their numbers.

    Up to Triton 3.2, its GPU dialects were ``triton_gpu`` and ``triton_nvidia_gpu``; up to 3.5, AMD's was ``amdgpu``.
    ``!tt.memdesc``, ``#triton_gpu.shared`` and ``tt.experimental_descriptor_load`` date from the same time.
    """
    if not any(name in module.text for name in _CURRENT):
        return module
    return parse(_FORMER.sub(lambda found: _CURRENT[found[0]], module.text), module.file)


class DifferingLines(Struct, frozen=True):
    """Lines of code that differ; there are none only if all lines are equal and name the same values."""

    count: int
    """A line and the one that replaces it count as one, and so do all lines that differ only in a layout that became
    another one throughout."""
    lines_a: tuple[int, ...]
    """Numbers as in ``Module.line_numbers``."""
    lines_b: tuple[int, ...]


def differing_lines(a: Module, b: Module) -> DifferingLines:
    """Compare two modules, in n log n steps for n lines.

    The result is the same from either side.
    """
    a, b = with_current_names(a), with_current_names(b)
    pieces_of = printed_pieces
    if is_generic(a) != is_generic(b):
        pieces_of = (TwoForms(a, b) if is_generic(b) else TwoForms(b, a)).pieces
    lines_a, lines_b = code_lines(a, list(pieces_of(a))), code_lines(b, list(pieces_of(b)))
    # Several alignments may be equally good: the choice must not depend on the direction.
    if [line.text for line in lines_b] < [line.text for line in lines_a]:
        found = _best_comparison(lines_b, lines_a)
        return DifferingLines(found.count, found.lines_b, found.lines_a)
    return _best_comparison(lines_a, lines_b)


_Lines = Sequence[CodeLine]


def _best_comparison(a: _Lines, b: _Lines) -> DifferingLines:
    """Compare line by line and aligned, and return the result with fewer differences.

    Where many lines have the same text, an alignment may pair the wrong ones.
    """
    found = []
    if len(a) == len(b):
        found.append(_differing(a, b, (([one], [other]) for one, other in zip(a, b, strict=True))))
    if not found or found[0].count:
        runs = blocks([line.text for line in a], [line.text for line in b])
        found.append(_differing(a, b, ((a[in_a], b[in_b]) for in_a, in_b, _ in runs)))
    return min(found, key=lambda one: one.count)


def _differing(a: _Lines, b: _Lines, parts: Iterable[tuple[_Lines, _Lines]]) -> DifferingLines:
    values, layouts = _Values(), _LineLayouts(a, b)
    count = 0
    lines_a: list[int] = []
    lines_b: list[int] = []
    for part_a, part_b in parts:
        if [line.text for line in part_a] == [line.text for line in part_b]:
            pairs = [*zip(part_a, part_b, strict=True)]
            # Not lazily: both must see each pair.
            differ = [[values.differ(*pair), layouts.differ(*pair)] for pair in pairs]
            pairs = [pair for pair, found in zip(pairs, differ, strict=True) if any(found)]
            count += len(pairs)
            part_a, part_b = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        else:
            count += max(len(part_a), len(part_b))
            values.forget(part_a, part_b)
        lines_a += [line.number for line in part_a]
        lines_b += [line.number for line in part_b]
    # Lines that differ in a layout alone count together.
    count += len(layouts.changed)
    lines_a += [line.number for line, _ in layouts.lines]
    lines_b += [line.number for _, line in layouts.lines]
    return DifferingLines(count, tuple(sorted({*lines_a})), tuple(sorted({*lines_b})))


def records_differ(a: Module, b: Module) -> bool:
    """Return True if the modules have different records."""
    records_a, records_b = (
        [module.text[one.start : one.end].strip() for one in module.walk() if is_inserted(one)] for module in (a, b)
    )
    return records_a != records_b


class _Values:
    """Values of A and B that correspond, as far as the lines read so far show."""

    def __init__(self) -> None:
        self._b_of: dict[str, str] = {}
        self._a_of: dict[str, str] = {}

    def differ(self, a: CodeLine, b: CodeLine) -> bool:
        """Return True if two lines with the same text name different values.

        Values seen for the first time are taken as the same from then on.
        """
        # Other regions and functions reuse names.
        self.forget([a], [b])
        pairs = list(zip(a.names, b.names, strict=True))
        # Not lazily: both must see each pair.
        agree = [self._b_of.setdefault(name_a, name_b) == name_b for name_a, name_b in pairs]
        agree += [self._a_of.setdefault(name_b, name_a) == name_a for name_a, name_b in pairs]
        return not all(agree)

    def forget(self, a: Sequence[CodeLine], b: Sequence[CodeLine]) -> None:
        """Forget the values that these lines give: they are new ones."""
        for known, lines in ((self._b_of, a), (self._a_of, b)):
            for name in (name for line in lines for name in line.given):
                known.pop(name, None)


class _LineLayouts:
    """Layouts only in A that became layouts only in B (``changed``), and the pairs of ``lines`` that use them."""

    def __init__(self, a: _Lines, b: _Lines) -> None:
        in_a, in_b = ({layout for line in side for layout in line.layouts} for side in (a, b))
        self._only_a, self._only_b = in_a - in_b, in_b - in_a
        self.changed: set[tuple[str, str]] = set()
        self.lines: list[tuple[CodeLine, CodeLine]] = []
        self._b_of: dict[str, str] = {}
        self._a_of: dict[str, str] = {}

    def differ(self, a: CodeLine, b: CodeLine) -> bool:
        """Return True if two lines with the same text have different layouts that are not such a change."""
        if len(a.layouts) != len(b.layouts):
            return True
        pairs = {pair for pair in zip(a.layouts, b.layouts, strict=True) if pair[0] != pair[1]}
        for layout_a, layout_b in pairs:
            if layout_a not in self._only_a or layout_b not in self._only_b:
                return True
            if self._b_of.setdefault(layout_a, layout_b) != layout_b:
                return True
            if self._a_of.setdefault(layout_b, layout_a) != layout_a:
                return True
        if pairs:
            self.changed |= pairs
            self.lines.append((a, b))
        return False


Pair = tuple[int, int]

# Each round looks for unique elements between those of the previous one. Real modules need three or four rounds.
_MAX_ROUNDS = 12


def aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Return the places of the elements that are matched, in order, in n log n steps.

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
        in_a, in_b = range(a_begin, a_end), range(b_begin, b_end)
        anchors: list[Pair] = []
        if rounds < _MAX_ROUNDS:
            times_a, times_b = Counter(a[at] for at in in_a), Counter(b[at] for at in in_b)
            place = {b[at]: at for at in in_b if times_b[b[at]] == 1}
            unique = [(at, place[a[at]]) for at in in_a if times_a[a[at]] == 1 and a[at] in place]
            anchors = _longest_increasing(unique)
        if not anchors:  # equal elements, the first with the first and so on
            places: dict[Hashable, list[int]] = {}
            for at in reversed(in_b):
                places.setdefault(b[at], []).append(at)
            pairs += _longest_increasing([(at, places[a[at]].pop()) for at in in_a if places.get(a[at])])
            continue
        pairs += anchors
        edges = [(a_begin - 1, b_begin - 1), *anchors, (a_end, b_end)]
        for (a_before, b_before), (a_after, b_after) in pairwise(edges):
            waiting.append((a_before + 1, a_after, b_before + 1, b_after, rounds + 1))
    return sorted(pairs)


def _longest_increasing(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest sequence of pairs that increases on both sides; ``pairs`` increase on the first."""
    last: list[int] = []  # by the length of a chain, the smallest second place that ends one
    ends: list[int] = []  # and the pair with this place
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
