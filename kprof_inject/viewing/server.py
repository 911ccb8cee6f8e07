"""A web server for one site, on this machine alone."""

from __future__ import annotations

import errno
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kprof_inject.errors import KprofError
from kprof_inject.viewing.site import Site

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

# The offline UI loads its parts when it needs them, some of them behind the trace.
_QUIET_SECONDS = 2.0

# How long Ctrl-C takes at most.
_SECONDS_TO_END = 0.1


class TraceServer(ThreadingHTTPServer):
    """Answers for ``site``; stands at ``port``, which is a free one if it was to be 0."""

    daemon_threads = True
    # Who comes while so many wait is turned away, and tries again after a second: each file is a connection.
    request_queue_size = 128

    def __init__(self, site: Site, port: int) -> None:
        self.site = site
        self._fetched = threading.Event()
        self._last_answer = time.monotonic()
        super().__init__((_HOST, port), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that changes its mind is no fault of ours; all else is told on stderr."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def was_fetched(self) -> bool:
        """Whether a browser has the trace."""
        return self._fetched.is_set()

    def answered(self, path: str) -> None:
        """A file or text went out to its end."""
        self._last_answer = time.monotonic()
        if path == self.site.trace_path:
            self._fetched.set()

    def wait_until_fetched(self) -> None:
        """Come back when a browser has the trace, and has asked for nothing else for a while."""
        self._fetched.wait()
        while (rest := self._last_answer + _QUIET_SECONDS - time.monotonic()) > 0:
            time.sleep(rest)


@contextmanager
def serving(site: Site, port: int) -> Iterator[TraceServer]:
    """A server that answers in a thread of its own until the block ends. Raises ``KprofError`` if it cannot have the
    port."""
    try:
        server = TraceServer(site, port)
    except OSError as error:
        raise _no_port(port, error) from None
    thread = threading.Thread(target=server.serve_forever, args=(_SECONDS_TO_END,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _no_port(port: int, error: OSError) -> KprofError:
    if error.errno == errno.EADDRINUSE:
        return KprofError(
            f"port {port} is in use",
            hint="end what uses it, such as another view or trace_processor, or name another with --port",
        )
    return KprofError(f"cannot use port {port}: {error.strerror}", hint="name another with --port")


class _Handler(BaseHTTPRequestHandler):
    server: TraceServer

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""

    def _answer(self, with_body: bool) -> None:
        site = self.server.site
        if not _is_for_us(self.headers.get("Host", "")):
            self.send_error(HTTPStatus.FORBIDDEN, explain="This server answers to 127.0.0.1 and localhost alone.")
            return
        try:
            path = urlsplit(self.path).path
        except ValueError:  # brackets that are no address
            self.send_error(HTTPStatus.BAD_REQUEST)
            return
        if path in site.files:
            is_there = self._send_file(site.files[path], with_body)
        else:
            is_there = path in site.texts
            if is_there:
                self._send_head(".json", len(site.texts[path]))
                self.wfile.write(site.texts[path] if with_body else b"")
        if not is_there:
            self.send_error(HTTPStatus.NOT_FOUND)
        elif with_body:
            self.server.answered(path)

    def _send_file(self, path: Path, with_body: bool) -> bool:
        """False, and nothing was sent, if the file cannot be opened."""
        try:
            file = path.open("rb")
        except OSError:
            return False
        with file:
            size = file.seek(0, 2)
            file.seek(0)
            self._send_head(path.suffix, size)
            if with_body:
                shutil.copyfileobj(file, self.wfile)
        return True

    def _send_head(self, suffix: str, size: int) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _MEDIA_TYPES.get(suffix, "application/octet-stream"))
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in self.server.site.headers.items():
            self.send_header(name, value)
        self.end_headers()


def _is_for_us(host: str) -> bool:
    try:
        return urlsplit(f"//{host}").hostname in _OUR_NAMES
    except ValueError:  # brackets that are no address
        return False
