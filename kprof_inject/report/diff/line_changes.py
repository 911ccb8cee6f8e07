"""Change of the warps' time by source line: from samples of their stalls, or from recorded scopes if there are none.

Times are those of a warp in a CTA, on average.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from textwrap import shorten
from typing import Any

from msgspec import Struct

from kprof_inject.analysis.evidence.stalls import Share, Stalls, place_text
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.capture.scopes import ScopeInfo, ScopeKind
from kprof_inject.capture.source_text import SourceLine, SourceText, file_and_line, lines_of, shown_line, sources_of
from kprof_inject.quantities import before_and_after, counted, short_time, signed_microseconds
from kprof_inject.report.diff.change_verdicts import typical_value
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.report.diff.paired_sources import aligned, partner_of
from kprof_inject.report.diff.runs import KernelRuns, LaunchFigures
from kprof_inject.report.terminal.tables import Column
from kprof_inject.timeline.comparison import CONFIDENCE

SAMPLES, SCOPES = "samples", "scopes"
MAX_LINES = 10
"""Longer lists are not read to the end; JSON has all lines."""

_SEVERAL_LINES = re.compile(r"\d-\d+\)$")
# Widths of a line's text on narrower and narrower terminals.
_TEXT_WIDTHS = (60, 40, 24)


class LineTime(Struct, frozen=True):
    """Time at a source line on one side, with half of its 95 % interval by sampling; None if it was not sampled."""

    ns: float
    error_ns: float | None = None


class LineChange(Struct, frozen=True):
    """Time at a source line in A and in B.

    ``a`` and ``b`` are the line on each side, of which one may be None; ``text`` is B's, or A's if B lacks the line.
    """

    a: SourceLine | None
    b: SourceLine | None
    text: str
    a_ns: float
    b_ns: float
    error_ns: float | None
    """Half of the change's 95 % interval by sampling."""

    @property
    def change_ns(self) -> float:
        """Increase of its time from A to B."""
        return self.b_ns - self.a_ns

    @property
    def is_noise(self) -> bool:
        """True if the change is within the sampling error."""
        return abs(self.change_ns) <= (self.error_ns or 0.0)

    @property
    def place(self) -> str:
        """File and line number on both sides: ``matmul.py:63``, ``matmul.py:63 → 65``, ``matmul.py:63 → -``."""
        before, after = (place_text(line) or "-" for line in (self.a, self.b))
        file, _, number = after.rpartition(":")
        is_moved = before != after and before.startswith(f"{file}:")
        return f"{before} → {number}" if is_moved else before_and_after(before, after)


class LineChanges(Struct, frozen=True):
    """Changes of all lines with a time on either side, largest first; ``source`` is ``SAMPLES`` or ``SCOPES``."""

    source: str
    basis: str
    """Where the times come from, in words."""
    lines: tuple[LineChange, ...]

    @property
    def shown(self) -> tuple[LineChange, ...]:
        """Largest changes; none if all are noise."""
        return () if all(line.is_noise for line in self.lines) else self.lines[:MAX_LINES]

    @property
    def sentence(self) -> str:
        """Sentence above the shown lines, or instead of them."""
        if not self.shown:
            return f"source lines: no change of a warp's time beyond noise, {self.basis}"
        hidden = len(self.lines) - len(self.shown)
        more = f"; {counted(hidden, 'smaller change')} in --json" if hidden else ""
        return f"source lines: a warp's time in a CTA, {self.basis}{more}"


class _Side(Struct, frozen=True):
    """Times of a side's source lines, and its source files by path."""

    times: Mapping[SourceLine, LineTime]
    sources: Mapping[str, str]

    @property
    def paths(self) -> set[str]:
        """Paths of the files with a time."""
        return {path for path, _ in self.times}

    def text(self, line: SourceLine) -> str:
        """Return the text of a line; empty if it is unknown."""
        path, number = line
        return shown_line(SourceText(self.sources).line(f"{path}:{number}")).strip()


@lru_cache(maxsize=16)  # each view of a comparison needs it
def line_changes(diff: KernelDiff) -> LineChanges | None:
    """Return the changes of time by source line; None if neither samples nor scopes show any."""
    stalls = _stalls_of(diff.a), _stalls_of(diff.b)
    if stalls[0] and stalls[1]:
        cta_ns = diff.sides.both(lambda launch: launch.net_cta_ns)
        times = _sampled(stalls[0], cta_ns.a or 0.0), _sampled(stalls[1], cta_ns.b or 0.0)
        counts = f"{stalls[0].samples} samples in A and {stalls[1].samples} in B"
        basis, source = f"estimated from {counts}, ± at {100 * CONFIDENCE:.0f} % confidence", SAMPLES
        absent: LineTime | None = LineTime(0.0, 0.0)
    else:
        times = _recorded(diff.a, diff.sides.a), _recorded(diff.b, diff.sides.b)
        sampled = "neither side has" if not any(stalls) else f"only {'A' if stalls[0] else 'B'} has"
        basis, source = f"from the recorded scopes of operations and lines, because {sampled} samples", SCOPES
        absent = None
    sides = [_Side(found, sources_of(runs.kernel)) for found, runs in zip(times, (diff.a, diff.b), strict=True)]
    lines = sorted(_changes(sides[0], sides[1], absent), key=lambda line: -abs(line.change_ns))
    return LineChanges(source, basis, tuple(lines)) if lines else None


def _stalls_of(runs: KernelRuns) -> Stalls | None:
    """Return the samples of a side's kernel, of one of its processes that has some."""
    of_processes = {timeline.launch.kernel.folder: timeline for timeline in runs.timelines}
    found = (LaunchAnalysis.of(timeline).stalls for timeline in of_processes.values())
    return next((stalls for stalls in found if stalls and stalls.samples), None)


def _sampled(stalls: Stalls, cta_ns: float) -> dict[SourceLine, LineTime]:
    shares = {line: Share.of(count, stalls.samples) for line, count in stalls.by_source.items() if count}
    return {line: LineTime(share.value * cta_ns, share.error * cta_ns) for line, share in shares.items()}


def _recorded(runs: KernelRuns, launches: tuple[LaunchFigures, ...]) -> dict[SourceLine, LineTime]:
    """Return the times of the lines that have scopes of their own, without a missing record."""
    table = runs.kernel.scopes
    found: defaultdict[SourceLine, float] = defaultdict(float)
    for index, scope in enumerate(table.scopes):
        line = _line_of(scope)
        is_counted = any(_line_of(table.scopes[outer]) == line for outer in table.around(index))
        is_whole = all(launch.scopes[index].whole for launch in launches)
        cta_ns = typical_value(launches, lambda launch: launch.scopes[index].cta_ns)  # noqa: B023 (used at once)
        if line and not is_counted and is_whole and cta_ns is not None:
            found[line] += cta_ns
    return {line: LineTime(ns) for line, ns in found.items()}


def _line_of(scope: ScopeInfo) -> SourceLine | None:
    """Return the line of a scope of an operation or of one line; None for other scopes."""
    is_of_one_line = scope.kind == ScopeKind.LINES and not _SEVERAL_LINES.search(scope.label or scope.name)
    return file_and_line(scope.source) if scope.kind == ScopeKind.OPERATION or is_of_one_line else None


def _changes(a: _Side, b: _Side, absent: LineTime | None) -> Iterator[LineChange]:
    """Yield the change of each line; ``absent`` is the time of a line without one, None if that is unknown."""
    for line_a, line_b in _pairs(a, b):
        before = a.times.get(line_a, absent) if line_a else absent
        after = b.times.get(line_b, absent) if line_b else absent
        if before is None or after is None:
            continue
        text = b.text(line_b) if line_b else a.text(line_a) if line_a else ""
        is_sampled = before.error_ns is not None and after.error_ns is not None
        error_ns = math.hypot(before.error_ns or 0.0, after.error_ns or 0.0) if is_sampled else None
        yield LineChange(line_a, line_b, text, before.ns, after.ns, error_ns)


def _pairs(a: _Side, b: _Side) -> Iterator[tuple[SourceLine | None, SourceLine | None]]:
    """Yield the lines with a time on either side; an edited line is paired if both sides have a time there."""
    partners: dict[SourceLine, SourceLine] = {}
    for path_a, path_b in _files(a, b):
        for number_a, number_b, is_edited in _numbers(a, path_a, b, path_b):
            line_a, line_b = (path_a, number_a), (path_b, number_b)
            if not is_edited or (line_a in a.times and line_b in b.times):
                partners[line_a] = line_b
    yield from ((line_a, partners.get(line_a)) for line_a in a.times)
    partners_of_b = {line_b: line_a for line_a, line_b in partners.items()}
    yield from ((partners_of_b.get(line_b), line_b) for line_b in b.times if partners_of_b.get(line_b) not in a.times)


def _files(a: _Side, b: _Side) -> set[tuple[str, str]]:
    """Return the paths in A and in B of each file with a time.

    Files are paired by name; if one file is left on each side, these two are a pair, too.
    """
    found: set[tuple[str, str]] = set()
    for path in a.paths:
        if partner := partner_of(path, {*b.sources, *b.paths}):
            found.add((path, partner))
    for path in b.paths:
        if partner := partner_of(path, {*a.sources, *a.paths}):
            found.add((partner, path))
    alone_a, alone_b = a.paths - {path for path, _ in found}, b.paths - {path for _, path in found}
    if len(alone_a) == len(alone_b) == 1:
        found.add((alone_a.pop(), alone_b.pop()))
    return found


def _numbers(a: _Side, path_a: str, b: _Side, path_b: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the numbers of a file's lines in A and in B, and whether the line was edited; equal ones without texts."""
    if path_a in a.sources and path_b in b.sources:
        for line_a, line_b in aligned(lines_of(a.sources[path_a]), lines_of(b.sources[path_b])):
            if line_a and line_b:
                yield line_a.number, line_b.number, line_a.text != line_b.text
        return
    for path, number in (*a.times, *b.times):
        if path in (path_a, path_b):
            yield number, number, False


def line_layouts(lines: Sequence[LineChange]) -> list[list[Column]]:
    """Return the columns for a terminal, and then narrower and narrower ones; texts are cut between words."""
    texts = [line.text for line in lines]
    styles = ["" if line.is_noise else "red" if line.change_ns > 0 else "green" for line in lines]
    place = Column("source", [line.place for line in lines], name=True)
    times = Column("time", [times_text(line) for line in lines])
    changes = [
        Column("change", [signed_microseconds(line.change_ns) for line in lines], styles),
        Column("error", [error_text(line) for line in lines], left=True),
    ]
    cut = [[shorten(text, width, placeholder=" …") for text in texts] for width in _TEXT_WIDTHS]
    codes = [Column("line", cells, left=True) for cells in (texts, *cut)]
    layouts = [*([place, code, times, *changes] for code in codes), [place, *changes]]
    return [[column for column in layout if any(column.cells)] for layout in layouts]


def times_text(line: LineChange) -> str:
    """Return a line's times in A and in B."""
    return before_and_after(short_time(line.a_ns), short_time(line.b_ns))


def error_text(line: LineChange) -> str:
    """Return the sampling error of a line's change, and whether the change is noise; empty if it was not sampled."""
    if line.error_ns is None:
        return ""
    return f"± {line.error_ns / 1e3:.2f} µs{', noise' if line.is_noise else ''}"


def lines_json(changes: LineChanges | None) -> list[dict[str, Any]]:
    """Return the changes of all lines as JSON values, largest first."""
    return [_line_json(line, changes.source) for line in changes.lines] if changes else []


def _line_json(line: LineChange, source: str) -> dict[str, Any]:
    file, number = line.b or line.a or ("", 0)
    return {
        "file": file,
        "line": number,
        "line_a": line.a and line.a[1],
        "line_b": line.b and line.b[1],
        "text": line.text,
        "a_ns": line.a_ns,
        "b_ns": line.b_ns,
        "change_ns": line.change_ns,
        "error_ns": line.error_ns,
        "is_noise": line.is_noise,
        "source": source,
    }
