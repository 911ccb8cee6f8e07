"""The page as a file, written piece by piece."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from kprof_inject.analysis.async_work.in_flight import recorded_in_flight
from kprof_inject.analysis.launch import LaunchAnalysis
from kprof_inject.analysis.program import Report
from kprof_inject.errors import printable
from kprof_inject.files import write_chunks
from kprof_inject.kernel_names import without_inner_types
from kprof_inject.quantities import listed
from kprof_inject.report.facts import Answers, launch_row
from kprof_inject.report.html.columns import flight_bytes, scope_bytes, shares, shown_of
from kprof_inject.report.html.data import kernel_rows, launch_facts, launch_sections, page_values
from kprof_inject.report.html.pictures import ScopePictures

MAX_SCOPES = 200_000  # a page is meant to be sent to others: this number takes about 1 MB

_MAX_HELD = 1 << 16
"""With at most this many scopes, a launch is decoded once and held; a larger launch is decoded at each pass."""

# Characters of a module that a data: URL may have as they are; "#" and "%" end it or mean something else.
_PLAIN = " !$&'()*+,-./:;<=>?@[]^_`{|}~"
_MAX_NAMES = 3
_MAX_WORK = 50


def write_html(path: Path, report: Report, *, max_scopes: int = MAX_SCOPES) -> int:
    """Replace ``path`` by one page about all launches, and return its size in bytes; raises ``OSError``.

    The page loads nothing. Of each launch it has the scopes of ``picked_ctas``; the launches of the kernels' rows share
    the room for ``max_scopes`` scopes of others.
    """
    return write_chunks(path, _page(report, max_scopes))


def _page(report: Report, max_scopes: int) -> Iterator[bytes]:
    head, _, tail = _text_of("page.html").partition("{{data}}")
    analyses, answers, program = [one.analysis for one in report.launches], Answers(report), report.program
    inline = _inline_elements(analyses)
    yield _filled(head, inline).encode()
    kernels = kernel_rows(program, report)
    launches, elements = list[dict[str, Any]](), list[dict[str, str]]()
    opened = {row.launch for row in kernels}
    wanted = [one.timeline.scope_count if index in opened else 0 for index, one in enumerate(analyses)]
    written: dict[bytes, str] = {}
    for index, (analysis, share) in enumerate(zip(analyses, shares(wanted, max_scopes), strict=True)):
        timeline, answer = analysis.timeline, answers.on(report.launches[index])
        in_flight = recorded_in_flight(timeline)
        held = [*timeline.blocks()] if timeline.scope_count <= _MAX_HELD else []
        shown = shown_of(timeline, held or timeline.blocks(), share)
        pictures = ScopePictures(analysis.summary)
        # One pass over the blocks serves both.
        yield _data_element(
            f"launch-{index}-scopes", scope_bytes(timeline, pictures.seeing(held or timeline.blocks()), shown.ctas)
        )
        if in_flight is not None and in_flight.kinds:
            yield _data_element(f"launch-{index}-flights", flight_bytes(timeline, in_flight, shown.ctas))
        sections = page_values(launch_sections(analysis))
        # The launches of a kernel share what does not depend on times.
        own = {key: sections.pop(key) for key in ("overview", "heat_map")}
        own["timed"] = [file.pop("timed") for file in sections["source"]]
        facts = page_values(launch_facts(analysis, answer, shown, pictures.drawn(), in_flight))
        sections |= {"scopes": [facts.pop("scopes"), facts.pop("colours")], "launch": {"facts": facts, **own}}
        elements.append({})
        for key, section in sections.items():
            text = _json_bytes(section)
            if text not in written:
                written[text] = f"{key}-{len(written)}"
                yield _data_element(written[text], [text])
            elements[-1][key] = written[text]
        named = {"title": answer.title, "place_name": answer.place_name}
        launches.append(page_values(launch_row(report.launches[index], analysis)) | page_values(named))
    page = {
        # Those with most to win first, and what else the GPU did in ``whole_ns``, None if that is unknown.
        "kernels": kernels,
        "others": [replace(work, name=without_inner_types(work.name)) for work in program.others[:_MAX_WORK]],
        "whole_ns": program.whole_ns,
        "launches": launches,
        # For each launch the elements with its sections, by name; launches with equal ones share an element.
        "sections": elements,
    }
    yield _data_element("report", [_json_bytes(page_values(page))])
    yield _filled(tail, inline).encode()


def _inline_elements(analyses: Sequence[LaunchAnalysis]) -> dict[str, str]:
    # The style of the shell comes first.
    sheets = sorted((path.name for path in _ROOT.glob("*.css")), key=lambda name: (name != "style.css", name))
    style, boot = "\n".join(map(_text_of, sheets)), _text_of("boot.js")
    # Each module is a data: URL, so that modules load without a network or a server; not in base64, which does not
    # compress. ``boot.js`` puts the import map in before it loads the first module.
    names = sorted(path.relative_to(_ROOT).with_suffix("").as_posix() for path in _ROOT.rglob("*.js"))
    modules = {
        f"#{name}": f"data:text/javascript;charset=utf-8,{quote(_text_of(f'{name}.js'), safe=_PLAIN)}"
        for name in names
        if name != "boot"
    }
    imports = json.dumps({"imports": modules}, ensure_ascii=False)
    kernels = list(dict.fromkeys(printable(one.launch.kernel.name) for one in analyses))
    return {
        "policy": content_policy(style, (imports, boot)),
        "title": html.escape(f"{listed(kernels, _MAX_NAMES) or 'no launch'} · kprof-inject"),
        "style": style,
        "modules": _data_element("modules", [imports.encode()]).decode(),
        "boot": boot,
    }


def _filled(template: str, values: dict[str, str]) -> str:
    return re.sub(r"\{\{(\w+)\}\}", lambda name: values[name[1]], template)


_ROOT = Path(__file__).with_name("assets")


def _text_of(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


def content_policy(style: str, scripts: Sequence[str] = ()) -> str:
    """Return the Content-Security-Policy of a page with only these inline elements, and data: modules with scripts."""
    may_run = f"script-src {' '.join(map(_source_hash, scripts))} data:; " if scripts else ""
    return (
        f"default-src 'none'; {may_run}style-src {_source_hash(style)}; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data_element(identifier: str, parts: Iterable[bytes]) -> bytes:
    # A script element of this type runs in no browser; ``identifier`` must need no escaping.
    packer = zlib.compressobj()
    packed = base64.b64encode(b"".join([*map(packer.compress, parts), packer.flush()]))
    return b'<script type="application/octet-stream;base64" id="%s">%s</script>\n' % (identifier.encode(), packed)


def _json_bytes(values: object) -> bytes:
    return json.dumps(values, separators=(",", ":"), allow_nan=False).encode()
