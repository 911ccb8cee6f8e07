"""A comparison as one self-contained HTML page: no script, no network, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from kprof_inject.analysis.comparison.verdicts import CaptureDiff, KernelDiff
from kprof_inject.capture.scopes import ScopeKind, ScopeTable, distinct_names
from kprof_inject.errors import printable
from kprof_inject.files import write_text
from kprof_inject.quantities import short_time
from kprof_inject.report.diff import rows, wording
from kprof_inject.report.diff.rows import Row
from kprof_inject.report.html.document import content_policy
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.columns import largest, smallest
from kprof_inject.timeline.timeline import Timeline

_MAX_PICTURED = 8  # an analysis of both sides takes up to some seconds
_WIDTH, _HEIGHT, _MARGIN = 140.0, 20.0, 4.0
_CAP = 4.0
_ENDS_PERCENT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

_CTA_WIDTH = 1000.0
_LANE, _GAP, _AXIS = 16.0, 34.0, 30.0
_MAX_TICKS = 6
_STEPS_NS = [factor * 10**power for power in range(19) for factor in (1, 2, 5)]
_MIN_WIDTH = 0.4  # of a scope that gets a rectangle of its own
_MAX_SCOPES = 5_000_000  # of a launch: all of them are in memory when the median CTA is chosen

_STYLE = """
:root { color-scheme: light dark; --text: #1c2128; --dim: #57606a; --page: #ffffff; --line: #d0d7de; --head: #f6f8fa;
  --slower: #b42318; --faster: #12733a; --clock: #8a5a00; --same: #6e7781; --unknown: #6e7781; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --dim: #9198a1; --page: #0d1117; --line: #30363d;
  --head: #161b22; --slower: #ff7b72; --faster: #4ac26b; --clock: #d9a636; --same: #8b949e; --unknown: #8b949e; } }
body { margin: 2rem auto; max-width: 100rem; padding: 0 1rem; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.1rem; font-weight: 600; color: var(--dim); margin: 0; }
h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
h1, h2, p, li { overflow-wrap: anywhere; }
.answer { font-size: 1.35rem; line-height: 1.4; margin: .3rem 0 1rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .4rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { background: var(--head); font-weight: 600; }
th.name, td.name { text-align: left; }
td.scope, td.source { max-width: 24rem; white-space: normal; overflow-wrap: break-word; }
td.source { color: var(--dim); }
@media (max-width: 90rem) { table.scopes { font-size: 12px; } .scopes th, .scopes td { padding: .3rem .25rem; } }
.slower { color: var(--slower); } .faster { color: var(--faster); } .clock { color: var(--clock); }
.same { color: var(--same); } .unknown { color: var(--unknown); }
th .axis { display: flex; gap: .6rem; justify-content: space-between; font-weight: 400; color: var(--dim); }
tr.launch td { background: var(--head); }
.cause { font-size: 1.1rem; margin: -.6rem 0 1rem; } .basis { margin: 1.2rem 0 .3rem; }
.lines code { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
pre.code { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
svg { display: block; } svg .bar { fill: currentColor; opacity: .35; }
svg .whisker { stroke: currentColor; stroke-width: 1.6; fill: none; }
svg .zero { stroke: var(--dim); stroke-width: 1; }
ul { color: var(--dim); padding-left: 1.2rem; }
.limits { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .2rem 2rem; }
.limits p { margin: .2rem 0; }
.cta { width: 100%; height: auto; } .cta text { font: 11px system-ui, sans-serif; fill: var(--text); }
.cta .guide { stroke: var(--dim); stroke-dasharray: 3 3; fill: none; } .cta .axis { stroke: var(--line); fill: none; }
.legend { color: var(--dim); } .legend span { margin-right: 1rem; }
.legend svg { display: inline; vertical-align: -1px; }
"""


def write_diff_page(path: Path, diff: CaptureDiff, places: tuple[str, str]) -> None:
    """Write the page; ``places`` are the names of A and B."""
    write_text(path, "".join(f"{line}\n" for line in _page(diff, places)))


def _page(diff: CaptureDiff, places: tuple[str, str]) -> Iterator[str]:
    a, b = map(_escaped, places)
    # The page's policy allows this style sheet by its hash and no style attributes, so each depth needs a class.
    depths = sorted({0, *(scope.depth for kernel in diff.kernels for scope in kernel.scopes)})
    rooms = (f"td.depth-{depth} {{ padding-left: {0.5 + 1.2 * depth:.1f}rem; }}\n" for depth in depths)
    style = _STYLE + "".join(rooms)
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{a} → {b}</title><style>{style}</style></head><body>"
    yield f"<h1>A: {a} → B: {b}</h1>"
    news, *more = wording.first_answer(diff)
    yield f'<p class="answer">{_escaped(news)}</p>'
    yield from (f'<p class="cause">{_escaped(line)}</p>' for line in more)
    yield from _table("ranks", rows.rank_rows(diff))
    for number, kernel in enumerate(diff.kernels):
        yield f"<h2>{_escaped(wording.kernel_title(kernel))}</h2>"
        if len(diff.kernels) > 1:
            yield f"<p>{_escaped('; '.join(wording.kernel_answer(kernel)))}</p>"
        if number < _MAX_PICTURED:
            yield from sides_html(kernel)
        yield from _table("scopes", [*rows.launch_rows(kernel), *rows.scope_rows(kernel)])
        sentence, lines = rows.shown_lines(kernel)
        if sentence:
            yield f'<p class="basis">{_escaped(sentence)}</p>'
        yield from _table("lines", lines)
        if code := list(map(_escaped, rows.code_lines(kernel))):
            yield '<pre class="code">' + "\n".join(code) + "</pre>"
        yield from _list(wording.kernel_notes(kernel))
    if unpaired := wording.unpaired_lines(diff):
        yield from _list(unpaired)
    yield "</body></html>"


def _list(lines: Iterable[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{_escaped(line)}</li>" for line in lines)
    yield "</ul>"


_LEFT = {"scope": "name scope", "source": "name source", "kernel": "name", "verdict": "name", "line": "name"}
_TONED = ("verdict", "change", "error")


def _table(kind: str, shown: Sequence[Row]) -> Iterator[str]:
    titles = [title for title in (shown[0].cells if shown else ()) if any(row.cells[title] for row in shown)]
    if not titles:
        return
    bar_after = "error" if "error" in titles else "change"
    axis = axis_length(shown)
    end = short_time(axis) if kind == "lines" else f"{axis:g} %"
    yield f'<div class="scroll"><table class="{kind}"><thead><tr>'
    for title in titles:
        yield f'<th class="{_LEFT.get(title, "")}">{title}</th>'
        if title == bar_after:
            yield f'<th><span class="axis"><span>-{end}</span><span>+{end}</span></span></th>'
    yield "</tr></thead><tbody>"
    for row in shown:
        yield f'<tr class="{row.kind}">'
        for title in titles:
            classes = [_LEFT.get(title, ""), *([row.tone] if title in _TONED else [])]
            if title == "scope":
                classes.append(f"depth-{row.depth}")
            text = _escaped(row.cells[title])
            cell = f"<code>{text}</code>" if title == "line" and text else text
            yield f'<td class="{" ".join(classes).strip()}">{cell}</td>'
            if title == bar_after:
                yield f'<td class="{row.tone}">{interval_bar(row, axis)}</td>'
        yield "</tr>"
    yield "</tbody></table></div>"


def axis_length(shown: Iterable[Row]) -> float:
    """Return the length of the axis to either side, in per cent or nanoseconds: a round one, which seldom changes."""
    in_ns, changes = False, [0.0]
    for row in shown:
        in_ns = in_ns or row.kind == "line"
        changes += map(abs, row.interval[:1])
    ends: Sequence[float] = _STEPS_NS if in_ns else _ENDS_PERCENT
    return next((end for end in ends if end >= max(changes)), ends[-1])


def interval_bar(row: Row, axis: float) -> str:
    """Draw a change with its interval as a small SVG element; empty if no change is known.

    The bar goes from no change to the estimate, the whisker over the interval, in the colour of the surrounding text.
    Both are clipped at the ends of the axis, where a whisker has no cap.
    """
    if not row.interval:
        return ""
    value, *ends = row.interval
    zero, at, middle = _x(0.0, axis), _x(value, axis), _HEIGHT / 2
    caps = "".join(f"M{_x(end, axis):.1f} {middle - _CAP:.1f}V{middle + _CAP:.1f}" for end in ends if abs(end) <= axis)
    span = f"M{_x(ends[0], axis):.1f} {middle:.1f}H{_x(ends[-1], axis):.1f}{caps}" if ends else ""
    label = f"{row.cells['change']} {row.cells.get('error', '')}".strip()
    return (
        f'<svg width="{_WIDTH:g}" height="{_HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f'<rect class="bar" x="{min(zero, at):.1f}" y="4" width="{abs(at - zero):.1f}" height="{_HEIGHT - 8:g}"/>'
        f'<path class="zero" d="M{zero:.1f} 0V{_HEIGHT:g}"/>'
        f'<path class="whisker" d="{span}"/></svg>'
    )


def _x(value: float, axis: float) -> float:
    part = min(max(value / axis, -1.0), 1.0)
    return _MARGIN + (part + 1) / 2 * (_WIDTH - 2 * _MARGIN)


def _escaped(text: str) -> str:
    return escape(printable(text))


def sides_html(kernel: KernelDiff) -> Iterator[str]:
    """Yield what limits both sides, and a median CTA of each on one axis from their begins on; lines pair their loops.

    Launches without complete scopes have no picture.
    """
    launches = [runs.middle for runs in (kernel.a, kernel.b)]
    yield '<div class="limits">'
    for name, launch in zip("AB", launches, strict=True):
        yield f"<p><b>{name}: LIMIT</b> {_escaped(launch.limit.answer)}</p>"
    yield "</div>"
    a, b = (_Cta.median_of(launch.timeline, side) for launch, side in zip(launches, "AB", strict=True))
    if a is None or b is None:
        return
    longest_ns = max(cta.end_ns - cta.begin_ns for cta in (a, b))
    scale = _CTA_WIDTH / max(longest_ns, 1)
    # Those of B are as on B's own page; those that only A has follow.
    kinds = {scope.name: scope.kind for scope in (*b.table.scopes, *a.table.scopes)}
    colours = {name: one.rgb for name, one in zip(kinds, scope_colours(kinds.values()), strict=True)}
    tops = (_AXIS, _AXIS + a.height + _GAP)
    height = tops[1] + b.height + 2
    label = "a median CTA of A and of B"
    yield f'<svg class="cta" viewBox="0 0 {_CTA_WIDTH:g} {height:g}" role="img" aria-label="{label}">'
    step_ns = next(step for step in _STEPS_NS if step * _MAX_TICKS >= longest_ns)
    for at_ns in range(step_ns, longest_ns, step_ns):
        yield f'<path class="axis" d="M{at_ns * scale:.1f} 0V{height:g}"/>'
        yield f'<text x="{at_ns * scale + 3:.1f}" y="10">{short_time(at_ns)}</text>'
    for cta, top in zip((a, b), tops, strict=True):
        yield f'<text x="2" y="{top - 5:g}">{_escaped(cta.title)}</text>'
        yield from _rectangles(cta, colours, scale, top)
    yield from _guides(kernel, a, b, scale, tops)
    yield "</svg>"
    drawn = {cta.table.scopes[scope].name for cta in (a, b) for scope in np.unique(cta.rows["scope"])}
    yield '<p class="legend">'
    for name, colour in colours.items():
        if name in drawn:
            square = f'<svg width="10" height="10"><rect fill="{colour}" width="10" height="10"/></svg>'
            yield f"<span>{square} {_escaped(name)}</span>"
    yield "</p>"


class _Cta(Struct, frozen=True):
    """Scopes of one CTA, and of one warp for each partition."""

    title: str
    table: ScopeTable
    rows: NDArray[np.void]
    begin_ns: int
    end_ns: int

    @property
    def height(self) -> float:
        return (int(self.rows["depth"].max()) + 1) * _LANE

    @classmethod
    def median_of(cls, timeline: Timeline, side: str) -> _Cta | None:
        if timeline.scope_count > _MAX_SCOPES or not (scopes := timeline.scopes).size:
            return None
        ids, place = np.unique(scopes["cta"], return_inverse=True)
        begin_ns, end_ns = smallest(place, scopes["start_ns"], len(ids)), largest(place, scopes["end_ns"], len(ids))
        middle = int(np.argsort(end_ns - begin_ns, kind="stable")[(len(ids) - 1) // 2])
        ran = scopes[place == middle]
        partitions = [-1 if scope.partition is None else scope.partition for scope in timeline.table.scopes]
        partition = np.array(partitions)[ran["scope"]]
        warps = {int(ran["warp"][partition == one].min()) for one in np.unique(partition)}
        ran = ran[np.isin(ran["warp"], sorted(warps))]
        cta, sm = int(ids[middle]), int(ran["sm"][0])
        length_ns = int(end_ns[middle] - begin_ns[middle])
        listed = " and ".join(map(str, sorted(warps)))
        title = f"{side}: CTA {cta} on SM {sm}, warp {listed}: {short_time(length_ns)}"
        return cls(title, timeline.table, ran, int(begin_ns[middle]), int(end_ns[middle]))


def _rectangles(cta: _Cta, colours: Mapping[str, str], scale: float, top: float) -> Iterator[str]:
    # A scope too short to be seen has no rectangle if it is next to another.
    scopes, distinct = cta.table.scopes, distinct_names(cta.table.scopes)
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
            f'<rect fill="{colours[scopes[scope].name]}" x="{x:.2f}" y="{y:g}" width="{max(width - 0.2, 0.3):.2f}" '
            f'height="{_LANE - 2:g}"><title>{escape(what)}</title></rect>'
        )


def _guides(kernel: KernelDiff, a: _Cta, b: _Cta, scale: float, tops: tuple[float, float]) -> Iterator[str]:
    bottom = tops[0] + a.height
    for scope in kernel.unjudged:
        if scope.b.info.kind != ScopeKind.LOOP or scope.depth > 1:
            continue
        spans = [cta.rows[cta.rows["scope"] == index] for cta, index in ((a, scope.match.a), (b, scope.match.b))]
        if not all(len(span) for span in spans):
            continue
        for column in ("start_ns", "end_ns"):
            x_a, x_b = (float(span[column][0] - cta.begin_ns) * scale for span, cta in zip(spans, (a, b), strict=True))
            yield f'<path class="guide" d="M{x_a:.1f} {bottom:g}L{x_b:.1f} {tops[1]:g}"/>'
