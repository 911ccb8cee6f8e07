"""Jobs in forked processes: what they give, in order, whatever becomes of the forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from kprof_inject import forks
from kprof_inject.errors import KprofError
from kprof_inject.forks import Job, forked, in_turn, usable_cores

HERE = os.getpid()


def chunks(number: int) -> Iterator[bytes]:
    yield b"job %d" % number
    yield bytes(1 << 18)
    yield b"."


def expected(count: int) -> list[bytes]:
    return [chunk for number in range(count) for chunk in chunks(number)]


def children() -> set[str]:
    return set(Path(f"/proc/{HERE}/task/{HERE}/children").read_text().split())


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd")), children()
    yield
    assert (len(os.listdir("/proc/self/fd")), children()) == before


@pytest.mark.parametrize("count", [0, 1, 2, 3, 8])
@pytest.mark.parametrize("jobs", [0, 1, 2, 5, 40])
def test_what_jobs_give_comes_in_their_order(count: int, jobs: int) -> None:
    assert list(forked(count)([partial(chunks, number) for number in range(jobs)])) == expected(jobs)


def test_jobs_are_done_elsewhere_and_by_several() -> None:
    def job() -> Iterator[bytes]:
        time.sleep(0.05)
        yield b"%d" % os.getpid()

    pids = set(forked(4)([job] * 16))
    assert len(pids) == 4
    assert b"%d" % HERE not in pids
    assert set(in_turn([job])) == {b"%d" % HERE}


def test_whoever_is_free_does_the_next_job() -> None:
    """One long job among short ones: the other fork does these."""

    def job(seconds: float) -> Iterator[bytes]:
        time.sleep(seconds)
        yield b"%d" % os.getpid()

    long, *short = forked(2)([partial(job, 0.5), *[partial(job, 0.001)] * 3])
    assert set(short) != {long}
    assert len({long, *short}) == 2


def test_no_more_is_done_than_there_is_room_for(tmp_path: Path) -> None:
    def job(number: int) -> Iterator[bytes]:
        (tmp_path / str(number)).touch()
        yield b"x"

    given = forked(2)([partial(job, number) for number in range(100)])
    next(given)
    time.sleep(0.3)
    assert len(list(tmp_path.iterdir())) <= 4
    given.close()  # type: ignore[attr-defined]


def killed_in_a_fork(after: int) -> Iterator[bytes]:
    """As ``chunks(3)``, where it is not killed."""
    for taken, chunk in enumerate(chunks(3)):
        if taken == after and os.getpid() != HERE:
            os.kill(os.getpid(), signal.SIGKILL)
        yield chunk


@pytest.mark.parametrize("at", [0, 3, 9])
def test_the_jobs_of_a_killed_fork_are_done_here(at: int) -> None:
    jobs: list[Job] = [partial(chunks, number) for number in range(10)]
    jobs[at] = partial(killed_in_a_fork, 1)
    found = [chunk for number, job in enumerate(jobs) for chunk in (chunks(3) if number == at else job())]
    for count in (2, 3):
        assert list(forked(count)(jobs)) == found


def test_all_forks_may_be_killed() -> None:
    jobs = [partial(killed_in_a_fork, 0)] * 7
    assert list(forked(3)(jobs)) == [*chunks(3)] * 7


def raises(error: Exception) -> Iterator[bytes]:
    yield b"before"
    raise error


@pytest.mark.parametrize("error", [KprofError("a damaged buffer", hint="none"), OSError("gone")])
def test_what_a_job_raises_is_raised_here(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    given = forked(2)([partial(chunks, 0), partial(raises, error), partial(chunks, 2)])
    assert [next(given) for _ in range(4)] == [*chunks(0), b"before"]
    with pytest.raises(type(error)) as caught:
        next(given)
    assert caught.value is error
    assert capfd.readouterr() == ("", "")


def test_who_takes_no_more_leaves_no_process_behind() -> None:
    given = forked(3)([partial(chunks, number) for number in range(20)])
    next(given)
    assert len(children()) >= 3
    given.close()  # type: ignore[attr-defined]


def test_where_nothing_can_be_forked_it_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(*_: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(BaseProcess, "start", no_more)
    assert list(forked(4)([partial(chunks, number) for number in range(5)])) == expected(5)


def test_other_systems_fork_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks.sys, "platform", "darwin")
    assert forked(4) is in_turn
    assert usable_cores() >= 1


def test_a_daemon_may_fork_nothing() -> None:
    ours, theirs = get_context("fork").Pipe(duplex=False)
    child = get_context("fork").Process(target=lambda: theirs.send(forked(4) is in_turn), daemon=True)
    child.start()
    assert ours.recv() is True
    child.join()
    child.close()
    ours.close()
    theirs.close()


def test_a_python_without_files_in_memory_takes_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert list(forked(2)([partial(chunks, number) for number in range(5)])) == expected(5)


def test_who_ignores_that_children_end_gets_all_the_same() -> None:
    """As whoever was started by someone who does."""
    ended_by_itself(
        """
import signal
from kprof_inject.forks import forked
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
jobs = [lambda number=number: [b"%d" % number] for number in range(20)]
assert list(forked(3)(jobs)) == [b"%d" % number for number in range(20)]
"""
    )


def ended_by_itself(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_whatever_becomes_of_sigterm_nobody_waits_for_a_job(handler: Callable[..., object]) -> None:
    def long() -> Iterator[bytes]:
        yield from ()
        time.sleep(30)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        given = forked(2)([partial(chunks, 0), long, long])
        next(given)
        begin = time.monotonic()
        given.close()  # type: ignore[attr-defined]
        assert time.monotonic() - begin < 10
    finally:
        signal.signal(signal.SIGTERM, before)


def test_forks_end_with_a_parent_that_is_killed_in_the_midst_of_their_jobs() -> None:
    program = """
import os, signal, time
from kprof_inject.forks import forked
def job():
    os.write(1, b"%d\\n" % os.getpid())
    time.sleep(60)
    yield from ()
def end():
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
import threading
threading.Thread(target=end).start()
list(forked(3)([job] * 6))
"""
    # Whoever holds an end of its stdout is alive.
    ended = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=20)
    assert (ended.returncode, len(ended.stdout.split())) == (-signal.SIGKILL, 3)


@pytest.mark.parametrize("spare", range(12))
def test_with_few_files_to_open_what_can_be_forked_is(spare: int) -> None:
    """In a process of its own, which has so many files fewer."""
    ended_by_itself(
        f"""
import os, resource
from kprof_inject.forks import forked
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + {spare}, used + {spare}))
jobs = [lambda number=number: [b"%d" % number] for number in range(20)]
assert list(forked(4)(jobs)) == [b"%d" % number for number in range(20)]
"""
    )


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", sys.maxsize),
        ("250000 100000\n", 2),
        ("50000 100000\n", 0),
        ("", sys.maxsize),
        (None, sys.maxsize),
    ],
)
def test_a_container_has_as_many_cores_as_it_may_have_time_of(text: str | None, cores: int, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "cpu.max").write_text(text)
    assert forks._cores_of_container(tmp_path / "cpu.max") == cores
    assert usable_cores() >= 1
