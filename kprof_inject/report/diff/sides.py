"""Both sides of a comparison next to each other on its page: what limits them, their units, a median CTA of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.launch import LaunchAnalysis, ReportLaunch
from kprof_inject.analysis.program import middle_of
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, distinct_names
from kprof_inject.errors import printable
from kprof_inject.quantities import percent, short_time
from kprof_inject.report.diff.kernel_diff import KernelDiff
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.timeline import Timeline

_MAX_UNITS = 8
_MIN_UNIT = 0.02
_BAR_WIDTH, _BAR_HEIGHT = 160.0, 12.0

_WIDTH = 1000.0
_LANE, _GAP, _AXIS = 16.0, 34.0, 30.0
_MAX_TICKS = 6
STEPS_NS = [factor * 10**power for power in range(19) for factor in (1, 2, 5)]
_MIN_WIDTH = 0.4  # of a scope that gets a rectangle of its own
_MAX_SCOPES = 5_000_000  # of a launch: all of them are in memory when the median CTA is chosen

STYLE = """
table.units td { border: 0; padding: .1rem .6rem; } table.units svg .bar { fill: var(--clock); opacity: .8; }
table.units svg .track { fill: var(--line); opacity: .6; }
.limits { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .2rem 2rem; }
.limits p { margin: .2rem 0; }
.cta { width: 100%; height: auto; } .cta text { font: 11px system-ui, sans-serif; fill: var(--text); }
.cta .guide { stroke: var(--dim); stroke-dasharray: 3 3; fill: none; } .cta .axis { stroke: var(--line); fill: none; }
.legend { color: var(--dim); } .legend span { margin-right: 1rem; }
.legend svg { display: inline; vertical-align: -1px; }
"""
"""Rules of the page's style sheet, whose policy allows no style attributes."""


def sides_of(kernel: KernelDiff) -> Iterator[str]:
    """Yield the HTML of a kernel's two sides; launches without evidence or times have a part of it, or nothing."""
    reports = [middle_of(map(ReportLaunch.of, runs.timelines)).analysis for runs in (kernel.a, kernel.b)]
    yield '<div class="limits">'
    for name, report in zip("AB", reports, strict=True):
        yield f"<p><b>{name}: LIMIT</b> {escaped(report.limit.answer)}</p>"
    yield "</div>"
    yield from _units(reports)
    yield from _median_ctas(kernel, [report.timeline for report in reports])


def _units(reports: Sequence[LaunchAnalysis]) -> Iterator[str]:
    sides = [{one.unit: one for one in report.units} for report in reports]
    best = {unit: max(side[unit].best for side in sides if unit in side) for side in sides for unit in side}
    shown = sorted((unit for unit, part in best.items() if part >= _MIN_UNIT), key=lambda unit: -best[unit])
    if not shown:
        return
    yield '<table class="units"><thead><tr><th class="name">unit, of its peak</th>'
    yield '<th class="name">A</th><th></th><th class="name">B</th><th></th></tr></thead><tbody>'
    for unit in shown[:_MAX_UNITS]:
        yield f'<tr><td class="name">{escaped(unit)}</td>'
        for side in sides:
            one = side.get(unit)
            bound = "" if one is None or one.measured is not None else ">= "
            yield f'<td class="name">{_bar(one.best if one else 0.0)}</td>'
            yield f"<td>{bound}{percent(one.best)}</td>" if one else "<td>-</td>"
        yield "</tr>"
    yield "</tbody></table>"


def _bar(part: float) -> str:
    width = _BAR_WIDTH * min(part, 1.0)
    track, bar = (
        f'<rect class="{kind}" width="{length:.1f}" height="{_BAR_HEIGHT:g}" rx="2"/>'
        for kind, length in (("track", _BAR_WIDTH), ("bar", width))
    )
    return f'<svg width="{_BAR_WIDTH:g}" height="{_BAR_HEIGHT:g}">{track}{bar}</svg>'


class _Cta(Struct, frozen=True):
    """Scopes of one CTA, and of one warp for each partition."""

    title: str
    table: ScopeTable
    rows: NDArray[np.void]
    begin_ns: int
    end_ns: int

    @property
    def names(self) -> list[str]:
        """Names of all scopes of the kernel, by index."""
        return [scope.name for scope in self.table.scopes]

    @property
    def drawn_names(self) -> set[str]:
        """Names of those that ran."""
        names = self.names
        return {names[scope] for scope in np.unique(self.rows["scope"])}

    @property
    def lanes(self) -> int:
        """Number of rows that it takes."""
        return int(self.rows["depth"].max()) + 1

    @classmethod
    def median_of(cls, timeline: Timeline, side: str) -> _Cta | None:
        """Return the CTA of median duration; None if no scope is complete."""
        if timeline.scope_count > _MAX_SCOPES or not (scopes := timeline.scopes).size:
            return None
        ids, place = np.unique(scopes["cta"], return_inverse=True)
        begin_ns, end_ns = np.full(len(ids), np.iinfo(np.int64).max), np.full(len(ids), np.iinfo(np.int64).min)
        np.minimum.at(begin_ns, place, scopes["start_ns"])
        np.maximum.at(end_ns, place, scopes["end_ns"])
        middle = int(np.argsort(end_ns - begin_ns, kind="stable")[(len(ids) - 1) // 2])
        rows = scopes[place == middle]
        partitions = [-1 if scope.partition is None else scope.partition for scope in timeline.table.scopes]
        partition = np.array(partitions)[rows["scope"]]
        warps = {int(rows["warp"][partition == one].min()) for one in np.unique(partition)}
        rows = rows[np.isin(rows["warp"], sorted(warps))]
        cta, sm = int(ids[middle]), int(rows["sm"][0])
        length_ns = int(end_ns[middle] - begin_ns[middle])
        listed = " and ".join(map(str, sorted(warps)))
        title = f"{side}: CTA {cta} on SM {sm}, warp {listed}: {short_time(length_ns)}"
        return cls(title, timeline.table, rows, int(begin_ns[middle]), int(end_ns[middle]))


def _median_ctas(kernel: KernelDiff, timelines: Sequence[Timeline]) -> Iterator[str]:
    """Yield a picture of a median CTA of each side, on one axis from their begins on; lines pair their loops."""
    found = [_Cta.median_of(timeline, side) for timeline, side in zip(timelines, "AB", strict=True)]
    a, b = found
    if a is None or b is None:
        return
    longest_ns = max(cta.end_ns - cta.begin_ns for cta in (a, b))
    scale = _WIDTH / max(longest_ns, 1)
    # Those of B are as on B's own page; those that only A has follow.
    kinds = {scope.name: scope.kind for scope in (*b.table.scopes, *a.table.scopes)}
    colours = {name: one.rgb for name, one in zip(kinds, scope_colours(kinds.values()), strict=True)}
    tops = (_AXIS, _AXIS + a.lanes * _LANE + _GAP)
    height = tops[1] + b.lanes * _LANE + 2
    yield f'<svg class="cta" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="a median CTA of A and of B">'
    yield from _axis(longest_ns, scale, height)
    for cta, top in zip((a, b), tops, strict=True):
        yield f'<text x="2" y="{top - 5:g}">{escaped(cta.title)}</text>'
        yield from _rectangles(cta, colours, scale, top)
    yield from _guides(kernel, a, b, scale, tops)
    yield "</svg>"
    drawn = a.drawn_names | b.drawn_names
    yield '<p class="legend">'
    for name, colour in colours.items():
        if name in drawn:
            square = f'<svg width="10" height="10"><rect fill="{colour}" width="10" height="10"/></svg>'
            yield f"<span>{square} {escaped(name)}</span>"
    yield "</p>"


def _axis(longest_ns: int, scale: float, height: float) -> Iterator[str]:
    step_ns = next(step for step in STEPS_NS if step * _MAX_TICKS >= longest_ns)
    for at_ns in range(step_ns, longest_ns, step_ns):
        yield f'<path class="axis" d="M{at_ns * scale:.1f} 0V{height:g}"/>'
        yield f'<text x="{at_ns * scale + 3:.1f}" y="10">{short_time(at_ns)}</text>'


def _rectangles(cta: _Cta, colours: Mapping[str, str], scale: float, top: float) -> Iterator[str]:
    """Yield a rectangle for each scope; one too short to be seen is left out if it is next to another."""
    names, distinct = cta.names, distinct_names(cta.table.scopes)
    order = np.lexsort((cta.rows["start_ns"], cta.rows["depth"]))
    last: dict[int, float] = {}
    for row in cta.rows[order]:
        x = float(row["start_ns"] - cta.begin_ns) * scale
        width = float(row["end_ns"] - row["start_ns"]) * scale
        depth, scope = int(row["depth"]), int(row["scope"])
        if width < _MIN_WIDTH and x - last.get(depth, -1.0) < _MIN_WIDTH:
            continue
        last[depth] = x + width
        what = f"{printable(distinct[scope])}: {short_time(float(row['duration_ns']))}"
        y = top + depth * _LANE
        yield (
            f'<rect fill="{colours[names[scope]]}" x="{x:.2f}" y="{y:g}" width="{max(width - 0.2, 0.3):.2f}" '
            f'height="{_LANE - 2:g}"><title>{escape(what)}</title></rect>'
        )


def _guides(kernel: KernelDiff, a: _Cta, b: _Cta, scale: float, tops: tuple[float, float]) -> Iterator[str]:
    """Yield lines from the begin and the end of each outer loop of A to those of B."""
    bottom = tops[0] + a.lanes * _LANE
    for scope in kernel.every_scope:
        if scope.kind != ScopeKind.LOOP or scope.depth > 1:
            continue
        spans = [cta.rows[cta.rows["scope"] == index] for cta, index in ((a, scope.index_a), (b, scope.index_b))]
        if not all(len(span) for span in spans):
            continue
        for column in ("start_ns", "end_ns"):
            x_a, x_b = (float(span[column][0] - cta.begin_ns) * scale for span, cta in zip(spans, (a, b), strict=True))
            yield f'<path class="guide" d="M{x_a:.1f} {bottom:g}L{x_b:.1f} {tops[1]:g}"/>'


def escaped(text: str) -> str:
    """Escape a text for HTML; the name of a kernel may have any characters."""
    return escape(printable(text))
