"""Changed code for a reader: the reasons why a kernel changed, and both sides' sources side by side, also as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from kprof_inject.analysis.loop_metrics import LoopFigures
from kprof_inject.analysis.structure.structural_changes import StructuralChange
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.source_text import file_and_line, sources_of, without_folders
from kprof_inject.quantities import before_and_after, counted, listed, percent, short_time, signed_time, size_text
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.paired_sources import SourceLine, aligned, texts_of
from kprof_inject.report.diff.structure import OUTSIDE, WHOLE, ChangedPart, CodePart, ModuleChanges, Structure

_MAX_PLACES = 6


def structure_lines(structure: Structure | None, diff: KernelDiff) -> Iterator[str]:
    """Yield the changes of the code as lines; none if the code is unknown."""
    if structure is None:
        return
    if not structure.parts:
        differing = structure.differing_lines
        same = "the TTGIR is the same on both sides"
        yield f"code: {_unrecognized(differing, structure.only_part) if differing else same}"
        return
    yield "code:" if diff.launch.changed else "code, with no difference in time:"
    for part in structure.parts:
        yield f"  {part.part}{_explained(part, structure, diff.launch.changed)}"
        if part.loops is not None:
            yield from (f"    {line}" for line in _loop_lines(*part.loops))
        for text, places in _places_by_text(part.changes).items():
            yield f"    {text}{_at(places)}"
    elsewhere_ns = elsewhere_cta_ns(structure, diff)
    if elsewhere_ns is not None and diff.cta_change_ns is not None:
        yield f"  elsewhere: {signed_time(elsewhere_ns)}; net: {signed_time(diff.cta_change_ns)} per CTA"


def elsewhere_cta_ns(structure: Structure, diff: KernelDiff) -> float | None:
    """Return how many nanoseconds longer a CTA takes outside of the parts; None if that is unknown."""
    net_ns = diff.cta_change_ns
    parts_ns = [part.cta_change_ns for part in structure.parts if part.scopes]
    known_ns = [part_ns for part_ns in parts_ns if part_ns is not None]
    if net_ns is None or not known_ns or len(known_ns) < len(parts_ns):
        return None
    return net_ns - sum(known_ns)


def _loop_lines(a: LoopFigures, b: LoopFigures) -> Iterator[str]:
    """Yield the figures that explain the change of a loop's time."""
    if a.unit is not None and b.unit is not None:
        before, after = percent(a.parts[a.unit]), percent(b.parts[b.unit])
        if a.unit == b.unit:
            yield f"busiest unit: {b.unit}, at least {before_and_after(before, after)} of its peak"
        else:
            yield f"busiest unit: {a.unit}, at least {before} of its peak → {b.unit}, {after}"
    if None not in (a.ahead_bytes_per_sm, b.ahead_bytes_per_sm) and a.ahead_bytes_per_sm != b.ahead_bytes_per_sm:
        yield f"copied ahead: {_ahead(a)} → {_ahead(b)} per SM"
    if a.wait_ns is not None and b.wait_ns is not None:
        yield f"recorded waits: {short_time(a.wait_ns)} → {short_time(b.wait_ns)} per iteration"


def _ahead(loop: LoopFigures) -> str:
    return size_text(loop.ahead_bytes_per_sm) if loop.ahead_bytes_per_sm else "nothing"


def _unrecognized(differing: int, part: CodePart | None = None) -> str:
    """Return the note on lines that differ, all in ``part`` if it is known, although no change was found."""
    text = f"the TTGIR differs in {counted(differing, 'line')}"
    if part is not None and part != WHOLE:
        text += f", only {part}" if part == OUTSIDE else f", only in {part}"
    return f"{text}; diff recognizes no change there"


def _places_by_text(changes: Sequence[StructuralChange]) -> dict[str, list[str]]:
    """Group changes of the same text, each with all its places."""
    found: dict[str, list[str]] = {}
    for change in changes:
        places = found.setdefault(change.text, [])
        if change.source:
            places.append(without_folders(f"{change.source.file}:{change.source.line}"))
    return found


def _at(places: Sequence[str]) -> str:
    return f" ({listed(list(dict.fromkeys(places)), _MAX_PLACES)})" if places else ""


def _explained(part: ChangedPart, structure: Structure, has_changed: bool) -> str:
    means = [
        f"{scope.distinct_name} {short_time(scope.mean_ns.a)} → {short_time(scope.mean_ns.b)}"
        for scope in part.scopes
        if scope.judged is not None and scope.judged.changed and scope.mean_ns.a and scope.mean_ns.b
    ]
    explained = [] if part.cta_change_ns is None else [f"{signed_time(part.cta_change_ns)} per CTA"]
    is_all = has_changed and part.part == structure.only_part
    if is_all and part.part == WHOLE:
        explained = ["all of the change, because the code is the same"]
    elif explained and structure.everywhere and part.part != WHOLE:
        explained = [f"{explained[0]}, caused here or by the changes of {WHOLE}"]
    elif is_all:
        explained = ["all of the change, because the code differs nowhere else", *explained]
    reasons = [*explained, *means[:1]]
    return f": {'; '.join(reasons)}" if reasons else ""


def change_lines(found: ModuleChanges) -> Iterator[str]:
    """Yield the changes of two modules that have no times."""
    if not found.changes:
        same = "the TTGIR is the same, apart from records" if found.records_differ else "the TTGIR is the same"
        yield _unrecognized(found.differing_lines) if found.differing_lines else same
    for text, places in _places_by_text(found.changes).items():
        yield f"{text}{_at(places)}"


def changes_json(found: ModuleChanges) -> dict[str, Any]:
    """Return the changes of two modules as JSON values."""
    return {
        "changes": list(map(change_json, found.changes)),
        "differing_lines": found.differing_lines,
        "records_differ": found.records_differ,
    }


def change_json(change: StructuralChange) -> dict[str, Any]:
    """Return one change as JSON values."""
    return {
        "id": change.id,
        "text": change.text,
        "kind": change.kind,
        "loop": change.loop or None,
        "file": change.source.file if change.source else None,
        "line": change.source.line if change.source else None,
    }


def structure_json(structure: Structure | None, diff: KernelDiff) -> dict[str, Any] | None:
    """Return the changes of the code as JSON values; None if there is no code to compare."""
    if structure is None:
        return None
    return {
        "parts": list(map(_part_json, structure.parts)),
        "unexplained": structure.unexplained,
        "elsewhere_cta_ns": elsewhere_cta_ns(structure, diff),
        "net_cta_ns": diff.cta_change_ns,
        "everywhere": list(map(change_json, structure.everywhere)),
        "differing_lines": structure.differing_lines,
        "only_part": structure.only_part and structure.only_part.name,
    }


def _part_json(part: ChangedPart) -> dict[str, Any]:
    return {
        "part": part.part.name,
        "index": part.part.index,
        "explained": part.explained,
        "cta_change_ns": part.cta_change_ns,
        "loops": part.loops and {"a": part.loops[0].to_json(), "b": part.loops[1].to_json()},
        "changes": list(map(change_json, part.changes)),
    }


_NAMES = {
    "shared bytes": "shared_bytes",
    "registers": "registers",
    "spills": "spills",
    "CTAs per SM": "ctas_per_sm",
}
"""Fields of a build by their names in the comparison of captures."""


def build_lines(builds: Sequence[KernelResources | None], how: str = "compiled here") -> Iterator[str]:
    """Yield one line on the builds of both sides and how they were made; none if neither was compiled."""
    if not any(builds):
        return
    parts = []
    for name, field in _NAMES.items():
        numbers = (getattr(build, field, None) for build in builds)
        before, after = ("-" if number is None else str(number) for number in numbers)
        if (before, after) != ("-", "-"):
            parts.append(f"{name} {before}" if before == after else f"{name} {before} → {after}")
    yield f"{how}: {', '.join(parts)}"


def builds_json(builds: Sequence[KernelResources | None]) -> dict[str, Any] | None:
    """Return the builds of both sides as JSON values; None if neither was compiled."""
    if not any(builds):
        return None
    sides = zip("ab", builds, strict=True)
    return {side: build and {field: getattr(build, field) for field in _NAMES.values()} for side, build in sides}


# Unchanged lines shown above and below each changed line.
_AROUND = 2
_NUMBER_WIDTH = 4


class SourceRow(Struct, frozen=True):
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


class SourcePart(Struct, frozen=True):
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
    sources = [scope.source for side in (diff.a, diff.b) for scope in side.kernel.scopes.scopes]
    places = [place for place in map(file_and_line, sources) if place] + [place[1:] for place in changes]
    parts: list[SourcePart] = []
    for path in dict.fromkeys(path for path, _ in places):
        lines = [line for other, line in places if other == path]
        pair = texts_of(path, texts_a, texts_b)
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


def _parts_of(
    path: str, texts: tuple[list[str], list[str]], changes: Mapping[tuple[str, str, int], Sequence[str]], kernel: range
) -> Iterator[SourcePart]:
    rows = [_row(path, a, b, changes) for a, b in aligned(*texts)]
    shown: set[int] = set()
    for at, row in enumerate(rows):
        if row.changes or (row.is_edited and any(line and line.number in kernel for line in (row.a, row.b))):
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
