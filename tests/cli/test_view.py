"""``view``: a child process that serves a trace, and how it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from command_line import CommandLine, without_sizes
from programs.child import REPO, clean_environment
from snapshots import check

from kprof_inject.cli.view import command
from kprof_inject.errors import KprofError

DEMO = REPO / "tests/captures/matmul"
# Of whoever runs the tests; a browser would open on their screen.
SCREEN = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


@contextmanager
def view(kprof: CommandLine, *arguments: str, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """``kprof-inject view`` at a free port, until the block ends."""
    clean = {name: value for name, value in clean_environment(kprof.folder).items() if name not in SCREEN}
    child = subprocess.Popen(
        [sys.executable, "-m", "kprof_inject", "view", "--port", "0", *arguments],
        cwd=kprof.folder,
        env={**clean, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Not all that start tests let a child have Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def address_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def fetch(address: str, path: str = "") -> bytes:
    with urlopen(urljoin(address, path), timeout=30) as answer:
        return bytes(answer.read())


@pytest.fixture
def capture(kprof: CommandLine) -> Path:
    return Path(shutil.copytree(DEMO, kprof.folder / "capture"))


@pytest.fixture
def trace(kprof: CommandLine) -> bytes:
    data = b'{"traceEvents": []}'
    (kprof.folder / "t.json").write_bytes(data)
    return data


def test_a_capture_is_served_as_a_perfetto_trace(kprof: CommandLine, capture: Path) -> None:
    with view(kprof, "capture", "--no-browser") as child:
        address = address_of(child)
        assert b"<title>Perfetto UI</title>" in fetch(address, "ui/")
        # The launch as a whole, behind the host's call.
        assert b'"visStart=138621", "visEnd=152893"' in fetch(address)
        served = fetch(address, "capture.pftrace")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert kprof("trace", "capture", "-o", "expected.pftrace").exit_code == 0
    assert served == (kprof.folder / "expected.pftrace").read_bytes()
    assert (child.returncode, out) == (130, "")
    port = urlsplit(address).port
    assert f" ssh -L {port}:127.0.0.1:{port} " in err
    check("cli/view", without_sizes(tunnel(err).replace(str(port), "PORT")), "a capture that is served")


def test_a_file_is_served_as_it_is(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json") as child:
        address = address_of(child)
        port = str(urlsplit(address).port)
        assert fetch(address, "t.json") == trace
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    check("cli/view", tunnel(err).replace(port, "PORT"), "no browser")


def test_once_ends_when_the_trace_was_fetched(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json", "--once", "--no-browser") as child:
        address = address_of(child)
        for guess in ("/", "/t.json", "/localtrace", "/vizviewer_info"):
            with pytest.raises(HTTPError):
                fetch(address, guess)
        assert fetch(address, "t.json") == trace
        assert child.wait(timeout=60) == 0


def test_once_does_not_wait_forever(
    kprof: CommandLine, trace: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kprof_inject.cli.view._MAX_MINUTES_TO_FETCH", 0.001)
    with pytest.raises(KprofError, match="no browser has fetched"):
        command.main([str(kprof.folder / "t.json"), "--port", "0", "--no-browser", "--once"], standalone_mode=False)
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_users_browser_gets_the_address(kprof: CommandLine, trace: bytes) -> None:
    browser = kprof.folder / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened.part && mv opened.part opened\n')
    browser.chmod(0o755)
    with view(kprof, "t.json", env={"BROWSER": f"{browser} %s"}) as child:
        address = address_of(child)
        opened = kprof.folder / "opened"
        deadline = time.monotonic() + 60
        while not opened.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert opened.read_text().strip() == address
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert "open this address" not in err


def tunnel(messages: str) -> str:
    """Return messages without this machine's name and its user's, to which one has the tunnel."""
    return re.sub(r"(?<=:127\.0\.0\.1:)(\d+) \S+", r"\1 USER@HOST", messages)


def files_in(*folders: Path) -> list[Path]:
    return sorted(path for folder in folders for path in folder.rglob("*"))


def test_nothing_is_written_into_the_capture_or_left_behind(kprof: CommandLine, capture: Path) -> None:
    temporary = kprof.folder / "tmp"
    temporary.mkdir()
    before = files_in(capture, temporary)
    with view(kprof, "capture", "--no-browser", env={"TMPDIR": str(temporary)}) as child:
        address = address_of(child)
        assert files_in(capture, temporary) == before
        assert len(fetch(address, "capture.pftrace")) > 1_000_000
        child.kill()
        child.communicate(timeout=60)
    assert files_in(capture, temporary) == before


@pytest.fixture
def workspace(kprof: CommandLine) -> Path:
    """With two captures."""
    folder = kprof.folder / "ws"
    (folder / "captures").mkdir(parents=True)
    (folder / "workspace.json").write_text('{"version": 1}')
    for name in ("001", "002"):
        shutil.copytree(DEMO, folder / "captures" / name)
    return folder


def test_a_workspaces_last_capture_is_shown(kprof: CommandLine, workspace: Path) -> None:
    with view(kprof, "ws", "--no-browser") as child:
        assert len(fetch(address_of(child), "ws.pftrace")) > 1_000_000


def test_a_temporary_folder_that_takes_no_file_is_an_error_with_a_way_out(kprof: CommandLine, capture: Path) -> None:
    capture = capture.rename(kprof.folder / ("c" * 250))
    ended = kprof("view", capture.name, "--port", "0")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: cannot write ")
    assert f": kprof-inject trace {capture.name} -o FILE.pftrace\n" in ended.stderr
    said = re.sub(r"\S+/(?=c+\.pftrace: )", "", ended.stderr).replace(capture.name, "CAPTURE")
    check("cli/view", said, "a name that is too long")


def test_a_pipe_is_refused(kprof: CommandLine) -> None:
    os.mkfifo(kprof.folder / "pipe")
    ended = kprof("view", "pipe", "--port", "0")
    assert (ended.exit_code, ended.stdout) == (1, "")
    check("cli/view", ended.stderr, "pipe")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", b"kernel,variant\n"),
        ("gone", None),
        ("b.bin", b"\x01\0\0\0\x04\0\0\0" + b"\0" * 40),
        ("README.md", b"# Read me\n"),
        ("t.json", b""),
    ],
)
def test_what_is_no_trace_is_refused(kprof: CommandLine, name: str, content: bytes | None) -> None:
    if content is not None:
        (kprof.folder / name).write_bytes(content)
    ended = kprof("view", name, "--port", "0")
    assert ended.exit_code == 1
    check("cli/view", ended.stderr, name)
    assert ended.stdout == ""


def test_a_port_in_use_is_an_error(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json", "--no-browser") as child:
        port = str(urlsplit(address_of(child)).port)
        ended = kprof("view", "t.json", "--port", port)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert port in ended.stderr
    check("cli/view", ended.stderr.replace(port, "PORT"), "a port in use")


def test_without_viztracer_there_is_one_port(kprof: CommandLine, trace: bytes) -> None:
    hidden = kprof.folder / "hidden/viztracer"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    path = os.pathsep.join([str(hidden.parent), str(REPO)])
    ended = kprof("view", "t.json", "--port", "9002", env={"PYTHONPATH": path})
    assert (ended.exit_code, ended.stdout) == (2, "")
    check("cli/view", ended.stderr, "--port without viztracer")
