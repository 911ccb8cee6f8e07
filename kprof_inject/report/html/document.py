"""The page as a file, written piece by piece."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.summary import PartitionSummary
from kprof_inject.capture.model import place_names
from kprof_inject.capture.source_text import SourceText, sources_of, without_folders
from kprof_inject.errors import printable
from kprof_inject.files import write_chunks
from kprof_inject.quantities import listed
from kprof_inject.report.html.code import source_lines, ttgir_lines
from kprof_inject.report.html.overview_tab import kernel_rows, launch_overview
from kprof_inject.report.html.page_files import content_policy, data_element, import_map, json_bytes, styles, text_of
from kprof_inject.report.html.pictures import ScopePictures, sm_heat_map
from kprof_inject.report.html.scope_columns import Shown, flight_bytes, scope_bytes, shares, shown_of
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.timeline.partitions import by_warp
from kprof_inject.version import __version__

MOST_SCOPES = 4_000_000
"""A page shows so many, for a browser holds them all, and a page is to be sent around: about 20 MB, and 320 MB in the
browser."""

_BOOT = 'import "#main";'
_MOST_NAMES = 3


def write_html(path: Path, reports: Sequence[LaunchAnalysis], *, most_scopes: int = MOST_SCOPES) -> int:
    """Replace ``path`` by one page about all the launches; returns its size in bytes. Raises ``OSError``.

    The page loads nothing. Of launches with more than ``most_scopes`` scopes together it has whole CTAs up to there,
    and says so; ``omissions`` says it beforehand."""
    return write_chunks(path, _page(reports, most_scopes))


def omissions(reports: Sequence[LaunchAnalysis], most: int = MOST_SCOPES) -> list[str]:
    """What a page of these launches leaves out, in words: a line for each launch of which it does."""
    counts = [report.timeline.scope_count for report in reports]
    return [
        f"{report.launch.kernel.name}, launch {report.launch.index}: the page cannot hold all {count} scopes; its "
        f"timeline shows CTAs of the first SMs with about {share} of them"
        for report, count, share in zip(reports, counts, shares(counts, most), strict=True)
        if share < count
    ]


def _page(reports: Sequence[LaunchAnalysis], most_scopes: int) -> Iterator[bytes]:
    head, _, tail = text_of("page.html").partition("{{data}}")
    inline = _inline_elements(reports)
    yield _filled(head, inline).encode()
    kernels = kernel_names(report.launch.kernel for report in reports)
    places = place_names(report.launch.place for report in reports)
    given = shares([report.timeline.scope_count for report in reports], most_scopes)
    metas: list[dict[str, Any]] = []
    for index, (report, share) in enumerate(zip(reports, given, strict=True)):
        timeline, launch = report.timeline, report.launch
        shown = shown_of(timeline, share)
        metas.append(launch_meta(report, kernels[launch.kernel.variant], places[launch.place], shown))
        pictures = ScopePictures(report.summary)
        # One pass over the blocks is for both. Compressed, the scopes take so little room that they can wait.
        scopes = scope_bytes(timeline, pictures.seeing(timeline.blocks()), shown.ctas)
        scopes_element = list(data_element(f"launch-{index}-scopes", scopes))
        yield from data_element(f"launch-{index}-sections", [json_bytes(all_sections(report, pictures))])
        yield from scopes_element
        if report.in_flight is not None and report.in_flight.kinds:
            yield from data_element(f"launch-{index}-flights", flight_bytes(timeline, report.in_flight, shown.ctas))
    page = {"version": __version__, "launches": metas, "kernels": kernel_rows(reports)}
    yield b'<script type="application/json" id="report">' + json_bytes(page) + b"</script>\n"
    yield _filled(tail, inline).encode()


def all_sections(report: LaunchAnalysis, pictures: ScopePictures) -> dict[str, Any]:
    """What each of the page's views shows of a launch, by its name, as JSON values of bounded size. ``pictures`` has
    seen all blocks of the timeline."""
    timeline, summary = report.timeline, report.summary
    return {
        "overview": launch_overview(report),
        "heat_map": sm_heat_map(timeline, summary),
        "scopes": pictures.drawn(),
        "source": source_lines(timeline, summary, report.slopes),
        "ttgir": ttgir_lines(timeline),
    }


def _inline_elements(reports: Sequence[LaunchAnalysis]) -> dict[str, str]:
    """By their names in the template; and the policy that lets the browser run these and load nothing."""
    style, imports = styles(), import_map()
    return {
        "policy": content_policy(style, (imports, _BOOT)),
        "title": html.escape(_title(reports)),
        "style": style,
        "imports": imports,
        "boot": _BOOT,
    }


def _filled(template: str, values: dict[str, str]) -> str:
    parts = template.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def _title(reports: Sequence[LaunchAnalysis]) -> str:
    kernels = list(dict.fromkeys(printable(report.launch.kernel.name) for report in reports))
    return f"{listed(kernels, _MOST_NAMES) or 'no launch'} · kprof-inject"


def launch_meta(report: LaunchAnalysis, kernel_name: str, place_name: str, shown: Shown) -> dict[str, Any]:
    """What the page knows of a launch before its scopes are read.

    ``first_ns`` is a text, for JavaScript's numbers do not hold it exactly; all other times of the page are nanoseconds
    since then. A scope's ``text`` is its line of the source, ``share`` its part of the time of all warps (None if
    unknown), ``self_name`` what its self time is called. ``partition_of_warp`` says of each of ``warps`` what it runs,
    ``function_of_warp`` what the code calls that.
    ``flight_works`` are the kinds of its asynchronous work; empty if the page has none."""
    timeline, summary = report.timeline, report.summary
    partitions = by_warp(timeline.partitions)
    return {
        "kernel": kernel_name,
        "variant": summary.variant,
        "launch": summary.launch,
        "graph": summary.graph,
        "place": place_name,
        "device": report.launch.device_name,
        "grid": list(summary.grid),
        "warps_per_cta": summary.warps,
        "warps": list(timeline.warps),
        "ctas": summary.ctas,
        "first_ns": str(timeline.first_ns),
        "span_ns": timeline.last_ns - timeline.first_ns,
        "duration_ns": summary.duration_ns if summary.ctas else None,
        "clock_ghz": timeline.clock.clock_hz / 1e9,
        "clock_source": summary.clock_source,
        "cta_name": summary.cta_name,
        "warp_name": summary.warp_name,
        "scope_count": timeline.scope_count,
        "shown_scopes": shown.scopes,
        "shown_ctas": len(timeline.ctas) if shown.ctas is None else int(shown.ctas.sum()),
        "partitions": [_partition(partition) for partition in summary.partitions],
        "partition_of_warp": [_together(one.name for one in partitions.get(warp, ())) for warp in timeline.warps],
        "function_of_warp": [_together(one.function for one in partitions.get(warp, ())) for warp in timeline.warps],
        "scopes": _scopes(report),
        "flight_works": list(report.in_flight.kinds) if report.in_flight else [],
    }


def _together(names: Iterable[str]) -> str:
    return printable(", ".join(filter(None, names)))


def _partition(partition: PartitionSummary) -> dict[str, Any]:
    return {
        "title": printable(partition.title),
        "scopes": list(partition.scopes),
        "warps": len(partition.warps),
        "whole_ns": partition.whole_ns,
        "outside_ns": partition.outside_ns,
    }


def _scopes(report: LaunchAnalysis) -> list[dict[str, Any]]:
    """The scope table."""
    timeline, text = report.timeline, SourceText(sources_of(report.launch.kernel))
    return [
        {
            "name": mine.distinct_name,
            "kind": scope.kind,
            "source": without_folders(scope.source),
            "path": scope.source,
            "text": text.line(scope.source).strip(),
            "called_from": [without_folders(call) for call in scope.called_from],
            "parent": scope.parent,
            "lane": lane,
            "share": mine.share,
            "self_name": "self" if mine.between_iterations_ns is None else "between iterations",
            "tags": [tag.name for tag in scope.tags],
        }
        for scope, mine, lane in zip(timeline.table.scopes, report.summary.scopes, timeline.lanes.tolist(), strict=True)
    ]
