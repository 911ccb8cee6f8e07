"""Source files of A paired with those of B, line by line."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from msgspec import Struct

from kprof_inject.capture.source_text import lines_of, shown_line, without_folders


class SourceLine(Struct, frozen=True):
    """Line of a source file, with its number from 1."""

    number: int
    text: str


def partner_of(path: str, others: Collection[str]) -> str | None:
    """Return the other side's path of a file, whatever its folder; None if there is none, or several of its name."""
    if path in others:
        return path
    named = [other for other in others if without_folders(other) == without_folders(path)]
    return named[0] if len(named) == 1 else None


def texts_of(path: str, a: Mapping[str, str], b: Mapping[str, str]) -> tuple[list[str], list[str]] | None:
    """Return a file's lines on both sides, whatever its folder; None if a side lacks the file."""
    path_a, path_b = partner_of(path, a), partner_of(path, b)
    return None if path_a is None or path_b is None else (lines_of(a[path_a]), lines_of(b[path_b]))


def aligned(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[SourceLine | None, SourceLine | None]]:
    """Yield the lines of two texts in pairs, edited ones in order; None for a line that the other text lacks."""
    lines_a, lines_b = _numbered(a), _numbered(b)
    for _, a_begin, a_end, b_begin, b_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield from zip_longest(lines_a[a_begin:a_end], lines_b[b_begin:b_end])


def _numbered(lines: Sequence[str]) -> list[SourceLine]:
    return [SourceLine(number, shown_line(text)) for number, text in enumerate(lines, 1)]
