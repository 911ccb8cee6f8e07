"""Source lines of both sides: pairs of lines, and the change of the warps' time by line.

Times are those of a warp in a CTA, on average: from samples of the warps' stalls, or from recorded scopes if there are
none.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from difflib import SequenceMatcher
from functools import lru_cache

from msgspec import Struct

from kprof_inject.analysis.comparison.runs import KernelRuns, LaunchFigures, typical_value
from kprof_inject.analysis.comparison.verdicts import KernelDiff
from kprof_inject.analysis.limits.stalls import Share, Stalls
from kprof_inject.capture.scopes import Scope, ScopeKind
from kprof_inject.capture.source_text import (
    SourceLine,
    SourceText,
    file_and_line,
    lines_of,
    shown_line,
    sources_of,
    without_folders,
)

_SEVERAL_LINES = re.compile(r"\d-\d+\)$")


_Time = tuple[float, float | None]
"""Time at a source line on one side, and half of its 95 % interval by sampling; None if it was not sampled."""


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


class LineChanges(Struct, frozen=True):
    """Changes of all lines with a time on either side, largest first.

    ``samples`` are the numbers in A and in B; the times are from samples if both sides have some, else from scopes.
    """

    samples: tuple[int, int]
    lines: tuple[LineChange, ...]


class _Side(Struct, frozen=True):
    times: Mapping[SourceLine, _Time]
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
    stalls = diff.a.stalls, diff.b.stalls
    if stalls[0] and stalls[1]:
        cta_ns = diff.sides.both(lambda launch: launch.net_cta_ns)
        times = _sampled(stalls[0], cta_ns.a or 0.0), _sampled(stalls[1], cta_ns.b or 0.0)
        absent: _Time | None = (0.0, 0.0)
    else:
        times = _recorded(diff.a, diff.sides.a), _recorded(diff.b, diff.sides.b)
        absent = None
    sides = [_Side(found, sources_of(runs.kernel)) for found, runs in zip(times, (diff.a, diff.b), strict=True)]
    lines = sorted(_changes(sides[0], sides[1], absent), key=lambda line: -abs(line.change_ns))
    samples = [found.samples if found else 0 for found in stalls]
    return LineChanges((samples[0], samples[1]), tuple(lines)) if lines else None


def _sampled(stalls: Stalls, cta_ns: float) -> dict[SourceLine, _Time]:
    shares = {line: Share.of(count, stalls.samples) for line, count in stalls.by_source.items() if count}
    return {line: (share.value * cta_ns, share.error * cta_ns) for line, share in shares.items()}


def _recorded(runs: KernelRuns, launches: tuple[LaunchFigures, ...]) -> dict[SourceLine, _Time]:
    table = runs.kernel.scopes
    found: defaultdict[SourceLine, float] = defaultdict(float)
    for index, scope in enumerate(table.scopes):
        line = _line_of(scope)
        is_counted = any(_line_of(table.scopes[outer]) == line for outer in table.around(index))
        is_whole = all(launch.scopes[index].is_whole for launch in launches)
        cta_ns = typical_value(launches, lambda launch: launch.scopes[index].cta_ns)  # noqa: B023 (used at once)
        if line and not is_counted and is_whole and cta_ns is not None:
            found[line] += cta_ns
    return {line: (ns, None) for line, ns in found.items()}


def _line_of(scope: Scope) -> SourceLine | None:
    """Return the line of a scope of an operation or of one line; None for other scopes."""
    is_of_one_line = scope.kind == ScopeKind.LINES and not _SEVERAL_LINES.search(scope.label or scope.name)
    return file_and_line(scope.source) if scope.kind == ScopeKind.OPERATION or is_of_one_line else None


def _changes(a: _Side, b: _Side, absent: _Time | None) -> Iterator[LineChange]:
    """Yield the change of each line; ``absent`` is the time of a line without one, None if that is unknown."""
    for line_a, line_b in _pairs(a, b):
        before = a.times.get(line_a, absent) if line_a else absent
        after = b.times.get(line_b, absent) if line_b else absent
        if before is None or after is None:
            continue
        text = b.text(line_b) if line_b else a.text(line_a) if line_a else ""
        (a_ns, a_error_ns), (b_ns, b_error_ns) = before, after
        error_ns = None if a_error_ns is None or b_error_ns is None else math.hypot(a_error_ns, b_error_ns)
        yield LineChange(line_a, line_b, text, a_ns, b_ns, error_ns)


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
    in_a, in_b = {*a.sources, *a.paths}, {*b.sources, *b.paths}
    found = {(path, partner) for path in a.paths if (partner := _partner_of(path, in_b))}
    found |= {(partner, path) for path in b.paths if (partner := _partner_of(path, in_a))}
    alone_a, alone_b = a.paths - {path for path, _ in found}, b.paths - {path for _, path in found}
    if len(alone_a) == len(alone_b) == 1:
        found.add((alone_a.pop(), alone_b.pop()))
    return found


def _numbers(a: _Side, path_a: str, b: _Side, path_b: str) -> Iterator[tuple[int, int, bool]]:
    """Yield the numbers of a file's lines in A and in B, and whether the line was edited; equal ones without texts."""
    if path_a in a.sources and path_b in b.sources:
        texts = lines_of(a.sources[path_a]), lines_of(b.sources[path_b])
        for tag, a_begin, a_end, b_begin, b_end in SequenceMatcher(None, *texts, autojunk=False).get_opcodes():
            for at_a, at_b in zip(range(a_begin, a_end), range(b_begin, b_end), strict=False):
                yield at_a + 1, at_b + 1, tag != "equal"
        return
    for path, number in (*a.times, *b.times):
        if path in (path_a, path_b):
            yield number, number, False


def _partner_of(path: str, others: Collection[str]) -> str | None:
    """Return the other side's path of a file, whatever its folder; None if there is none, or several of its name."""
    if path in others:
        return path
    named = [other for other in others if without_folders(other) == without_folders(path)]
    return named[0] if len(named) == 1 else None
