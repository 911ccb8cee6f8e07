"""Jobs in forked processes, so that several processor cores work on them.

A fork has all that its parent had, so a job may be any function; what comes back is pickled. ``concurrent.futures``
would not do: it pickles the jobs too, keeps all results until they are asked for, and gives up when a worker is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Generic, Protocol, TypeVar

from kprof_inject.errors import KprofError

T = TypeVar("T")

Job = Callable[[], Iterable[T]]
"""Gives some values; called again, the same once more."""


class JobRunner(Protocol):
    """Does jobs that need nothing of each other; what they give comes in their order."""

    def __call__(self, jobs: Sequence[Job[T]], /) -> Iterator[T]: ...


def in_turn(jobs: Sequence[Job[T]]) -> Iterator[T]:
    """Do them one after the other, in this process."""
    return chain.from_iterable(job() for job in jobs)


def forked(count: int) -> JobRunner:
    """Do them in ``count`` forks of this process, 64 at most; what ``count + 1`` jobs give is in memory at a time.
    Where nothing can be forked (Linux alone, and there no daemon of ``multiprocessing``), or ``count`` is less than 2,
    it is ``in_turn``.

    The jobs of a fork that failed, or was killed, are done here: what one raises is raised here."""
    if count < 2 or sys.platform != "linux" or current_process().daemon:
        return in_turn
    return partial(_forked, min(count, _MOST_FORKS))


def usable_cores() -> int:
    """How many cores this process may use; in a container, as many as it may have the time of."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return max(1, min(len(os.sched_getaffinity(0)), _cores_of_container(_CONTAINER_QUOTA)))


def _cores_of_container(quota: Path) -> int:
    """By the file that has microseconds of processor time, "max" or a number, and the period that they are for
    (https://docs.kernel.org/admin-guide/cgroup-v2.html, "cpu.max")."""
    try:
        allowed, period = quota.read_text().split()
        return sys.maxsize if allowed == "max" else int(allowed) // int(period)
    except (OSError, ValueError):
        return sys.maxsize


def _forked(count: int, jobs: Sequence[Job[T]]) -> Iterator[T]:
    if len(jobs) < 2:
        # There is nothing to do beside it.
        yield from in_turn(jobs)
        return
    forks = _Forks(jobs, min(count, len(jobs)))
    try:
        forks.start()
        for number in range(len(jobs)):
            yield from forks.results_of(number)
    finally:
        forks.end()


# Each takes a few files of this process, of which it may have a thousand.
_MOST_FORKS = 64

_CONTAINER_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True, slots=True)
class _Results:
    """What a job gave, pickled one behind the other in a file that is in memory alone."""

    lengths: list[int]
    descriptor: int

    def load(self) -> Iterator[Any]:
        """Once: then the file is closed."""
        with open(self.descriptor, "rb") as file:
            for length in self.lengths:
                yield pickle.loads(file.read(length))


class _Forks(Generic[T]):
    """Forks, each with a connection: through it a fork gets a job's number, and sends its results."""

    def __init__(self, jobs: Sequence[Job[T]], count: int) -> None:
        self._jobs = jobs
        self._count = count
        self._processes: list[BaseProcess] = []
        # The job that each living fork works on, if any.
        self._job_of: dict[Connection, int | None] = {}
        self._done: dict[int, _Results] = {}
        # A pipe that this process alone can write to: it ends for those who read from it when this process does.
        self._lifeline: tuple[int, ...] = ()
        # The next job to assign, and the first that waits until the results of an earlier one were taken.
        self._next_job, self._first_waiting = 0, count + 1

    def start(self) -> None:
        """To be followed by ``end``, whatever happens."""
        with suppress(OSError):  # there may be no more files: then nothing is forked either
            self._lifeline = os.pipe()
        while self._lifeline and len(self._job_of) < self._count and self._fork():
            self._assign()

    def results_of(self, number: int) -> Iterator[T]:
        """What a job gives. Jobs are asked for in their order."""
        while number in self._job_of.values():
            working = [fork for fork, job in self._job_of.items() if job is not None]
            ready = wait(working)
            for fork in working:
                if fork in ready:
                    self._receive(fork)
            self._assign()
        if number in self._done:
            yield from self._done.pop(number).load()
        else:
            self._next_job = max(self._next_job, number + 1)
            yield from self._jobs[number]()
        self._first_waiting += 1
        self._assign()

    def end(self) -> None:
        for fork in self._job_of:
            fork.close()
        for process in self._processes:
            process.kill()
            process.join()
            # Who ignores SIGCHLD never hears that a process has ended.
            with suppress(ValueError):
                process.close()
        for results in self._done.values():
            os.close(results.descriptor)
        for end in self._lifeline:
            os.close(end)

    def _fork(self) -> bool:
        """False if there may be no more processes, or files."""
        context = get_context("fork")
        try:
            ours, theirs = context.Pipe()
        except OSError:
            return False
        process = context.Process(target=self._work, args=(theirs, [ours, *self._job_of]), daemon=True)
        with theirs, warnings.catch_warnings(), _uninterrupted():
            # From Python 3.12 on, of any thread there is: numpy's linear algebra has some, which know of forks.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                process.start()
            except OSError:
                ours.close()
                return False
            self._processes.append(process)
            self._job_of[ours] = None
        return True

    def _work(self, parent: Connection, not_ours: Sequence[Connection]) -> None:
        """A fork's life."""
        # Ctrl-C reaches all processes of a terminal: the parent ends its forks.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.close(self._lifeline[1])
        threading.Thread(target=_exit_with_parent, args=(self._lifeline[0],), daemon=True).start()
        for connection in not_ours:
            connection.close()
        try:
            while True:
                job = self._jobs[parent.recv()]
                with _file_in_memory() as file:
                    parent.send([file.write(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) for value in job()])
                    # This is where the parent begins to read, too.
                    file.seek(0)
                    send_handle(parent, file.fileno(), None)
        except (KprofError, EOFError, OSError, MemoryError):
            pass  # the parent comes upon it too, unless it is that there is nothing more to do

    def _assign(self) -> None:
        """Give the next jobs to those who have none."""
        free = [fork for fork, job in self._job_of.items() if job is None]
        for fork in free[: max(0, min(self._first_waiting, len(self._jobs)) - self._next_job)]:
            self._job_of[fork] = self._next_job
            self._next_job += 1
            try:
                fork.send(self._job_of[fork])
            except OSError:
                self._forget(fork)

    def _receive(self, fork: Connection) -> None:
        """Take the results of a fork that has sent some, or has ended."""
        try:
            results = _Results(fork.recv(), recv_handle(fork))
        except (EOFError, OSError, RuntimeError):  # the last: no more files
            self._forget(fork)
        else:
            job, self._job_of[fork] = self._job_of[fork], None
            if job is not None:
                self._done[job] = results

    def _forget(self, fork: Connection) -> None:
        del self._job_of[fork]
        fork.close()


def _exit_with_parent(lifeline: int) -> None:
    """End this process when the one that made it has ended, however that went, and whatever a job here is at."""
    while os.read(lifeline, 1):
        pass
    os._exit(1)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits until the end; a fork that is made meanwhile has it wait until it says that it ignores it."""
    blocked_before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked_before)


def _file_in_memory() -> IO[bytes]:
    # Pythons that were built for Linux of old have none; then it is on disk.
    return open(os.memfd_create("kprof-inject"), "w+b") if hasattr(os, "memfd_create") else TemporaryFile()
