"""The page as a file, written piece by piece."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.analysis.launch_report import LaunchReport, report_on
from kprof_inject.analysis.summary import LaunchSummary, PartitionSummary
from kprof_inject.capture.model import Kernel, place_names, sources_of
from kprof_inject.capture.scopes import ScopeInfo
from kprof_inject.errors import printable
from kprof_inject.files import write_chunks
from kprof_inject.report.html.code import source_lines, ttgir_lines
from kprof_inject.report.html.overview import launch_overview
from kprof_inject.report.html.page_files import content_policy, data_element, import_map, json_bytes, styles, text_of
from kprof_inject.report.html.pictures import scope_pictures, sm_heat_map
from kprof_inject.report.html.scope_columns import scope_bytes
from kprof_inject.report.kernel_names import kernel_names
from kprof_inject.timeline.partitions import by_warp
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.version import __version__

# How many scopes one page shows: a browser holds them all, and a page is to be sent around.

MOST_SCOPES = 4_000_000
"""About 20 MB of page, and 320 MB in the browser."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of one launch: ``ctas`` tells which rows of ``timeline.ctas`` have their scopes in it (None:
    all do). All other CTAs are shown without their scopes."""

    ctas: NDArray[np.bool_] | None
    scopes: int

    def cta_count(self, timeline: Timeline) -> int:
        return len(timeline.ctas) if self.ctas is None else int(self.ctas.sum())


def shares(wanted: Sequence[int], most: int) -> list[int]:
    """How many of ``most`` each gets: as many as it wants if that is no more than an equal share, and of what those
    leave again an equal share."""
    left, given = most, [0] * len(wanted)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    for done, index in enumerate(order):
        given[index] = min(wanted[index], left // (len(order) - done))
        left -= given[index]
    return given


def shown_of(timeline: Timeline, most: int) -> Shown:
    """Whole CTAs with at most so many scopes, but at least one: those of the first SMs, so that what an SM did is there
    from the launch's begin to its end."""
    if timeline.scope_count <= most:
        return Shown(None, timeline.scope_count)
    numbers = np.argsort(timeline.ctas["cta"], kind="stable")
    sorted_ctas = timeline.ctas["cta"][numbers]
    counts = np.zeros(len(numbers), dtype=np.int64)
    for block in timeline.blocks():
        counts += np.bincount(numbers[np.searchsorted(sorted_ctas, block["cta"])], minlength=len(counts))
    order = np.lexsort((timeline.ctas["cta"], timeline.ctas["sm"]))
    fits = np.cumsum(counts[order]) <= most
    fits[np.flatnonzero(counts[order])[:1]] = True
    shown = np.zeros(len(counts), dtype=bool)
    shown[order[fits]] = True
    return Shown(shown, int(counts[shown].sum()))


def omissions(timelines: Sequence[Timeline], most: int = MOST_SCOPES) -> list[str]:
    """What a page of these launches leaves out, in words: a line for each launch of which it does."""
    given = shares([timeline.scope_count for timeline in timelines], most)
    return [
        f"{timeline.launch.kernel.name}, launch {timeline.launch.index}: the page has no room for all "
        f"{timeline.scope_count} scopes; its timeline shows CTAs of the first SMs with about {share} of them"
        for timeline, share in zip(timelines, given, strict=True)
        if share < timeline.scope_count
    ]


# What the page knows of a launch before its scopes are read.


def launch_meta(
    timeline: Timeline, summary: LaunchSummary, kernel_name: str, place_name: str, shown: Shown
) -> dict[str, Any]:
    """``first_ns`` is a text, for JavaScript's numbers do not hold it exactly; all other times of the page are
    nanoseconds since then. ``scopes`` has the scope table; a scope's ``text`` is its line of the source,
    ``self_name`` what its self time is called. ``partitions``
    are empty unless the kernel is warp specialised; ``partition_of_warp`` says of each of ``warps`` what it runs,
    ``function_of_warp`` what the code calls that."""
    partitions = by_warp(timeline.partitions)
    return {
        "kernel": kernel_name,
        "variant": summary.variant,
        "launch": summary.launch,
        "graph": summary.graph,
        "place": place_name,
        "device": timeline.launch.device_name,
        "grid": list(summary.grid),
        "warps_per_cta": summary.warps,
        "warps": list(timeline.warps),
        "ctas": summary.ctas,
        "first_ns": str(timeline.first_ns),
        "span_ns": timeline.last_ns - timeline.first_ns,
        "duration_ns": summary.duration_ns if summary.ctas else None,
        "clock_ghz": timeline.clock.clock_hz / 1e9,
        "clock_source": summary.clock_source,
        "scope_count": timeline.scope_count,
        "shown_scopes": shown.scopes,
        "shown_ctas": shown.cta_count(timeline),
        "partitions": [_partition(partition) for partition in summary.partitions],
        "partition_of_warp": [_listed(one.name for one in partitions.get(warp, ())) for warp in timeline.warps],
        "function_of_warp": [_listed(one.function for one in partitions.get(warp, ())) for warp in timeline.warps],
        "scopes": _scopes(timeline, summary),
    }


def _listed(names: Iterable[str]) -> str:
    return printable(", ".join(filter(None, names)))


def _partition(partition: PartitionSummary) -> dict[str, Any]:
    return {
        "title": printable(partition.title),
        "scopes": list(partition.scopes),
        "whole_ns": partition.whole_ns,
        "outside_ns": partition.outside_ns,
    }


def _scopes(timeline: Timeline, summary: LaunchSummary) -> list[dict[str, Any]]:
    lines = _Lines(timeline.launch.kernel)
    return [
        {
            "name": scope.name,
            "kind": scope.kind,
            "source": _short(scope.source),
            "path": scope.source,
            "text": lines.of(scope),
            "called_from": [_short(place) for place in scope.called_from],
            "parent": scope.parent,
            "lane": lane,
            "self_name": "self" if mine.between_iterations_ns is None else "between iterations",
        }
        for scope, mine, lane in zip(timeline.table.scopes, summary.scopes, timeline.lanes.tolist(), strict=True)
    ]


def _short(place: str) -> str:
    """``file.py:12`` without the folders."""
    return PurePath(place).name if place else ""


class _Lines:
    """The lines of the kernel's source files, as far as the capture has them."""

    def __init__(self, kernel: Kernel) -> None:
        self._sources = sources_of(kernel)
        self._lines: dict[str, list[str]] = {}

    def of(self, scope: ScopeInfo) -> str:
        path, _, number = scope.source.rpartition(":")
        if path not in self._sources or not number.isdecimal():
            return ""
        if path not in self._lines:
            # As editors count lines: form feeds and the like end none.
            self._lines[path] = self._sources[path].replace("\r\n", "\n").split("\n")
        lines = self._lines[path]
        return lines[int(number) - 1].strip() if 0 < int(number) <= len(lines) else ""


# What the page's views show of a launch, as JSON values of bounded size.


def all_sections(timeline: Timeline, report: LaunchReport) -> dict[str, Any]:
    """One for each view, by its name. ``report`` is that of this timeline."""
    summary = report.summary
    return {
        "overview": launch_overview(timeline, report),
        "heat_map": sm_heat_map(timeline, summary),
        "scopes": scope_pictures(timeline, summary),
        "source": source_lines(timeline, summary),
        "ttgir": ttgir_lines(timeline),
    }


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
