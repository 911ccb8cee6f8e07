"""The page as a file, written piece by piece."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kprof_inject.capture.origin import place_names
from kprof_inject.files import write_chunks
from kprof_inject.printable import printable
from kprof_inject.report.html.launch_meta import launch_meta
from kprof_inject.report.html.page_files import content_policy, import_map, styles, text_of
from kprof_inject.report.html.payload.embed import data_element, json_bytes
from kprof_inject.report.html.payload.limits import MOST_SCOPES, shares, shown_of
from kprof_inject.report.html.payload.scopes import scope_bytes
from kprof_inject.report.html.sections import all_sections
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.report.launch_report import report_on
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

_BOOT = 'import "#main";'
_MOST_NAMES = 3


def write_html(path: Path, timelines: Sequence[Timeline], *, most_scopes: int = MOST_SCOPES) -> int:
    """Replace ``path`` by one page about all the launches; returns its size in bytes. Raises ``OSError``.

    The page loads nothing. Of launches with more than ``most_scopes`` scopes together it has whole CTAs up to there,
    and says so; ``omissions`` of ``payload.limits`` says it beforehand."""
    return write_chunks(path, _page(timelines, most_scopes))


def _page(timelines: Sequence[Timeline], most_scopes: int) -> Iterator[bytes]:
    head, _, tail = text_of("page.html").partition("{{data}}")
    yield _filled(head, timelines).encode()
    kernels = kernel_names(timeline.launch.kernel for timeline in timelines)
    places = place_names(timeline.launch.place for timeline in timelines)
    given = shares([timeline.scope_count for timeline in timelines], most_scopes)
    metas: list[dict[str, Any]] = []
    for index, (timeline, share) in enumerate(zip(timelines, given, strict=True)):
        shown = shown_of(timeline, share)
        report = report_on(timeline)
        launch = timeline.launch
        metas.append(launch_meta(timeline, report.summary, kernels[launch.kernel.variant], places[launch.place], shown))
        yield from data_element(f"launch-{index}-sections", [json_bytes(all_sections(timeline, report))])
        yield from data_element(f"launch-{index}-scopes", scope_bytes(timeline, shown.ctas))
    page = {"version": __version__, "launches": metas}
    yield b'<script type="application/json" id="report">' + json_bytes(page) + b"</script>\n"
    yield _filled(tail, timelines).encode()


def _filled(template: str, timelines: Sequence[Timeline]) -> str:
    """The template with its inline elements, and the policy that lets the browser run these and load nothing."""
    style, imports = styles(), import_map()
    values = {
        "policy": content_policy(style, (imports, _BOOT)),
        "title": html.escape(_title(timelines)),
        "style": style,
        "imports": imports,
        "boot": _BOOT,
    }
    parts = template.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def _title(timelines: Sequence[Timeline]) -> str:
    kernels = list(dict.fromkeys(printable(timeline.launch.kernel.name) for timeline in timelines))
    more = f" and {len(kernels) - _MOST_NAMES} more" if len(kernels) > _MOST_NAMES else ""
    return f"{', '.join(kernels[:_MOST_NAMES]) or 'no launch'}{more} · kprof-inject"
