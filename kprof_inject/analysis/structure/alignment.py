"""Align two sequences: match equal elements in their order.

Python's ``difflib`` takes time that grows with the square of the length. This is patience diff, as in Bazaar and Git
("git diff --patience"): elements that occur once on both sides are matched first, then those between them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import pairwise

Pair = tuple[int, int]

# Each round looks for unique elements between those of the round before. Real modules need three or four.
_MAX_ROUNDS = 12


def aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Pair]:
    """Return the places of the elements that are matched, in order. Takes n log n steps."""
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
