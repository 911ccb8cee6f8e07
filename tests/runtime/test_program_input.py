"""The stdin of a program that is run more than once: each run gets the same."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from snapshots import check

from kprof_inject.runtime import program as module
from kprof_inject.runtime.program import ProgramInput, kept_input

Given = Callable[[int], ProgramInput]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Given:
    """The input of programs if this file were our stdin. What is kept is kept in ``tmp_path``."""

    def as_stdin(file: int) -> ProgramInput:
        monkeypatch.setattr(module, "_STDIN", file)
        return kept_input(tmp_path)

    return as_stdin


def read_all(file: int) -> bytes:
    return b"".join(iter(lambda: os.read(file, 1 << 16), b""))


def a_run(kept: ProgramInput, read: Callable[[int], bytes] = read_all) -> bytes:
    """What a run of a program reads."""
    with kept.for_run() as file:
        assert file is not None
        return read(file)


def pipe_with(data: bytes) -> tuple[int, int]:
    reads, writes = os.pipe()
    os.write(writes, data)
    return reads, writes


def test_each_run_reads_what_came_by_the_pipe(given: Given, tmp_path: Path) -> None:
    reads, writes = pipe_with(b"some lines\n")
    os.close(writes)
    kept = given(reads)
    assert [a_run(kept) for _ in range(3)] == [b"some lines\n"] * 3
    assert os.listdir(tmp_path) == []


def test_a_run_that_reads_more_than_the_one_before_it_gets_it(given: Given) -> None:
    reads, writes = pipe_with(b"12")
    kept = given(reads)
    assert a_run(kept, lambda file: os.read(file, 1)) == b"1"
    os.write(writes, b"34")
    os.close(writes)
    assert a_run(kept) == b"1234"
    assert a_run(kept) == b"1234"


def test_nobody_waits_for_the_end_of_a_pipe_that_stays_open(given: Given) -> None:
    reads, writes = pipe_with(b"")
    kept = given(reads)
    assert a_run(kept, lambda file: b"reads nothing") == b"reads nothing"
    os.write(writes, b"ab")
    assert a_run(kept, lambda file: os.read(file, 9)) == b"ab"
    assert a_run(kept, lambda file: os.read(file, 9)) == b"ab"


def test_more_than_pipes_hold_is_taken_only_as_it_is_read(given: Given) -> None:
    numbers = bytes(range(256)) * 8000
    reads, writes = os.pipe()
    written: list[int] = []

    def write() -> None:
        for start in range(0, len(numbers), 4096):
            written.append(os.write(writes, numbers[start : start + 4096]))
        os.close(writes)

    writer = threading.Thread(target=write)
    writer.start()
    kept = given(reads)
    assert len(a_run(kept, lambda file: os.read(file, 10))) == 10
    assert sum(written) < 400_000  # of 2 MB: two pipes and a piece
    assert a_run(kept) == numbers
    assert a_run(kept) == numbers
    writer.join()


def test_a_program_that_closes_its_stdin_ends_as_it_does(given: Given) -> None:
    reads, writes = pipe_with(b"x" * 60_000)
    kept = given(reads)
    with kept.for_run() as file:
        assert file is not None
        os.dup2(os.open(os.devnull, os.O_RDONLY), file)
        os.write(writes, b"y" * 60_000)
    os.close(writes)
    assert len(a_run(kept)) == 120_000


def test_a_file_is_read_from_where_we_got_it(given: Given, tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(b"123456")
    file = os.open(tmp_path / "numbers", os.O_RDONLY)
    assert os.read(file, 2) == b"12"
    kept = given(file)
    for _ in range(2):
        with kept.for_run() as other:
            assert (other, read_all(file)) == (None, b"3456")


def test_what_is_no_file_and_no_pipe_is_the_same_for_each_run(given: Given) -> None:
    closed = os.dup(0)
    os.close(closed)
    terminal, _ = os.openpty()
    for file in (terminal, os.open(os.devnull, os.O_RDONLY), closed):
        with given(file).for_run() as other:
            assert other is None


@pytest.mark.parametrize("why", ["too much", "full disk"])
def test_input_that_cannot_be_kept_is_refused_to_the_next_run_alone(
    given: Given, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    def full(*_: object, **__: object) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if why == "too much":
        monkeypatch.setattr(module, "MAX_KEPT_BYTES", 5)
    else:
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
    reads, writes = pipe_with(b"123456")
    os.close(writes)
    kept = given(reads)
    assert kept.refusal == ""
    assert a_run(kept) == b"123456"
    check("runtime/program_input", kept.refusal, why)
