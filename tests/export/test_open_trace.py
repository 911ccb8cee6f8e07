"""``trace --open``: a server of one trace for the Perfetto UI, and how it ends."""

from __future__ import annotations

import shutil
import socket
import threading
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest
from programs.child import REPO

from kprof_inject.cli.trace import command
from kprof_inject.errors import KprofError
from kprof_inject.export import open_trace
from kprof_inject.export.open_trace import TraceServer, open_page

UI = "https://ui.perfetto.dev"


@pytest.fixture(autouse=True)
def free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual one may be taken here. Of whoever runs the tests: a browser would open on their screen."""
    monkeypatch.setattr(open_trace, "PORT", 0)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "a trace.json"
    path.write_text('{"traceEvents": []}')
    return path


def test_the_ui_alone_may_read_the_trace_and_the_server_ends(trace: Path) -> None:
    with TraceServer(trace) as server:
        serving = threading.Thread(target=server.serve_until_fetched)
        serving.start()
        url = server.address(None).removeprefix(f"{UI}/#!/?url=")
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        for path in ("/", "/a%20trace.json", f"{parts.path}/", f"{parts.path}?"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"http://{parts.netloc}{path}")
        with urlopen(url) as answer:
            assert answer.read() == trace.read_bytes()
            assert answer.headers["Access-Control-Allow-Origin"] == UI
        serving.join(60)
        assert not serving.is_alive()
    with pytest.raises(OSError, match="refused"):
        urlopen(url)


def test_each_server_has_a_path_of_its_own(trace: Path) -> None:
    with TraceServer(trace) as one, TraceServer(trace) as other:
        assert one.trace_path != other.trace_path
        assert len(one.trace_path) > 40


def test_a_port_in_use_is_named(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(open_trace, "PORT", port)
        with pytest.raises(KprofError, match=f"cannot use port {port}: ") as refused:
            TraceServer(trace)
    assert UI in refused.value.hint


def test_a_capture_is_written_and_its_last_launch_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(open_trace, "MAX_MINUTES", 0.001)
    capture = Path(shutil.copytree(REPO / "tests/captures/matmul", tmp_path / "capture"))
    with pytest.raises(KprofError, match="no browser has fetched the trace"):
        command.main([str(capture), "--open"], standalone_mode=False)
    out, err = capsys.readouterr()
    assert (capture / "trace.json").is_file()
    assert "no browser was found; open this address in one:" in err and " ssh -L " in err
    found = parse_qs(out.strip().removeprefix(f"{UI}/#!/?"))
    # The launch as a whole, behind the host's call.
    assert (found["visStart"], found["visEnd"]) == (["138621"], ["152893"])
    assert "217" in found["startupCommands"][0]


def test_what_the_ui_does_not_show_is_refused() -> None:
    with pytest.raises(Exception, match="--open shows a trace"):
        command.main([str(REPO / "tests/captures/matmul"), "--open", "-o", "t.csv"], standalone_mode=False)


def test_the_users_browser_gets_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(open_trace.webbrowser, "open_new_tab", lambda address: not opened.append(address))
    assert not open_page("http://x")
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_page("http://x")
    assert opened == ["http://x"]
