"""The stdin of a program that is run more than once: each run gets the same, or there is no second run."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from snapshots import check

from kprof_inject.runtime import program as module
from kprof_inject.runtime.program import ProgramInput

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
