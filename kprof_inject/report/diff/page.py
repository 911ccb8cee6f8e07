"""A comparison as one self-contained HTML page: no script, no network, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from kprof_inject.files import write_text
from kprof_inject.quantities import short_time, signed_microseconds
from kprof_inject.report.diff.change_verdicts import ChangeVerdict, Judged, change_words
from kprof_inject.report.diff.code_changes import SourcePart, source_parts, structure_lines
from kprof_inject.report.diff.kernel_diff import CaptureDiff, KernelDiff
from kprof_inject.report.diff.line_changes import LineChange, LineChanges, error_text, line_changes, times_text
from kprof_inject.report.diff.paired_sources import SourceLine
from kprof_inject.report.diff.sides import STEPS_NS, STYLE, escaped, sides_of
from kprof_inject.report.diff.structure import structure_of
from kprof_inject.report.diff.table import (
    SCOPE_TITLES,
    kernel_notes,
    rank_rows,
    rank_text,
    scope_cells,
    source_text,
    title_of,
    unpaired_lines,
)
from kprof_inject.report.diff.wording import change_text, first_sentence, kernel_sentence
from kprof_inject.report.html.document import content_policy

_WIDTH, _HEIGHT, _MARGIN = 140.0, 20.0, 4.0
_CAP = 4.0
_MAX_PICTURED = 8  # an analysis of both sides takes up to some seconds
_ENDS_PERCENT = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def axis_percent(judged: Iterable[Judged | None]) -> float:
    """Return the length of the axis to either side, in per cent.

    It is the smallest of a few round numbers that holds all estimates, so that it seldom changes from page to page.
    """
    farthest = max((abs(item.change.percent) for item in judged if item and item.change), default=0.0)
    return next((end for end in _ENDS_PERCENT if end >= farthest), _ENDS_PERCENT[-1])


def interval_bar(judged: Judged | None, axis: float) -> str:
    """Draw a change with its interval as a small SVG element; empty if no change is known.

    The bar goes from no change to the estimate, the whisker over the interval, in the colour of the surrounding text.
    Both are clipped at the ends of the axis, where a whisker has no cap.
    """
    change = judged.change if judged else None
    if change is None:
        return ""
    return _bar(change.percent, (change.low_percent, change.high_percent), axis, change_words(change))


def _bar(value: float, ends: Sequence[float], axis: float, label: str) -> str:
    """Draw a change, and a whisker between the ends of its interval if there are any."""
    zero, at = _x(0.0, axis), _x(value, axis)
    middle = _HEIGHT / 2
    caps = "".join(
        f"M{x:.1f} {middle - _CAP:.1f}V{middle + _CAP:.1f}"
        for x, end in ((_x(end, axis), end) for end in ends)
        if abs(end) <= axis
    )
    span = f"M{_x(ends[0], axis):.1f} {middle:.1f}H{_x(ends[-1], axis):.1f}{caps}" if ends else ""
    return (
        f'<svg width="{_WIDTH:g}" height="{_HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f'<rect class="bar" x="{min(zero, at):.1f}" y="4" width="{abs(at - zero):.1f}" height="{_HEIGHT - 8:g}"/>'
        f'<path class="zero" d="M{zero:.1f} 0V{_HEIGHT:g}"/>'
        f'<path class="whisker" d="{span}"/></svg>'
    )


def _x(value: float, axis: float) -> float:
    part = min(max(value / axis, -1.0), 1.0)
    return _MARGIN + (part + 1) / 2 * (_WIDTH - 2 * _MARGIN)


_CLASSES = {verdict: verdict.name.lower() for verdict in ChangeVerdict}
_CLASSES |= {ChangeVerdict.NEW: "slower", ChangeVerdict.GONE: "faster"}

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
.basis { margin: 1.2rem 0 .3rem; } .lines td.place { color: var(--dim); }
.lines td.plain, .lines code { color: var(--text); }
.lines code { font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
table.sources { margin: .8rem 0; } .sources td { border: 0; padding: 0 .6rem; }
.sources caption { text-align: left; font-weight: 600; padding: .2rem 0; }
.sources td.number { color: var(--dim); } .sources code, pre.code { font: 12px/1.5 ui-monospace, monospace; }
.sources code { white-space: pre; } .sources td.changed { color: var(--clock); white-space: normal; }
.sources tr.edited code { font-weight: 600; } pre.code { white-space: pre-wrap; overflow-wrap: anywhere; }
svg { display: block; } svg .bar { fill: currentColor; opacity: .35; }
svg .whisker { stroke: currentColor; stroke-width: 1.6; fill: none; }
svg .zero { stroke: var(--dim); stroke-width: 1; }
ul { color: var(--dim); padding-left: 1.2rem; }
"""


def write_diff_page(path: Path, diff: CaptureDiff, places: tuple[str, str]) -> None:
    """Write the page; ``places`` are the names of A and B."""
    write_text(path, "".join(f"{line}\n" for line in _page(diff, places)))


def _page(diff: CaptureDiff, places: tuple[str, str]) -> Iterator[str]:
    a, b = map(escaped, places)
    # The page's policy allows this style sheet by its hash and no style attributes, so each depth needs a class.
    depths = sorted({0, *(scope.depth for kernel in diff.kernels for scope in kernel.scopes)})
    style = (
        _STYLE
        + STYLE
        + "".join(f"td.depth-{depth} {{ padding-left: {0.5 + 1.2 * depth:.1f}rem; }}\n" for depth in depths)
    )
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{content_policy(style)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{a} → {b}</title><style>{style}</style></head><body>"
    yield f"<h1>A: {a} → B: {b}</h1>"
    yield f'<p class="answer">{escaped(first_sentence(diff))}</p>'
    yield from _ranks(diff)
    for number, kernel in enumerate(diff.kernels):
        sides = sides_of(kernel) if number < _MAX_PICTURED else ()
        yield from _section(kernel, sides, alone=len(diff.kernels) == 1)
    if unpaired := unpaired_lines(diff):
        yield from _list(unpaired)
    yield "</body></html>"


def _ranks(diff: CaptureDiff) -> Iterator[str]:
    if not diff.is_by_rank:
        return
    rows = rank_rows(diff)
    axis = axis_percent(kernel.launch for kernel in rows)
    yield '<div class="scroll"><table class="ranks"><thead><tr>'
    yield '<th class="name">kernel</th><th>rank</th><th class="name">verdict</th><th>change</th>'
    yield f'<th><span class="axis"><span>-{axis:g} %</span><span>+{axis:g} %</span></span></th><th>launch</th>'
    yield "</tr></thead><tbody>"
    for kernel in rows:
        kind, times_ns = _CLASSES[kernel.launch.verdict], kernel.compared_ns
        yield (
            f'<tr><td class="name">{escaped(kernel.b.kernel.name)}</td><td>{rank_text(kernel.b)}</td>'
            f'<td class="name {kind}">{kernel.launch.verdict.value}</td>'
            f'<td class="{kind}">{escaped(change_text(kernel.launch, times_ns))}</td>'
            f'<td class="{kind}">{interval_bar(kernel.launch, axis)}</td>'
            f"<td>{short_time(times_ns.a)} → {short_time(times_ns.b)}</td></tr>"
        )
    yield "</tbody></table></div>"


def _section(kernel: KernelDiff, sides: Iterable[str], *, alone: bool) -> Iterator[str]:
    yield f"<h2>{escaped(title_of(kernel))}</h2>"
    if not alone:
        yield f"<p>{escaped(kernel_sentence(kernel))}</p>"
    yield from sides
    yield '<div class="scroll"><table class="scopes"><thead><tr>'
    yield '<th class="name">scope</th><th class="name">source</th><th class="name">verdict</th><th>change</th>'
    launches = [
        (name, judged, figures)
        for name, judged, figures in (
            ("run time, without records", kernel.clean, kernel.clean_ns),
            ("span, with records", kernel.recorded, kernel.sides.duration_ns),
        )
        if judged is not None
    ]
    axis = axis_percent([*(judged for _, judged, _ in launches), *(scope.judged for scope in kernel.scopes)])
    yield f'<th><span class="axis"><span>-{axis:g} %</span><span>+{axis:g} %</span></span></th>'
    yield "".join(f"<th>{title}</th>" for title in SCOPE_TITLES)
    yield "</tr></thead><tbody>"
    for name, judged, figures in launches:
        spans = ("", f"{short_time(figures.a)} → {short_time(figures.b)}", "", "", "")
        yield _row(name, "", 0, judged, change_text(judged, figures), axis, spans, "launch")
    for scope in kernel.scopes:
        change = change_text(scope.judged, scope.compared_ns)
        cells = scope_cells(scope, kernel.resolution_ns)
        yield _row(scope.title, source_text(scope), scope.depth, scope.judged, change, axis, cells, "scope")
    yield "</tbody></table></div>"
    yield from _lines(line_changes(kernel))
    structure = structure_of(kernel)
    if code := list(structure_lines(structure, kernel)):
        yield '<pre class="code">' + "\n".join(map(escaped, code)) + "</pre>"
    yield from _sources(source_parts(kernel, structure))
    yield from _list(list(kernel_notes(kernel)))


def _lines(changes: LineChanges | None) -> Iterator[str]:
    if changes is None:
        return
    yield f'<p class="basis">{escaped(changes.sentence)}</p>'
    if not changes.shown:
        return
    farthest_ns = max(abs(line.change_ns) for line in changes.shown)
    axis_ns = next(step for step in STEPS_NS if step >= farthest_ns)
    ends = "".join(f"<span>{sign}{short_time(axis_ns)}</span>" for sign in "-+")
    titles = ("source", "line", "time", "change", "error", f'<span class="axis">{ends}</span>')
    rows = [_line_cells(line, axis_ns) for line in changes.shown]
    columns = [at for at in range(len(titles)) if any(row[at][1] for row in rows)]
    yield '<div class="scroll"><table class="lines"><thead><tr>'
    yield "".join(f'<th class="{rows[0][at][0]}">{titles[at]}</th>' for at in columns)
    yield "</tr></thead><tbody>"
    for line, cells in zip(changes.shown, rows, strict=True):
        kind = "same" if line.is_noise else "slower" if line.change_ns > 0 else "faster"
        yield f'<tr class="{kind}">'
        yield "".join(f'<td class="{cells[at][0]}">{cells[at][1]}</td>' for at in columns)
        yield "</tr>"
    yield "</tbody></table></div>"


def _line_cells(line: LineChange, axis_ns: float) -> tuple[tuple[str, str], ...]:
    """Return the class and the HTML of each cell of a source line; empty HTML for what is unknown."""
    change, error = signed_microseconds(line.change_ns), error_text(line)
    ends = () if line.error_ns is None else (line.change_ns - line.error_ns, line.change_ns + line.error_ns)
    return (
        ("name place", escaped(line.place)),
        ("name", f"<code>{escaped(line.text)}</code>" if line.text else ""),
        ("plain", times_text(line)),
        ("", change),
        ("name", error),
        ("", _bar(line.change_ns, ends, axis_ns, f"{change} {error}".strip())),
    )


def _sources(parts: Sequence[SourcePart]) -> Iterator[str]:
    """Show both sides' lines at which something changed, with the changes."""
    for part in parts:
        yield f'<div class="scroll"><table class="sources"><caption>{escaped(part.name)}</caption><thead><tr>'
        yield '<th></th><th class="name">A</th><th></th><th class="name">B</th>'
        yield "</tr></thead><tbody>"
        for row in part.rows:
            kind = ' class="edited"' if row.is_edited else ""
            yield f"<tr{kind}>{_line(row.a, part.indent)}{_line(row.b, part.indent)}</tr>"
            for change in row.changes:
                yield f'<tr><td></td><td></td><td></td><td class="name changed">↑ {escaped(change)}</td></tr>'
        yield "</tbody></table></div>"


def _line(line: SourceLine | None, indent: int) -> str:
    number, text = (str(line.number), escaped(line.text[indent:])) if line else ("", "")
    return f'<td class="number">{number}</td><td class="name"><code>{text}</code></td>'


def _row(
    name: str, source: str, depth: int, judged: Judged | None, change: str, axis: float, cells: Sequence[str], what: str
) -> str:
    verdict = judged.verdict if judged else None
    kind = _CLASSES[verdict] if verdict else "same"
    return (
        f'<tr class="{what}"><td class="name scope depth-{depth}">{escaped(name)}</td>'
        f'<td class="name source">{escaped(source)}</td>'
        f'<td class="name {kind}">{verdict.value if verdict else "-"}</td>'
        f'<td class="{kind}">{escaped(change)}</td><td class="{kind}">{interval_bar(judged, axis)}</td>'
        + "".join(f"<td>{escaped(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _list(lines: list[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{escaped(line)}</li>" for line in lines)
    yield "</ul>"
