"""The page as a file, written piece by piece."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program import Report
from kprof_inject.analysis.summary import PartitionSummary
from kprof_inject.capture.encoding import rounded
from kprof_inject.capture.source_text import SourceText, sources_of, without_folders
from kprof_inject.errors import printable
from kprof_inject.files import write_chunks
from kprof_inject.quantities import listed
from kprof_inject.report.facts import Answer, Answers
from kprof_inject.report.html.code import source_lines, ttgir_lines
from kprof_inject.report.html.machine_code import launch_machine_code
from kprof_inject.report.html.overview_tab import kernel_rows, launch_overview, work_rows
from kprof_inject.report.html.page_schema import LaunchMeta, LaunchSections, PageData, PartitionMeta, ScopeMeta
from kprof_inject.report.html.pictures import ScopePictures, sm_heat_map
from kprof_inject.report.html.scope_columns import Shown, flight_bytes, picked_ctas, scope_bytes, shares, shown_of
from kprof_inject.report.html.stalls import launch_stalls
from kprof_inject.scope_colours import scope_colours
from kprof_inject.timeline.partitions import by_warp
from kprof_inject.version import __version__

MAX_SCOPES = 200_000
"""A page is meant to be sent to others: this number takes about 1 MB."""

_MAX_HELD = 1 << 16
"""With at most this many scopes, a launch is decoded once and held; a larger launch is decoded at each pass."""

# Characters of a module that a data: URL may have as they are; "#" and "%" end it or mean something else.
_PLAIN = " !$&'()*+,-./:;<=>?@[]^_`{|}~"
_MAX_NAMES = 3


def write_html(path: Path, report: Report, *, max_scopes: int = MAX_SCOPES) -> int:
    """Replace ``path`` by one page about all launches, and return its size in bytes; raises ``OSError``.

    The page loads nothing. Of each launch it has the scopes of ``picked_ctas``; the launches of the kernels' rows share
    the room for ``max_scopes`` scopes of others.
    """
    return write_chunks(path, _page(report, max_scopes))


def _page(of: Report, max_scopes: int) -> Iterator[bytes]:
    head, _, tail = _text_of("page.html").partition("{{data}}")
    reports, answers, program = [one.analysis for one in of.launches], Answers(of), of.program
    inline = _inline_elements(reports)
    yield _filled(head, inline).encode()
    rows = kernel_rows(program, of)
    opened = {row.launch for row in rows}
    wanted = [report.timeline.scope_count if index in opened else 0 for index, report in enumerate(reports)]
    metas: list[LaunchMeta] = []
    sections: list[dict[str, str]] = []
    written: dict[bytes, str] = {}
    for index, (report, share) in enumerate(zip(reports, shares(wanted, max_scopes), strict=True)):
        timeline, answer = report.timeline, answers.on(of.launches[index])
        in_flight = recorded_in_flight(timeline)
        held = [*timeline.blocks()] if timeline.scope_count <= _MAX_HELD else []
        shown = shown_of(timeline, held or timeline.blocks(), share)
        pictures = ScopePictures(report.summary)
        # One pass over the blocks serves both.
        yield from _data_element(
            f"launch-{index}-scopes", scope_bytes(timeline, pictures.seeing(held or timeline.blocks()), shown.ctas)
        )
        if in_flight is not None and in_flight.kinds:
            yield from _data_element(f"launch-{index}-flights", flight_bytes(timeline, in_flight, shown.ctas))
        parts = _plain(all_sections(report, answer, pictures))
        parts["timed"] = [file.pop("timed") for file in parts["source"]]
        sections.append({})
        for name, section in parts.items():
            text = _json_bytes(section)
            if text not in written:
                written[text] = f"{name}-{len(written)}"
                yield from _data_element(written[text], [text])
            sections[-1][name] = written[text]
        metas.append(launch_meta(report, answer, shown, in_flight.kinds if in_flight else ()))
    page = PageData(
        version=__version__,
        launches=metas,
        sections=sections,
        kernels=rows,
        others=work_rows(program),
    )
    yield from _data_element("report", [_json_bytes(_plain(page))])
    yield _filled(tail, inline).encode()


def all_sections(report: LaunchAnalysis, answer: Answer, pictures: ScopePictures) -> LaunchSections:
    """Return each view's data of a launch; ``pictures`` must have seen all blocks of the timeline."""
    timeline, summary, stalls = report.timeline, report.summary, report.stalls
    return LaunchSections(
        overview=launch_overview(report, answer),
        heat_map=sm_heat_map(timeline, summary),
        scopes=pictures.drawn(),
        source=source_lines(timeline, summary, report.slopes, stalls),
        ttgir=ttgir_lines(timeline, stalls, launch_machine_code(report)),
        stalls=launch_stalls(stalls, sources_of(report.launch.kernel)) if stalls else None,
    )


def _inline_elements(reports: Sequence[LaunchAnalysis]) -> dict[str, str]:
    """Return the inline elements by their names in the template, and the policy that allows these alone."""
    style, imports, boot = _styles(), _import_map(), _text_of("boot.js")
    kernels = list(dict.fromkeys(printable(report.launch.kernel.name) for report in reports))
    return {
        "policy": content_policy(style, (imports, boot)),
        "title": html.escape(f"{listed(kernels, _MAX_NAMES) or 'no launch'} · kprof-inject"),
        "style": style,
        "modules": b"".join(_data_element("modules", [imports.encode()])).decode(),
        "boot": boot,
    }


def _filled(template: str, values: dict[str, str]) -> str:
    parts = template.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, _, rest = part.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def launch_meta(report: LaunchAnalysis, answer: Answer, shown: Shown, works: tuple[str, ...]) -> LaunchMeta:
    """Return what the page needs to know of a launch before its scopes are read."""
    timeline, summary = report.timeline, report.summary
    partitions = by_warp(timeline.partitions)
    of_warps = [partitions.get(warp, ()) for warp in timeline.warps]
    return LaunchMeta(
        kernel=answer.title,
        variant=summary.variant,
        launch=summary.launch,
        graph=summary.graph,
        place=answer.place_name,
        device=report.launch.device_name,
        grid=summary.grid,
        warps_per_cta=summary.warps,
        warps=timeline.warps,
        ctas=summary.ctas,
        first_ns=str(timeline.first_ns),
        span_ns=timeline.last_ns - timeline.first_ns,
        duration_ns=summary.duration_ns if summary.ctas else None,
        run_times=answer.run_times_text,
        clock_ghz=timeline.clock.clock_hz / 1e9,
        clock_source=summary.clock_source,
        cta_name=summary.cta_name,
        warp_name=summary.warp_name,
        scope_count=timeline.scope_count,
        shown_scopes=shown.scopes,
        shown_ctas=len(timeline.ctas) if shown.ctas is None else int(shown.ctas.sum()),
        partitions=tuple(map(_partition, summary.partitions)),
        partition_of_warp=tuple(_joined(partition.name for partition in of_warp) for of_warp in of_warps),
        function_of_warp=tuple(_joined(partition.function for partition in of_warp) for of_warp in of_warps),
        scopes=tuple(_scopes(report)),
        flight_works=works,
        picked_ctas=picked_ctas(timeline),
    )


def _joined(names: Iterable[str]) -> str:
    return printable(", ".join(filter(None, names)))


def _partition(partition: PartitionSummary) -> PartitionMeta:
    return PartitionMeta(
        title=printable(partition.title),
        scopes=partition.scopes,
        warps=len(partition.warps),
        whole_ns=partition.whole_ns,
        outside_ns=partition.outside_ns,
    )


def _scopes(report: LaunchAnalysis) -> Iterator[ScopeMeta]:
    timeline, text = report.timeline, SourceText(sources_of(report.launch.kernel))
    colours = scope_colours(scope.kind for scope in timeline.table.scopes)
    scopes = zip(timeline.table.scopes, report.summary.scopes, timeline.lanes.tolist(), colours, strict=True)
    for scope, summary, lane, colour in scopes:
        yield ScopeMeta(
            name=summary.distinct_name,
            kind=scope.kind,
            colour=colour.rgb,
            source=without_folders(scope.source),
            path=scope.source,
            text=text.line(scope.source).strip(),
            called_from=tuple(map(without_folders, scope.called_from)),
            parent=scope.parent,
            lane=lane,
            share=summary.share,
            self_name="self" if summary.between_iterations_ns is None else "between iterations",
            tags=tuple(tag.name for tag in scope.tags),
        )


_ROOT = Path(__file__).with_name("assets")


def _text_of(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def _styles() -> str:
    """Return the text of all of ``assets/*.css``, that of the shell first."""
    names = sorted((path.name for path in _ROOT.glob("*.css")), key=lambda name: (name != "style.css", name))
    return "\n".join(map(_text_of, names))


def _import_map() -> str:
    """Return an import map with each module as a data: URL, so that modules load without a network or a server.

    The page has it compressed, and ``boot.js`` puts it in before it loads the first module.
    """
    names = sorted(path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.rglob("*.js"))
    # Not in base64, which does not compress.
    modules = {
        f"#{name}": f"data:text/javascript;charset=utf-8,{quote(_text_of(f'{name}.js'), safe=_PLAIN)}"
        for name in names
        if name != "boot"
    }
    return json.dumps({"imports": modules}, ensure_ascii=False)


def content_policy(style: str, scripts: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy of a page with only these inline elements.

    The browser runs them, and modules from data: URLs if there are scripts; it loads and sends nothing.
    """
    may_run = f"script-src {' '.join(map(_source_hash, scripts))} data:; " if scripts else ""
    return (
        f"default-src 'none'; {may_run}style-src {_source_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    """Return the policy's name for an inline element with exactly this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_TYPE = "application/octet-stream;base64"
_LEVEL = 6
# Base64 makes 4 characters of 3 bytes, so whole triples can be encoded separately.
_TRIPLE = 3
_AT_ONCE = _TRIPLE << 16


def _data_element(identifier: str, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the joined parts, compressed, in base64, in a script element that no browser runs.

    ``identifier`` must be plain text that needs no escaping.
    """
    yield f'<script type="{_TYPE}" id="{identifier}">'.encode()
    left = b""
    for packed in _packed(parts):
        left += packed
        if len(left) >= _AT_ONCE:
            whole = len(left) // _TRIPLE * _TRIPLE
            yield base64.b64encode(left[:whole])
            left = left[whole:]
    yield base64.b64encode(left)
    yield b"</script>\n"


def _packed(parts: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(_LEVEL)
    for part in parts:
        yield packer.compress(part)
    yield packer.flush()


def _plain(record: msgspec.Struct) -> dict[str, Any]:
    # numpy's numbers become Python's.
    plain: dict[str, Any] = msgspec.to_builtins(record, enc_hook=lambda number: number.item())
    return plain


def _json_bytes(values: object) -> bytes:
    return json.dumps(rounded(values), separators=(",", ":"), allow_nan=False).encode()
