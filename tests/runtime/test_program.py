"""How a program is run: its signals and its stdin."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from snapshots import check

from kprof_inject.runtime import program as module
from kprof_inject.runtime.program import ProgramInput, run_program
from kprof_inject.runtime.session import Session

Run = Callable[[str], int]

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs a shell's script, in which ``$PPID`` is this process; gives the exit code."""
    session = Session("dump", str(tmp_path), str(tmp_path / "reports"))
    before = {number: signal.getsignal(number) for number in NUMBERS}
    yield lambda script: run_program(["sh", "-c", script], session, tmp_path / "cache", ProgramInput())
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_a_signal_to_us_is_the_programs(run: Run, name: str) -> None:
    began = time.monotonic()
    assert run(f"kill -{name} $PPID; exec sleep 20") == 128 + signal.Signals[f"SIG{name}"]
    assert time.monotonic() - began < 10


def test_we_wait_for_a_program_that_takes_its_time_to_end(run: Run, tmp_path: Path) -> None:
    script = f"trap 'sleep 0.2; touch {tmp_path}/saved; exit 0' TERM; kill -TERM $PPID; sleep 20 & wait"
    assert run(script) == 143
    assert (tmp_path / "saved").exists()


def test_each_one_is_passed_on(run: Run, tmp_path: Path) -> None:
    """A program that wants to be told twice is."""
    twice = "kill -TERM $PPID; sleep 0.2; kill -TERM $PPID; sleep 0.2"
    assert run(f"trap 'echo >> {tmp_path}/told' TERM; {twice}; exit 0") == 143
    assert (tmp_path / "told").read_text() == "\n\n"


def test_ctrl_c_is_not_passed_on(run: Run) -> None:
    """A terminal sends it to both."""
    assert run("kill -INT $PPID; sleep 0.1; exit 3") == 3


def test_what_our_caller_ignores_stays_ignored(run: Run) -> None:
    everything = "for s in INT TERM HUP; do kill -$s $$ $PPID; done; exit 3"
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
    assert run(everything) == 3
    assert {signal.getsignal(number) for number in NUMBERS} == {signal.SIG_IGN}


def test_else_the_program_begins_with_the_defaults(run: Run) -> None:
    def theirs(*_: object) -> None: ...

    for number in NUMBERS:
        signal.signal(number, theirs)
    for name in ("INT", "TERM", "HUP"):
        assert run(f"kill -{name} $$; exit 3") == 128 + signal.Signals[f"SIG{name}"]
    assert {signal.getsignal(number) for number in NUMBERS} == {theirs}


@pytest.mark.parametrize(
    ("first_line", "mode", "flags"),
    [
        ("#!/usr/bin/python3 -O", 0o755, (1, 0)),
        ("#!/usr/bin/env -S python3.99 -OO -B", 0o755, (2, 1)),
        ("#!/usr/bin/env python3", 0o755, (0, 0)),
        ("#!/bin/sh -O", 0o755, (0, 0)),
        ("#!/usr/bin/python3 -O", 0o644, (0, 0)),
    ],
)
def test_a_script_has_the_options_of_its_first_line_as_where_it_is_run_by_name(
    tmp_path: Path, first_line: str, mode: int, flags: tuple[int, int]
) -> None:
    script = tmp_path / "prog.py"
    asked = "(sys.flags.optimize, sys.flags.dont_write_bytecode)"
    script.write_text(f"{first_line}\nimport sys\nsys.exit(7 * ({asked} == {flags!r}))\n")
    script.chmod(mode)
    session = Session("dump", str(tmp_path), str(tmp_path))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        assert run_program([str(script)], session, tmp_path / "cache", ProgramInput()) == 7


def test_a_bare_script_is_run_by_our_python(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(f"import sys; sys.exit(5 * (sys.executable == {sys.executable!r}))")
    session = Session("dump", str(tmp_path), str(tmp_path / "reports"))
    assert run_program([str(tmp_path / "prog.py")], session, tmp_path / "cache", ProgramInput()) == 5


# The stdin of a program that is run more than once

Given = Callable[[int], ProgramInput]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    """The input of programs if this file were our stdin."""

    def as_stdin(file: int) -> ProgramInput:
        monkeypatch.setattr(module, "_STDIN", file)
        return ProgramInput()

    return as_stdin


def test_a_file_is_read_from_where_we_got_it(given: Given, tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(b"123456")
    file = os.open(tmp_path / "numbers", os.O_RDONLY)
    assert os.read(file, 2) == b"12"
    program_input = given(file)
    assert program_input.refusal == ""
    for _ in range(2):
        program_input.rewind()
        assert os.read(file, 9) == b"3456"
    os.close(file)


def test_what_is_no_file_and_no_pipe_is_the_same_for_each_run(given: Given) -> None:
    closed = os.dup(0)
    os.close(closed)
    terminal, _ = os.openpty()
    for file in (terminal, os.open(os.devnull, os.O_RDONLY), closed):
        program_input = given(file)
        program_input.rewind()
        assert program_input.refusal == ""


def test_pipes_and_sockets_are_read_only_once(given: Given) -> None:
    """An empty pipe is the same for each run, such as the stdin of a job."""
    reads, writes = os.pipe()
    ours, theirs = socket.socketpair()
    unbound = socket.socket()
    with ours, theirs, unbound:
        assert [given(file).refusal for file in (reads, ours.fileno(), unbound.fileno())] == ["", "", ""]
        os.write(writes, b"1")
        theirs.send(b"1")
        refusals = {given(file).refusal for file in (reads, ours.fileno())}
    check("runtime/program_input", "\n".join(refusals), "pipe")
