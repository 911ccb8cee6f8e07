"""Jobs in forked processes: what they give, in order, whatever becomes of the forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from programs.child import GUARD_S

from kprof_inject import forks
from kprof_inject.errors import KprofError
from kprof_inject.forks import forked, in_turn, usable_cores

HERE = os.getpid()


def chunks(number: int) -> Iterator[bytes]:
    yield b"job %d" % number
    yield bytes(1 << 18)
    yield b"."


def children() -> set[str]:
    return set(Path(f"/proc/{HERE}/task/{HERE}/children").read_text().split())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")), children()
    yield
    assert (len(os.listdir("/proc/self/fd")), children()) == before


@pytest.mark.parametrize(("count", "jobs", "at_once"), [(0, 2, 1), (1, 5, 1), (3, 0, 1), (3, 2, 1), (3, 40, 3)])
def test_what_jobs_give_comes_in_their_order(count: int, jobs: int, at_once: int) -> None:
    expected = [chunk for number in range(jobs) for chunk in chunks(number)]
    assert list(forked(count, at_once)([partial(chunks, number) for number in range(jobs)])) == expected


def test_jobs_are_done_elsewhere_and_by_several() -> None:
    def job() -> Iterator[bytes]:
        time.sleep(0.05)
        yield b"%d" % os.getpid()

    pids = set(forked(4)([job] * 16))
    assert len(pids) == 4
    assert b"%d" % HERE not in pids
    assert set(in_turn([job])) == {b"%d" % HERE}


def test_no_more_is_done_than_there_is_room_for(tmp_path: Path) -> None:
    def job(number: int) -> Iterator[bytes]:
        (tmp_path / str(number)).touch()
        yield b"x"

    given = forked(2)([partial(job, number) for number in range(100)])
    next(given)
    time.sleep(0.2)
    assert len(list(tmp_path.iterdir())) <= 4
    given.close()  # type: ignore[attr-defined]


def test_a_container_has_as_many_cores_as_it_may_have_time_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_CONTAINER_QUOTA", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert usable_cores() == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert usable_cores() == len(os.sched_getaffinity(0))


def killed() -> Iterator[bytes]:
    os.kill(os.getpid(), signal.SIGKILL)
    yield b""


def raises(error: Exception) -> Iterator[bytes]:
    yield b"before"
    raise error


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (killed, "was killed"),
        (partial(raises, KprofError("a damaged buffer", hint="none")), "^a damaged buffer\nhint: none$"),
        (partial(raises, OSError("gone")), "^gone$"),
    ],
)
def test_what_becomes_of_a_job_is_raised_here(job: partial, error: str, capfd: pytest.CaptureFixture[str]) -> None:
    given = forked(2)([partial(chunks, 0), job, partial(chunks, 2)])
    assert [next(given) for _ in range(3)] == [*chunks(0)]
    with pytest.raises((KprofError, OSError), match=error):
        next(given)
    assert capfd.readouterr() == ("", "")


def test_forks_end_with_a_parent_that_is_killed_in_the_midst_of_their_jobs() -> None:
    program = """
import os, signal, time
from kprof_inject.forks import forked
def job():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(3600)
    yield from ()
def end():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
import threading
threading.Thread(target=end).start()
list(forked(3)([job] * 6))
"""
    # Whoever holds an end of its stdout is alive.
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=GUARD_S)
    assert (ended.returncode, len(ended.stdout.split())) == (-signal.SIGKILL, 3)
