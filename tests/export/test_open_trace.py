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
from buffers import make_editable
from programs.child import REPO
from ranks import BEGIN_NS, Timer, decode_all, save_process
from trace_processor.processor import query
from traces import write_trace

from kprof_inject.cli.trace import command
from kprof_inject.errors import KprofError
from kprof_inject.export import open_trace
from kprof_inject.export.open_trace import TraceServer, last_launch, open_page

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


# The slice on which a trace opens, judged by the trace processor.


LAUNCHES = "SELECT ts, dur FROM slice WHERE category = 'launch' ORDER BY ts"
# Two devices that were switched on at different times: by their own timers the first's launches come last.
TIMERS = (Timer(77_000_000_000), Timer(5_000_000))


@pytest.mark.parametrize("at_ns", [(0, 90_000), (90_000, 0)])
def test_it_is_the_launch_that_began_last(tmp_path: Path, at_ns: tuple[int, int]) -> None:
    for rank, (timer, begin_ns) in enumerate(zip(TIMERS, at_ns, strict=True)):
        launches = [(timer, BEGIN_NS + begin_ns + ns) for ns in (0, 10_000)]
        save_process(tmp_path, str(rank), launches, [timer.reading(BEGIN_NS)], rank=rank)
    timelines = decode_all(tmp_path)

    write_trace(tmp_path / "trace.pftrace", timelines)

    found = last_launch(timelines)
    assert found
    assert {"ts": found.start_ns, "dur": found.duration_ns} == query(tmp_path / "trace.pftrace", LAUNCHES)[-1]
    assert found.start_ns > 90_000


def test_without_a_launch_there_is_none() -> None:
    assert last_launch([]) is None


def test_a_launch_of_which_no_cta_ran_is_not_it(tmp_path: Path) -> None:
    timer = Timer(5_000_000)
    save_process(tmp_path, "0", [(timer, BEGIN_NS), (timer, BEGIN_NS + 10_000)])
    ran, _ = decode_all(tmp_path)
    make_editable(tmp_path)
    buffer = tmp_path / "0/launch-000001.bin"
    buffer.write_bytes(bytes(buffer.stat().st_size))
    timelines = decode_all(tmp_path)
    assert [timeline.ctas.size for timeline in timelines] == [1, 0]
    assert last_launch(timelines) == last_launch([ran])
