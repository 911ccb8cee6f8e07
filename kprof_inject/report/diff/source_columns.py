"""Sources of the kernel in A and in B side by side, with the compiler's changes at each line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Any

from kprof_inject.capture.source_text import file_and_line, lines_of, shown_line, sources_of, without_folders
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.structure import Structure

# Unchanged lines shown above and below each changed line.
_AROUND = 2
_NUMBER_WIDTH = 4


@dataclass(frozen=True, slots=True)
class SourceLine:
    """Line of a source file, with its number from 1."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class SourceRow:
    """Line as it is in A and in B; None where a side lacks it.

    ``changes`` are the texts of the compiler's changes at this line.
    """

    a: SourceLine | None
    b: SourceLine | None
    changes: tuple[str, ...]

    @property
    def is_edited(self) -> bool:
        """True if the line differs between the sides."""
        return self.a is None or self.b is None or self.a.text != self.b.text


@dataclass(frozen=True, slots=True)
class SourcePart:
    """Consecutive rows of the file ``name``, without folders."""

    name: str
    rows: tuple[SourceRow, ...]

    @property
    def indent(self) -> int:
        """Indentation that all of its lines share."""
        texts = [line.text for row in self.rows for line in (row.a, row.b) if line and line.text.strip()]
        return min((len(text) - len(text.lstrip()) for text in texts), default=0)


def source_parts(diff: KernelDiff, structure: Structure | None) -> list[SourcePart]:
    """Return the parts of the source in which the compiler's output, or the text within the kernel, changed.

    A file whose text is unknown has no parts.
    """
    texts_a, texts_b = sources_of(diff.a.kernel), sources_of(diff.b.kernel)
    changes = _changes_at(structure)
    places = [place for place in map(file_and_line, _scope_sources(diff)) if place] + [place[1:] for place in changes]
    parts: list[SourcePart] = []
    for path in dict.fromkeys(path for path, _ in places):
        lines = [line for other, line in places if other == path]
        pair = _texts(path, texts_a, texts_b)
        if pair is not None:
            parts += _parts_of(path, pair, changes, range(min(lines), max(lines) + 1))
    return parts


def _changes_at(structure: Structure | None) -> dict[tuple[str, str, int], list[str]]:
    """Return the texts of changes by side, path and line."""
    found: dict[tuple[str, str, int], list[str]] = {}
    for change in (change for part in (structure.parts if structure else ()) for change in part.changes):
        if change.source is not None:
            side = "b" if change.operations_b else "a"
            texts = found.setdefault((side, change.source.file, change.source.line), [])
            if change.text not in texts:
                texts.append(change.text)
    return found


def _scope_sources(diff: KernelDiff) -> Iterator[str]:
    """Yield the source places of both kernels' scopes."""
    for kernel in (diff.a.kernel, diff.b.kernel):
        yield from (scope.source for scope in kernel.scopes.scopes)


def _texts(path: str, a: Mapping[str, str], b: Mapping[str, str]) -> tuple[list[str], list[str]] | None:
    """Return a file's lines on both sides, whatever its folder; None if a side lacks the file."""
    found = [texts.get(path) or _text_of_name(without_folders(path), texts) for texts in (a, b)]
    if found[0] is None or found[1] is None:
        return None
    return lines_of(found[0]), lines_of(found[1])


def _text_of_name(name: str, texts: Mapping[str, str]) -> str | None:
    named = [text for path, text in texts.items() if without_folders(path) == name]
    return named[0] if len(named) == 1 else None


def _parts_of(
    path: str, texts: tuple[list[str], list[str]], changes: Mapping[tuple[str, str, int], Sequence[str]], kernel: range
) -> Iterator[SourcePart]:
    rows = [_row(path, a, b, changes) for a, b in _aligned(*texts)]
    shown: set[int] = set()
    for at, row in enumerate(rows):
        if row.changes or (row.is_edited and _is_in(row, kernel)):
            shown.update(range(max(at - _AROUND, 0), min(at + _AROUND + 1, len(rows))))
    name = without_folders(path)
    for run in _runs(sorted(shown)):
        yield SourcePart(name, tuple(rows[at] for at in run))


def _row(
    path: str,
    a: SourceLine | None,
    b: SourceLine | None,
    changes: Mapping[tuple[str, str, int], Sequence[str]],
) -> SourceRow:
    texts = (
        text
        for side, line in (("a", a), ("b", b))
        if line is not None
        for text in changes.get((side, path, line.number), ())
    )
    return SourceRow(a, b, tuple(dict.fromkeys(texts)))


def _is_in(row: SourceRow, kernel: range) -> bool:
    return any(line is not None and line.number in kernel for line in (row.a, row.b))


def _aligned(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[SourceLine | None, SourceLine | None]]:
    lines_a, lines_b = _numbered(a), _numbered(b)
    for _, a_begin, a_end, b_begin, b_end in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield from zip_longest(lines_a[a_begin:a_end], lines_b[b_begin:b_end])


def _numbered(lines: Sequence[str]) -> list[SourceLine]:
    return [SourceLine(number, shown_line(text)) for number, text in enumerate(lines, 1)]


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    """Group ascending numbers into runs of consecutive ones."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def part_lines(part: SourcePart, max_characters: int | None) -> Iterator[str]:
    """Yield the rows as lines of text, with a star between the sides of an edited one.

    Each side has at most ``max_characters`` characters; None is no limit.
    """
    indent = part.indent
    pairs = [tuple(_source_cell(line, indent, max_characters) for line in (row.a, row.b)) for row in part.rows]
    width = max(len(a) for a, _ in pairs)
    for row, (a, b) in zip(part.rows, pairs, strict=True):
        yield f"{a:{width}} {'*' if row.is_edited else '|'} {b}".rstrip()
        yield from (f"{'':{_NUMBER_WIDTH}} ^ {text}" for text in row.changes)


def _source_cell(line: SourceLine | None, indent: int, max_characters: int | None) -> str:
    text = f"{line.number:{_NUMBER_WIDTH}} {line.text[indent:]}" if line else ""
    return text if max_characters is None or len(text) <= max_characters else f"{text[: max_characters - 1]}…"


def parts_json(parts: Sequence[SourcePart]) -> list[dict[str, Any]]:
    """Return the parts as JSON values."""
    return [
        {
            "file": part.name,
            "rows": [
                {side: line and {"line": line.number, "text": line.text} for side, line in (("a", row.a), ("b", row.b))}
                | {"edited": row.is_edited, "changes": list(row.changes)}
                for row in part.rows
            ],
        }
        for part in parts
    ]
