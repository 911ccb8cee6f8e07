"""Rows of a comparison, in one form: terminal, page, JSON and the gate for CI are made from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.analysis.comparison import causes, code, runs
from kprof_inject.analysis.comparison.matching import Unmatched
from kprof_inject.analysis.comparison.runs import Both, KernelRuns
from kprof_inject.analysis.comparison.verdicts import CaptureDiff, ChangeVerdict, Judged, KernelDiff
from kprof_inject.analysis.findings.loops import LoopFigures
from kprof_inject.analysis.limits.stalls import place_text
from kprof_inject.analysis.structure.structural_changes import StructuralChange
from kprof_inject.capture.encoding import json_values
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.capture.source_text import without_folders
from kprof_inject.quantities import (
    before_and_after,
    counted,
    listed,
    percent,
    resolved_time,
    short_time,
    signed_microseconds,
    signed_time,
    size_text,
)
from kprof_inject.report.diff.wording import both_text, change_text, first_answer, kernel_answer, kernel_notes
from kprof_inject.timeline.comparison import CONFIDENCE, Change

MAX_LINES = 10  # longer lists of source lines are not read to the end; JSON has all lines
_MAX_PLACES = 6


class Row(Struct, frozen=True):
    """A launch, scope, source line or rank on both sides."""

    kind: str  # launch, scope, line or rank
    name: str
    cells: Mapping[str, str]  # texts by the column's title
    interval: tuple[float, ...] = ()  # the change and the ends of its interval, in per cent or, of a line, in ns
    tone: str = "same"  # slower, faster, clock, same or unknown
    depth: int = 0
    values: Mapping[str, Any] = {}  # the record for JSON


_TONES = {verdict: verdict.name.lower() for verdict in ChangeVerdict}
_TONES |= {ChangeVerdict.NEW: "slower", ChangeVerdict.GONE: "faster"}


def _judged_row(
    row: Row, judged: Judged | None, figures: Both, after: Mapping[str, str], values: Mapping[str, Any] | None = None
) -> Row:
    change = judged.change if judged else None
    words = {"verdict": judged.verdict.value if judged else "-", "change": change_text(judged, figures)}
    judged_values = {
        "verdict": judged.verdict.value if judged else None,
        "change": _change_values(change),
        "change_in_cycles": _change_values(judged.cycles if judged else None),
    }
    return replace(
        row,
        cells={**row.cells, **words, **after},
        interval=(change.percent, change.low_percent, change.high_percent) if change else (),
        tone=_TONES[judged.verdict] if judged else "same",
        values={**row.values, **judged_values, **(values or {})},
    )


def _change_values(change: Change | None) -> dict[str, float] | None:
    names = ("percent", "low_percent", "high_percent", "detectable_percent")
    return {name: round(getattr(change, name), 4) for name in names} if change else None


def rank_rows(diff: CaptureDiff) -> list[Row]:
    """Return the comparisons by kernel and rank, the kernels in the order of their changes; none without ranks."""
    if not diff.is_by_rank:
        return []
    names = list(dict.fromkeys(kernel.b.kernel.name for kernel in diff.kernels))
    rows = []
    for kernel in sorted(diff.kernels, key=lambda kernel: (names.index(kernel.b.kernel.name), kernel.b.rank or 0)):
        rank = kernel.b.rank
        cells = {"kernel": kernel.b.kernel.name, "rank": "-" if rank is None else str(rank)}
        after = {"launch": both_text(kernel.compared_ns, short_time)}
        rows.append(_judged_row(Row("rank", kernel.b.title, cells), kernel.launch, kernel.compared_ns, after))
    return rows


def launch_rows(diff: KernelDiff) -> list[Row]:
    """Return the launch's run time without records, if it is known, and its span with records."""
    launching = {"launching_subtracted": not runs.has_launching(diff.a, diff.b)}
    cycles = {"median_cycles": json_values(diff.sides.duration_cycles)}
    return [
        _judged_row(
            Row("launch", name, {"scope": name, "source": ""}),
            judged,
            figures,
            {"count": "", "total": both_text(figures, short_time), "mean": "", "p50": "", "share": ""},
            {"median_ns": json_values(figures), **more},
        )
        for name, judged, figures, more in (
            ("run time, without records", diff.clean, diff.clean_ns, launching),
            ("span, with records", diff.recorded, diff.sides.duration_ns, cycles),
        )
        if judged is not None
    ]


def scope_rows(diff: KernelDiff) -> list[Row]:
    """Return the rows of the chosen scopes."""
    resolution_ns = diff.sides.both(lambda launch: launch.resolution_ns)
    rows = []
    for scope in diff.scopes:
        a, b, compared_ns = scope.a.info, scope.b.info, scope.compared_ns
        title = scope.b.title if scope.depth or not scope.b.partition else f"{scope.b.title} ({scope.b.partition})"
        figures = {
            "count": scope.both(lambda figures: figures.count),
            "total_ns": scope.both(lambda figures: figures.total_ns),
            "mean_ns": scope.both(lambda figures: figures.statistics.mean_ns),
            "p50_ns": scope.both(lambda figures: figures.statistics.p50_ns),
            "share": scope.both(lambda figures: figures.statistics.share),
        }
        cells = {
            "count": both_text(figures["count"], "{:.0f}".format),
            "total": both_text(figures["total_ns"], short_time),
            "mean": _resolved(figures["mean_ns"], resolution_ns),
            "p50": _resolved(figures["p50_ns"], resolution_ns),
            "share": both_text(figures["share"], percent),
        }
        if b.kind == ScopeKind.INSTANT:
            cells = {**dict.fromkeys(cells, "-"), "count": cells["count"]}
        source = before_and_after(*(place.rpartition("/")[2] or "-" for place in (a.source, b.source)))
        values = {
            "index_a": scope.match.a,
            "index_b": scope.match.b,
            "name": b.name,
            "distinct_name": scope.b.distinct_name,
            "title": title,
            "kind": b.kind,
            "partition": scope.b.partition,
            "depth": scope.depth,
            "source_a": a.source,
            "source_b": b.source,
            "note": scope.match.note,
            "basis": scope.basis.name,
            "compared_ns": json_values(compared_ns),
            **{name: json_values(both) for name, both in figures.items()},
            "explained": causes.explained_by(diff, scope),
            "own_cta_change_ns": causes.own_cta_changes_ns(diff).get(scope.match),
            "tags": [
                {"name": name, "value": value, "p50_ns": json_values(both)}
                for name, medians in scope.tags().items()
                for value, both in medians.items()
            ],
        }
        row = Row("scope", scope.b.distinct_name, {"scope": title, "source": source}, depth=scope.depth, values=values)
        rows.append(_judged_row(row, scope.judged, compared_ns, cells))
    return rows


def _resolved(ns: Both, shortest_ns: Both) -> str:
    return before_and_after(resolved_time(ns.a, shortest_ns.a or 0.0), resolved_time(ns.b, shortest_ns.b or 0.0))


def _line_row(line: code.LineChange, changes: code.LineChanges) -> Row:
    before, after = (place_text(place) or "-" for place in (line.a, line.b))
    file, _, number = after.rpartition(":")
    is_moved = before != after and before.startswith(f"{file}:")
    noise = ", noise" if line.is_noise else ""
    cells = {
        "source": f"{before} → {number}" if is_moved else before_and_after(before, after),
        "line": line.text,
        "time": before_and_after(short_time(line.a_ns), short_time(line.b_ns)),
        "change": signed_microseconds(line.change_ns),
        "error": "" if line.error_ns is None else f"± {line.error_ns / 1e3:.2f} µs{noise}",
    }
    ends = () if line.error_ns is None else (line.change_ns - line.error_ns, line.change_ns + line.error_ns)
    tone = "same" if line.is_noise else "slower" if line.change_ns > 0 else "faster"
    file, at = line.b or line.a or ("", 0)
    values = {
        "file": file,
        "line": at,
        "line_a": line.a and line.a[1],
        "line_b": line.b and line.b[1],
        **{name: getattr(line, name) for name in ("text", "a_ns", "b_ns", "change_ns", "error_ns", "is_noise")},
        "source": "samples" if all(changes.samples) else "scopes",
    }
    return Row("line", line.text, cells, (line.change_ns, *ends), tone, values=values)


def shown_lines(diff: KernelDiff) -> tuple[str, list[Row]]:
    """Return the sentence on the source lines and the largest changes; none if all are noise."""
    changes = code.line_changes(diff)
    if changes is None:
        return "", []
    a, b = changes.samples
    sampled = "neither side has" if not (a or b) else f"only {'A' if a else 'B'} has"
    basis = f"from the recorded scopes of operations and lines, because {sampled} samples"
    if a and b:
        basis = f"estimated from {a} samples in A and {b} in B, ± at {100 * CONFIDENCE:.0f} % confidence"
    if all(line.is_noise for line in changes.lines):
        return f"source lines: no change of a warp's time beyond noise, {basis}", []
    hidden = len(changes.lines) - MAX_LINES
    more = f"; {counted(hidden, 'smaller change')} in --json" if hidden > 0 else ""
    rows = [_line_row(line, changes) for line in changes.lines[:MAX_LINES]]
    return f"source lines: a warp's time in a CTA, {basis}{more}", rows


def code_lines(diff: KernelDiff) -> Iterator[str]:
    """Yield the changes of the code, indented by part; none if the code is unknown."""
    structure = code.structure_of(diff)
    if structure is None:
        return
    if not structure.parts:
        yield f"code: {unrecognized_text(structure.differing_lines, structure.only_part)}"
        return
    yield "code:" if diff.launch.changed else "code, with no difference in time:"
    for part in structure.parts:
        reasons = _reasons(part, structure, diff.launch.changed)
        yield f"  {part.part.name}{': ' if reasons else ''}{'; '.join(reasons)}"
        inside = [*(_loop_lines(*part.loops) if part.loops else ()), *changes_by_text(part.changes)]
        yield from (f"    {line}" for line in inside)
    elsewhere_ns, net_ns = code.elsewhere_cta_ns(structure, diff), causes.net_cta_change_ns(diff)
    if elsewhere_ns is not None and net_ns is not None:
        yield f"  elsewhere: {signed_time(elsewhere_ns)}; net: {signed_time(net_ns)} per CTA"


def _reasons(part: code.ChangedPart, structure: code.Structure, has_changed: bool) -> list[str]:
    means = [(scope, scope.both(lambda figures: figures.statistics.mean_ns)) for scope in part.scopes]
    changed = [
        f"{scope.b.distinct_name} {short_time(mean_ns.a)} → {short_time(mean_ns.b)}"
        for scope, mean_ns in means
        if scope.judged is not None and scope.judged.changed and mean_ns.a and mean_ns.b
    ]
    explained = [] if part.cta_change_ns is None else [f"{signed_time(part.cta_change_ns)} per CTA"]
    is_all = has_changed and part.part == structure.only_part
    if is_all and part.part == code.WHOLE:
        explained = ["all of the change, because the code is the same"]
    elif explained and structure.everywhere and part.part != code.WHOLE:
        explained = [f"{explained[0]}, caused here or by the changes of {code.WHOLE.name}"]
    elif is_all:
        explained = ["all of the change, because the code differs nowhere else", *explained]
    return [*explained, *changed[:1]]


def _loop_lines(a: LoopFigures, b: LoopFigures) -> Iterator[str]:
    if a.unit is not None and b.unit is not None:
        before, after = percent(a.parts[a.unit]), percent(b.parts[b.unit])
        if a.unit == b.unit:
            yield f"busiest unit: {b.unit}, at least {before_and_after(before, after)} of its peak"
        else:
            yield f"busiest unit: {a.unit}, at least {before} of its peak → {b.unit}, {after}"
    if None not in (a.ahead_bytes_per_sm, b.ahead_bytes_per_sm) and a.ahead_bytes_per_sm != b.ahead_bytes_per_sm:
        ahead = (size_text(loop.ahead_bytes_per_sm) if loop.ahead_bytes_per_sm else "nothing" for loop in (a, b))
        yield f"copied ahead: {' → '.join(ahead)} per SM"
    if a.wait_ns is not None and b.wait_ns is not None:
        yield f"recorded waits: {short_time(a.wait_ns)} → {short_time(b.wait_ns)} per iteration"


def unrecognized_text(differing: int, part: code.CodePart | None = None) -> str:
    """Return the note on code without a recognized change: how many lines differ, all in ``part`` if it is known."""
    if not differing:
        return "the TTGIR is the same on both sides"
    text = f"the TTGIR differs in {counted(differing, 'line')}"
    if part is not None and part != code.WHOLE:
        text += f", only {part.name}" if part == code.OUTSIDE else f", only in {part.name}"
    return f"{text}; diff recognizes no change there"


def changes_by_text(changes: Iterable[StructuralChange]) -> Iterator[str]:
    """Yield each text of the changes once, with all its places."""
    found: dict[str, dict[str, None]] = {}
    for change in changes:
        places = found.setdefault(change.text, {})
        if change.source:
            places[without_folders(f"{change.source.file}:{change.source.line}")] = None
    for text, places in found.items():
        yield f"{text} ({listed(list(places), _MAX_PLACES)})" if places else text


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


def diff_json(diff: CaptureDiff) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    return {
        "sentence": "; ".join(first_answer(diff)),
        "confidence": CONFIDENCE,
        "kernels": list(map(_kernel_values, diff.kernels)),
        "only_a": list(map(_runs_values, diff.only_a)),
        "only_b": list(map(_runs_values, diff.only_b)),
    }


def _kernel_values(diff: KernelDiff) -> dict[str, Any]:
    *clean, recorded = launch_rows(diff)
    explanation, structure, changes = causes.explanation_of(diff), code.structure_of(diff), code.line_changes(diff)
    differences = runs.differences(diff.a, diff.b)
    return {
        "kernel": diff.b.kernel.name,
        **({} if diff.b.rank is None else {"rank": diff.b.rank}),
        "a": _runs_values(diff.a),
        "b": _runs_values(diff.b),
        "sentence": "; ".join(kernel_answer(diff)),
        "verdict": diff.launch.verdict.value,
        "differences": {difference.what: [difference.a, difference.b] for difference in differences},
        "clock_hz": [diff.clocks.a, diff.clocks.b],
        "without_records": clean[0].values if clean else None,
        "with_records": recorded.values,
        "compared_warps": diff.warps,
        "first_launches_left_out": len(diff.all_launches.launches) - len(diff.sides.launches),
        "by_scopes_percent": explanation.percent if explanation else None,
        "scopes": [row.values for row in scope_rows(diff)],
        "lines": [_line_row(line, changes).values for line in changes.lines] if changes else [],
        "only_a": list(map(_unmatched_values, diff.matching.only_a)),
        "only_b": list(map(_unmatched_values, diff.matching.only_b)),
        "structure": structure
        and {
            "parts": [
                {
                    "part": part.part.name,
                    "index": part.part.index,
                    "explained": part.explained,
                    "cta_change_ns": part.cta_change_ns,
                    "loops": part.loops and {"a": part.loops[0].to_json(), "b": part.loops[1].to_json()},
                    "changes": list(map(change_json, part.changes)),
                }
                for part in structure.parts
            ],
            "elsewhere_cta_ns": code.elsewhere_cta_ns(structure, diff),
            "net_cta_ns": causes.net_cta_change_ns(diff),
            "everywhere": list(map(change_json, structure.everywhere)),
            "differing_lines": structure.differing_lines,
            "only_part": structure.only_part and structure.only_part.name,
        },
        "notes": list(kernel_notes(diff)),
    }


def _runs_values(side: KernelRuns) -> dict[str, Any]:
    return {
        "kernel": side.kernel.name,
        "variant": side.kernel.variant,
        "grid": side.grid,
        "launches": [timeline.launch.index for timeline in side.timelines],
        "clean_launches": sum(map(len, side.times_ns())),
    }


def _unmatched_values(item: Unmatched) -> dict[str, Any]:
    info = item.scope.info
    return {"index": item.index, "scope": info.name, "kind": info.kind, "source": info.source, "why": item.why}
