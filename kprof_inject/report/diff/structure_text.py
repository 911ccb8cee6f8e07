"""Why a kernel changed, in lines for a reader and as JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kprof_inject.analysis.loop_metrics import LoopFigures
from kprof_inject.analysis.structure.structural_changes import StructuralChange
from kprof_inject.capture.resources import KernelResources
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import before_and_after, counted, listed, percent, short_time, signed_time, size_text
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.structure import OUTSIDE, WHOLE, ChangedPart, CodePart, ModuleChanges, Structure

_MOST_PLACES = 6


def structure_lines(structure: Structure | None, diff: KernelDiff) -> Iterator[str]:
    """What there is to say, in lines: nothing if the code is the same, or is not known."""
    if structure is None:
        return
    if not structure.parts:
        told = _unlisted(structure.differing_lines)
        yield f"code: {told}{_all_in(structure.only_part)}" if told else "code: the TTGIR is the same on both sides"
        return
    yield "code:" if diff.launch.changed else "code, with no difference in time:"
    for part in structure.parts:
        yield f"  {part.name}{_weighed(part, structure, diff.launch.changed)}"
        if part.loops is not None:
            yield from (f"    {line}" for line in _of_loops(*part.loops))
        for text, places in _together(part.changes).items():
            yield f"    {text}{_at(places)}"
    elsewhere_ns = elsewhere_cta_ns(structure, diff)
    if elsewhere_ns is not None and diff.cta_change_ns is not None:
        yield f"  elsewhere: {signed_time(elsewhere_ns)}; net: {signed_time(diff.cta_change_ns)} a CTA"


def elsewhere_cta_ns(structure: Structure, diff: KernelDiff) -> float | None:
    """Return by how much a CTA takes longer outside of the parts; None if that is not known."""
    net_ns = diff.cta_change_ns
    parts_ns = [part.cta_change_ns for part in structure.parts if part.scopes]
    known_ns = [part_ns for part_ns in parts_ns if part_ns is not None]
    if net_ns is None or not known_ns or len(known_ns) < len(parts_ns):
        return None
    return net_ns - sum(known_ns)


def _of_loops(a: LoopFigures, b: LoopFigures) -> Iterator[str]:
    """What goes with the change of a loop's time."""
    if a.unit is not None and b.unit is not None:
        before, after = percent(a.parts[a.unit]), percent(b.parts[b.unit])
        if a.unit == b.unit:
            yield f"busiest unit: {b.unit}, at least {before_and_after(before, after)} of its peak"
        else:
            yield f"busiest unit: {a.unit}, at least {before} of its peak → {b.unit}, {after}"
    if None not in (a.ahead_bytes_per_sm, b.ahead_bytes_per_sm) and a.ahead_bytes_per_sm != b.ahead_bytes_per_sm:
        yield f"copied ahead: {_ahead(a)} → {_ahead(b)}"
    if a.wait_ns is not None and b.wait_ns is not None:
        yield f"recorded waits: {short_time(a.wait_ns)} → {short_time(b.wait_ns)} in an iteration"


def _ahead(loop: LoopFigures) -> str:
    return f"{size_text(loop.ahead_bytes_per_sm)} per SM" if loop.ahead_bytes_per_sm else "nothing"


def _unlisted(differing: int) -> str:
    """What is told of lines that differ where no change was found; empty if none does."""
    lines = counted(differing, "line")
    return f"none of the changes that diff looks for; the TTGIR differs in {lines}" if differing else ""


def _all_in(part: CodePart | None) -> str:
    if part is None or part == WHOLE:
        return ""
    return f", all {part}" if part == OUTSIDE else f", all in {part}"


def _together(changes: Sequence[StructuralChange]) -> dict[str, list[str]]:
    """What the same happened to, with all its places."""
    found: dict[str, list[str]] = {}
    for change in changes:
        places = found.setdefault(change.text, [])
        if change.source:
            places.append(without_folders(f"{change.source.file}:{change.source.line}"))
    return found


def _at(places: Sequence[str]) -> str:
    return f" ({listed(list(dict.fromkeys(places)), _MOST_PLACES)})" if places else ""


def _weighed(part: ChangedPart, structure: Structure, has_changed: bool) -> str:
    means = [
        f"{scope.distinct_name} {short_time(scope.mean_ns.a)} → {short_time(scope.mean_ns.b)}"
        for scope in part.scopes
        if scope.judged is not None and scope.judged.changed and scope.mean_ns.a and scope.mean_ns.b
    ]
    explained = [] if part.cta_change_ns is None else [f"{signed_time(part.cta_change_ns)} a CTA"]
    is_all = has_changed and part.part == structure.only_part
    if is_all and part.part == WHOLE:
        explained = ["all of the change, as the code is the same"]
    elif explained and structure.everywhere and part.part != WHOLE:
        explained = [f"{explained[0]}, by this or by what changed in {WHOLE}"]
    elif is_all:
        shown = [f"records show {share} there" for share in explained]
        explained = ["all of the change, as the code differs nowhere else", *shown]
    told = [*explained, *means[:1]]
    return f": {'; '.join(told)}" if told else ""


def change_lines(found: ModuleChanges) -> Iterator[str]:
    """Of changes that no times belong to."""
    if not found.changes:
        same = "the TTGIR is the same, apart from records" if found.records_differ else "the TTGIR is the same"
        yield _unlisted(found.differing_lines) or same
    for text, places in _together(found.changes).items():
        yield f"{text}{_at(places)}"


def changes_json(found: ModuleChanges) -> dict[str, Any]:
    """As JSON values."""
    return {
        "changes": list(map(change_json, found.changes)),
        "differing_lines": found.differing_lines,
        "records_differ": found.records_differ,
    }


def change_json(change: StructuralChange) -> dict[str, Any]:
    """As JSON values."""
    return {
        "id": change.id,
        "text": change.text,
        "kind": change.kind,
        "loop": change.loop or None,
        "file": change.source.file if change.source else None,
        "line": change.source.line if change.source else None,
    }


def structure_json(structure: Structure | None, diff: KernelDiff) -> dict[str, Any] | None:
    """As JSON values; None if there is none."""
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
        "part": part.name,
        "index": part.part.index,
        "explained": part.explained,
        "cta_change_ns": part.cta_change_ns,
        "loops": part.loops and {"a": part.loops[0].to_json(), "b": part.loops[1].to_json()},
        "changes": list(map(change_json, part.changes)),
    }


_NAMES = {"shared bytes": "shared_bytes", "registers": "registers", "spills": "spills"}
"""What each is called, as in a comparison of captures, and its field."""


def build_lines(builds: Sequence[KernelResources | None]) -> Iterator[str]:
    """Yield one line, or none if no side was compiled."""
    if not any(builds):
        return
    parts = []
    for name, field in _NAMES.items():
        before, after = ("-" if build is None else _text(getattr(build, field)) for build in builds)
        if (before, after) != ("-", "-"):
            parts.append(f"{name} {before}" if before == after else f"{name} {before} → {after}")
    yield f"compiled here: {', '.join(parts)}"


def _text(number: int | None) -> str:
    return "-" if number is None else str(number)


def builds_json(builds: Sequence[KernelResources | None]) -> dict[str, Any] | None:
    """Return them as JSON values; None if no side was compiled."""
    if not any(builds):
        return None
    sides = zip("ab", builds, strict=True)
    return {side: build and {field: getattr(build, field) for field in _NAMES.values()} for side, build in sides}
