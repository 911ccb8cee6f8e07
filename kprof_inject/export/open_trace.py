"""Open a trace in the Perfetto UI, as Perfetto's own ``open_trace_in_ui`` does.

The UI is a page in the user's browser, which fetches the trace from this machine; it sends it nowhere. A server on
127.0.0.1 has this one file, under a random path, for that page alone, and ends once the file was fetched.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import threading
import webbrowser
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import numpy as np
from msgspec import Struct

from kprof_inject.errors import KprofError
from kprof_inject.export.drawing import process_of, program_names
from kprof_inject.timeline.axis import place_launches
from kprof_inject.timeline.records import recorded_warps
from kprof_inject.timeline.timeline import Timeline

_UI = "https://ui.perfetto.dev"
_HOST = "127.0.0.1"
PORT = 9001
"""The only port of this machine from which the UI may fetch (``ui/src/frontend/index.ts`` of Perfetto's sources)."""
MAX_MINUTES = 10.0  # to fetch the trace

# Without any of these, Python opens a browser for the terminal, which does not support WebAssembly.
_SIGNS_OF_A_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_WARPS = 16  # about as many as fit on a screen


class Opening(Struct, frozen=True):
    """The slice of a launch, and the tracks to expand so that its first warps are visible in the default layout."""

    start_ns: int
    duration_ns: int
    tracks: tuple[str, ...]


def last_launch(timelines: Sequence[Timeline]) -> Opening | None:
    """Return the opening for the launch that began last; None if no CTA of any launch ran."""
    placed = place_launches(timelines)
    spans = [(span, number) for number, launch in enumerate(placed) if (span := launch.span_ns())]
    if not spans:
        return None
    (begin_ns, end_ns), number = max(spans)
    launch = placed[number]
    program = program_names(placed).get(process_of(launch))
    around = (program, launch.title) if program else (launch.title,)
    ctas = np.sort(launch.timeline.ctas[["sm", "cta"]], order=["sm", "cta"])
    first = ctas[: max(_WARPS // len(recorded_warps(launch.timeline.launch)), 1)]
    sms, cta_labels = np.unique(first["sm"]).tolist(), [f"CTA {cta}" for cta in first["cta"].tolist()]
    return Opening(begin_ns, end_ns - begin_ns, (*around, *(f"SM {sm}" for sm in sms), *cta_labels))


class TraceServer(ThreadingHTTPServer):
    """A server of one trace at a random path. Its ``with`` block frees the port; ``KprofError`` if that is taken."""

    daemon_threads = True

    def __init__(self, trace: Path) -> None:
        self.trace = trace
        self.trace_path = f"/{secrets.token_urlsafe()}/{quote(trace.name, safe='')}"
        self.fetched = threading.Event()
        try:
            super().__init__((_HOST, PORT), _Handler)
        except OSError as error:
            hint = f"end what uses it; or drag {trace} onto {_UI}"
            raise KprofError(f"cannot use port {PORT}: {error.strerror}", hint=hint) from None

    def address(self, shown: Opening | None) -> str:
        """Return the address of the UI with the trace, opened on what is to be ``shown``."""
        # https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui
        arguments = [f"url=http://{_HOST}:{self.server_address[1]}{self.trace_path}"]
        if shown is not None:
            # Selecting the slice, too, would scroll to it without adapting the width of the window.
            # https://perfetto.dev/docs/visualization/commands-automation-reference
            pattern = f"^({'|'.join(map(re.escape, shown.tracks))})$"
            commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [pattern]}]
            arguments += [
                f"visStart={shown.start_ns}",
                f"visEnd={shown.start_ns + shown.duration_ns}",
                f"startupCommands={quote(json.dumps(commands))}",
            ]
        return f"{_UI}/#!/?{'&'.join(arguments)}"

    def serve_until_fetched(self) -> None:
        """Serve the trace until a browser has it. Raises ``KprofError`` if none has it in time."""
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()
        try:
            if not self.fetched.wait(60 * MAX_MINUTES):
                hint = f"drag {self.trace} onto {_UI}"
                raise KprofError(f"no browser has fetched the trace within {MAX_MINUTES:g} minutes", hint=hint)
        finally:
            self.shutdown()


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer
    timeout = 10

    def do_GET(self) -> None:
        if self.path != self.server.trace_path:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with self.server.trace.open("rb") as file:
            self.send_response(HTTPStatus.OK)
            self.send_header("Access-Control-Allow-Origin", _UI)
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Length", str(os.fstat(file.fileno()).st_size))
            self.send_header("Content-Type", "application/octet-stream")
            self.end_headers()
            shutil.copyfileobj(file, self.wfile)
        self.server.fetched.set()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def open_page(address: str) -> bool:
    """Open a page in the user's browser; return whether there is one."""
    return any(map(os.environ.get, _SIGNS_OF_A_BROWSER)) and webbrowser.open_new_tab(address)


def tunnel() -> str:
    """Return the command by which a browser on another machine reaches the server."""
    return f"ssh -L {PORT}:{_HOST}:{PORT} {socket.gethostname()}"
